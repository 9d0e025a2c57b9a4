use std::thread;

use super::*;
use crate::base::error::ErrorKind;
use crate::storage::object::clock::{MachineTimer, StepTimer};
use crate::storage::object::memory::{Effect, MemoryServer, RequestKind};
use crate::storage::object::slow::{Distance, SlowStore};

fn client(server: &Arc<MemoryServer>) -> Client {
    Client::new(Arc::new(server.client()), Arc::new(StepTimer::default()), Patience::default())
}

fn kinds(server: &MemoryServer) -> Vec<RequestKind> {
    server.log().iter().map(|request| request.kind).collect()
}

#[test]
fn a_put_of_which_the_answer_was_lost_is_found_done() {
    for effect in [Effect::LoseAnswer, Effect::Repeat(1), Effect::Delay(0), Effect::LoseRequest] {
        let server = MemoryServer::new();
        server.plan(1, effect);
        let client = client(&server);
        client.begin_put("a/1", Bytes::from_static(b"bytes")).finish(&client).unwrap();
        server.deliver();
        assert_eq!(&*server.content()["a/1"], b"bytes", "{effect:?}");
    }
}

#[test]
fn a_put_never_replaces_other_bytes() {
    let server = MemoryServer::new();
    let client = client(&server);
    client.begin_put("a/1", Bytes::from_static(b"first")).finish(&client).unwrap();
    let failure =
        client.begin_put("a/1", Bytes::from_static(b"second")).finish(&client).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Changed);
    assert_eq!(&*server.content()["a/1"], b"first");
}

#[test]
fn passing_failures_are_tried_again_until_the_deadline_and_others_are_not() {
    for kind in FailureKind::ALL {
        let server = MemoryServer::new();
        let client = client(&server);
        client.begin_put("a/1", Bytes::from_static(b"bytes")).finish(&client).unwrap();
        server.plan(2, Effect::Fail(kind));
        assert_eq!(client.get("a/1", Span::Whole).is_ok(), kind.is_passing(), "{kind:?}");

        server.always(Some(Effect::Fail(kind)));
        let failure = client.get("a/1", Span::Whole).unwrap_err();
        assert_eq!(failure.kind, kind);
        let passed = client.timer.now();
        let deadline = Patience::default().deadline;
        assert!(passed <= deadline, "{passed:?}");
        assert_eq!(passed > deadline / 2, kind.is_passing(), "{passed:?}");
        let counts = client.counts();
        assert_eq!(counts.retries > 3, kind.is_passing(), "{counts:?}");
        assert!(counts.failures.contains(&(kind, counts.failures[kind as usize].1)));

        server.always(None);
        assert_eq!(client.get("a/1", Span::Whole).unwrap().bytes, b"bytes", "it goes on by itself");
    }
}

/// Bug: a caller that had other work between the begin of a request and its wait had the first
/// passing failure for an answer. Cause: the deadline counted from the begin, so it had passed
/// before the wait. Fix: it counts from the wait.
#[test]
fn a_caller_that_waits_late_has_the_whole_deadline() {
    for effect in [FailureKind::Throttled, FailureKind::Late, FailureKind::Away] {
        let server = MemoryServer::new();
        let client = client(&server);
        server.plan(1, Effect::Fail(effect));
        let writing = client.begin_put("a/1", Bytes::from_static(b"bytes"));
        assert!(client.timer.pause(Patience::default().deadline * 10));
        writing.finish(&client).unwrap();
        server.plan(server.requests() + 1, Effect::Fail(effect));
        let reading = client.begin_get("a/1", Span::Whole);
        assert!(client.timer.pause(Patience::default().deadline * 10));
        assert_eq!(reading.finish(&client).unwrap().bytes, b"bytes", "{effect:?}");
        assert_eq!(client.counts().retries, 2, "{effect:?}");
    }
}

/// A database that closes waits no longer than five seconds for a store that is away.
#[test]
fn a_hurried_client_gives_up_after_five_seconds() {
    let server = MemoryServer::new();
    let client = client(&server);
    server.always(Some(Effect::Fail(FailureKind::Throttled)));
    client.hurry();
    client.put("a/1", &Bytes::from_static(b"bytes"), &PutWhen::Absent).unwrap_err();
    let passed = client.timer.now();
    assert!(passed > HURRIED / 4 && passed <= HURRIED, "{passed:?}");
    server.always(None);
    client.put("a/1", &Bytes::from_static(b"bytes"), &PutWhen::Absent).unwrap();
}

#[test]
fn a_stopped_client_gives_up_at_the_first_failure() {
    let server = MemoryServer::new();
    let client = client(&server);
    server.always(Some(Effect::Fail(FailureKind::Throttled)));
    client.stop();
    client.head("a/1").unwrap_err();
    assert_eq!(kinds(&server), [RequestKind::Head]);
}

#[test]
fn a_stopped_client_waits_for_no_answer_that_takes_long() {
    let server = MemoryServer::new();
    let patience = Patience { attempt: Duration::from_millis(300), ..Patience::default() };
    // Of another client: a put that takes long is no attempt of this one.
    let patient = client(&server);
    patient.begin_put("a/1", vec![7; 8 << 20].into()).finish(&patient).unwrap();
    let timer = Arc::new(MachineTimer::default());
    let client = Client::new(Arc::new(server.client()), timer, patience);
    server.plan(server.requests() + 1, Effect::Hold);
    let reading = client.begin_get("a/1", Span::Bytes { offset: 0, len: 8 << 20 });
    client.stop();
    assert_eq!(reading.finish(&client).unwrap_err().kind, FailureKind::Late);
    server.release();
}

#[test]
fn many_reads_are_under_way_at_a_time() {
    let server = MemoryServer::new();
    let client = client(&server);
    for n in 0..5 {
        client.begin_put(&format!("a/{n}"), vec![n; 10].into()).finish(&client).unwrap();
    }
    (6..11).for_each(|n| server.plan(n, Effect::Hold));
    let span = Span::Bytes { offset: 2, len: 3 };
    let begun: Vec<_> = (0..5).map(|n| client.begin_get(&format!("a/{n}"), span)).collect();
    assert_eq!(server.requests(), 10, "all of them were sent before one was answered");
    server.release();
    for (n, reading) in begun.into_iter().enumerate() {
        assert_eq!(reading.finish(&client).unwrap().bytes, [n as u8; 3]);
    }
}

#[test]
fn a_slow_read_is_made_a_second_time_and_the_first_answer_counts() {
    let server = MemoryServer::new();
    let timer = Arc::new(MachineTimer::default());
    let client = Client::new(Arc::new(server.client()), timer, Patience::default());
    client.begin_put("a/1", Bytes::from_static(b"bytes")).finish(&client).unwrap();
    for _ in 0..64 {
        client.get("a/1", Span::Whole).unwrap();
    }
    let before = client.counts();
    server.plan(server.requests() + 1, Effect::Hold);
    assert_eq!(client.get("a/1", Span::Whole).unwrap().bytes, b"bytes");
    let after = client.counts();
    assert_eq!((after.hedges, after.gets), (before.hedges + 1, before.gets + 2));

    // The second one fails, and the first one comes at last.
    server.plan(server.requests() + 1, Effect::Hold);
    server.plan(server.requests() + 2, Effect::Fail(FailureKind::Throttled));
    thread::scope(|scope| {
        let reading = scope.spawn(|| client.get("a/1", Span::Whole));
        while client.counts().hedges == after.hedges {
            thread::yield_now();
        }
        while server.log().last().is_none_or(|last| last.number < client.counts().gets + 1) {
            thread::yield_now();
        }
        server.release();
        assert_eq!(reading.join().unwrap().unwrap().bytes, b"bytes");
    });
    assert_eq!(client.counts().retries, 0);
}

#[test]
fn an_error_names_the_object_the_store_and_the_cause() {
    let server = MemoryServer::new();
    let client = client(&server);
    for (kind, expected) in [
        (FailureKind::Refused, ErrorKind::Unavailable),
        (FailureKind::Away, ErrorKind::Unavailable),
        (FailureKind::Missing, ErrorKind::Corrupt),
        (FailureKind::Wrong, ErrorKind::Corrupt),
    ] {
        let failure = Failure::new(kind, "the cause");
        let error = client.told::<()>("read", "a/1", Err(failure)).unwrap_err();
        assert_eq!(error.kind(), expected);
        let message = error.to_string();
        for part in ["cannot read object a/1 of memory:", kind.as_str(), "the cause"] {
            assert!(message.contains(part), "{message}");
        }
    }
}

/// Bug: the histogram of requests had next to nothing for reads and new objects. Cause: what was
/// timed was the wait, and they are begun before it. Fix: from the beginning to the answer.
#[test]
fn a_request_that_was_begun_earlier_takes_as_long_as_its_answer() {
    let server = MemoryServer::new();
    let distance = Distance { latency: Duration::from_millis(20), bytes_per_second: 1 << 40 };
    let store = SlowStore::new(Arc::new(server.client()), distance).unwrap();
    let client =
        Client::new(Arc::new(store), Arc::new(MachineTimer::default()), Patience::default());
    let write = client.begin_put("a/1", Bytes::from_static(b"bytes"));
    while server.content().is_empty() {
        thread::yield_now();
    }
    write.finish(&client).unwrap();
    let read = client.begin_get("a/1", Span::Whole);
    while server.log().len() < 2 {
        thread::yield_now();
    }
    read.finish(&client).unwrap();
    let sum = client.events.times().requests.sum();
    assert!(sum >= 0.04, "{sum}");
}
