use std::sync::Arc;

use super::entry::LogClaim;
use super::*;
use crate::error::ErrorKind;
use crate::memtable::encode_record;
use crate::options::TableOptions;
use crate::os::Files;
use crate::os::sim::SimFiles;
use crate::record::Kind;
use crate::tier::object_testing::{ObjectServer, StoreFault};
use crate::tier::open_client;

fn records(rows: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in rows {
        encode_record(&mut bytes, 3, Kind::Put, key.as_bytes(), value.as_bytes());
    }
    bytes
}

fn segment(first: u64, last: u64) -> EntryBody {
    let group = |lsn| ShippedGroup {
        lsn,
        kind: GroupKind::Commit,
        parts: vec![records(&[("a", &"x".repeat(300)), ("b", &lsn.to_string())])],
    };
    EntryBody::Segment((first..=last).map(group).collect())
}

fn bodies() -> Vec<(EntryBody, (u64, u64))> {
    let claim = LogClaim { nonce: [7; 16], incarnation: 3, owner: "process 1".into() };
    let options = TableOptions::new().filter_bits(0);
    let table = |id, name: &str, options| SharedTable { id, name: name.into(), options };
    let tables = vec![table(3, "a", options), table(4, "b", TableOptions::new())];
    vec![
        (EntryBody::Claim(claim), (0, 9)),
        (EntryBody::Tables(tables), (0, 9)),
        (segment(10, 13), (10, 13)),
        (EntryBody::Segment(Vec::new()), (10, 13)),
        (EntryBody::Checkpoint(b"manifest".repeat(100)), (0, 14)),
    ]
}

fn entry(number: u64, (body, (first, last)): (EntryBody, (u64, u64))) -> Entry {
    let claim = if matches!(body, EntryBody::Claim(_)) { number } else { 2 };
    let checkpoint = if matches!(body, EntryBody::Checkpoint(_)) { number } else { 1 };
    Entry { number, claim, checkpoint, first, last, body }
}

#[test]
fn entries_round_trip_and_every_flipped_byte_is_found() {
    for body in bodies() {
        let entry = entry(5, body);
        let bytes = entry.encode().unwrap();
        assert_eq!(Entry::decode(&bytes, 5), Ok(entry));
        Entry::decode(&bytes, 6).unwrap_err();
        for at in 0..bytes.len() {
            Entry::decode(&bytes[..at], 5).unwrap_err();
            let mut bad = bytes.clone();
            bad[at] ^= 4;
            Entry::decode(&bad, 5).unwrap_err();
        }
    }
}

#[test]
fn groups_out_of_order_and_runs_are_refused() {
    let of = |groups: Vec<ShippedGroup>, lsns| {
        let bytes = entry(5, (EntryBody::Segment(groups), lsns)).encode().unwrap();
        Entry::decode(&bytes, 5).is_ok()
    };
    let group =
        |lsn| ShippedGroup { lsn, kind: GroupKind::Commit, parts: vec![records(&[("a", "b")])] };
    assert!(of(vec![group(4), group(7)], (4, 8)), "LSNs without a group were no news");
    assert!(!of(vec![group(7), group(4)], (4, 8)));
    assert!(!of(vec![group(4), group(4)], (4, 8)));
    assert!(!of(vec![group(9)], (4, 8)) && !of(vec![group(3)], (4, 8)));
    let mut run = Vec::new();
    encode_record(&mut run, 0, Kind::SpilledRun, &[1; 8], &[]);
    let with_run = ShippedGroup { parts: vec![run.clone()], ..group(4) };
    assert!(!of(vec![with_run], (4, 8)));
    let prepared = ShippedGroup { kind: GroupKind::Prepared, parts: vec![run], ..group(4) };
    assert!(of(vec![prepared], (4, 8)));
}

/// A machine that may be the writer.
struct Machine {
    log: Arc<SharedLog>,
    nonce: [u8; 16],
    identity: Identity,
}

impl Machine {
    fn new(server: &ObjectServer) -> Machine {
        Machine::on(server, &SimFiles::new())
    }

    fn on(server: &ObjectServer, files: &Arc<SimFiles>) -> Machine {
        let files = Arc::clone(files) as Arc<dyn Files>;
        let (client, nonce) = open_client((server.url(), true), &files, 0, None).unwrap();
        let identity = Identity::new(&files, std::path::Path::new("/db"));
        Machine { log: Arc::new(SharedLog::new(client)), nonce, identity }
    }

    fn claim(&self, expects: Expects) -> crate::error::Result<LogWriter> {
        let claimed = (self.nonce, 1);
        LogWriter::claim(&self.log, Some(&self.identity), claimed, expects).map(|(w, _)| w)
    }
}

/// A log with a checkpoint as entry 2, and its writer.
fn begun(server: &ObjectServer) -> (Machine, LogWriter) {
    let machine = Machine::new(server);
    let mut writer = machine.claim(Expects::Own).unwrap();
    writer.append(EntryBody::Checkpoint(vec![1]), (0, 3)).unwrap();
    (machine, writer)
}

#[test]
fn the_end_of_a_log_is_found_wherever_it_is() {
    let server = ObjectServer::new();
    let (machine, mut writer) = begun(&server);
    for n in 4..40 {
        let end = machine.log.end().unwrap();
        assert_eq!((end.next, end.claim, end.checkpoint, end.last), (n - 1, 1, 2, n - 1));
        writer.append(segment(n, n), (n, n)).unwrap();
    }
    // Below the head only claims are left.
    assert!(machine.log.raise_head(LogHead { oldest: 20, checkpoint: 20 }).unwrap());
    let gone: Vec<String> = (2..20).map(entry_name).collect();
    machine.log.delete(&gone).unwrap();
    assert_eq!(machine.log.end().unwrap().next, 39);
    assert!(machine.log.is_past(19).unwrap() && !machine.log.is_past(20).unwrap());
    assert!(machine.log.raise_head(LogHead { oldest: 5, checkpoint: 30 }).unwrap());
    assert_eq!(machine.log.head().unwrap().0.oldest, 20, "it only moves up");
}

#[test]
fn a_writer_that_was_taken_over_appends_nothing_and_hears_by_whom() {
    let server = ObjectServer::new();
    let (_first, mut old) = begun(&server);
    let second = Machine::new(&server);
    let mut new = second.claim(Expects::Any).unwrap();
    new.append(segment(4, 5), (4, 5)).unwrap();
    let error = old.append(segment(4, 4), (4, 4)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    assert!(error.to_string().contains("incarnation 1"), "{error}");
    // It stays so, also once a collector has deleted all but claims.
    assert!(second.log.raise_head(LogHead { oldest: 4, checkpoint: 4 }).unwrap());
    second.log.delete(&[entry_name(2), entry_name(4)]).unwrap();
    assert_eq!(old.settle().unwrap_err().kind(), ErrorKind::Fenced);
}

#[test]
fn a_directory_claims_again_what_it_had_and_no_other_does() {
    let (server, files) = (ObjectServer::new(), SimFiles::new());
    let first = Machine::on(&server, &files);
    first.claim(Expects::Own).unwrap();
    Machine::on(&server, &files).claim(Expects::Own).unwrap();
    let other = Machine::new(&server).claim(Expects::Own).unwrap_err();
    assert_eq!(other.kind(), ErrorKind::Fenced);
    let error = Machine::new(&server).claim(Expects::Any).unwrap_err();
    assert!(error.to_string().contains("no shared database"), "{error}");
}

#[test]
fn a_log_is_claimed_once_whatever_becomes_of_each_request() {
    let faults = [
        StoreFault::LoseRequest,
        StoreFault::LoseAnswer,
        StoreFault::Delay(0),
        StoreFault::Delay(1),
        StoreFault::Delay(3),
        StoreFault::Repeat(1),
        StoreFault::Throttle,
    ];
    for at in 1..12 {
        for fault in faults {
            let server = ObjectServer::new();
            let (_first, mut old) = begun(&server);
            let before = server.requests();
            server.plan(before + at, fault);
            let second = Machine::new(&server);
            let mut new = second.claim(Expects::Any).unwrap();
            new.append(segment(4, 4), (4, 4)).unwrap();
            server.forget_plans();
            server.deliver();
            let error = old.append(segment(4, 4), (4, 4)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Fenced, "{fault:?} at {at}");
            new.append(segment(5, 5), (5, 5)).unwrap();
            assert_eq!(second.log.end().unwrap().last, 5, "{fault:?} at {at}");
        }
    }
}

/// The takeover of one machine is paused before each of its requests. Meanwhile the writer goes on,
/// makes checkpoints, and deletes all that it may.
#[test]
fn a_claim_in_a_hole_of_the_collector_counts_for_nothing() {
    for at in 1..16 {
        let server = ObjectServer::new();
        let (first, writer) = begun(&server);
        let (log, writer) = (Arc::clone(&first.log), Arc::new(parking_lot::Mutex::new(writer)));
        let (own, came) = (Arc::clone(&writer), std::sync::atomic::AtomicU64::new(0));
        server.watch(Some(Box::new(move |_, after| {
            let came = came.fetch_add(u64::from(!after), std::sync::atomic::Ordering::Relaxed);
            let Some(mut writer) = own.try_lock() else { return };
            if after || came + 1 != at {
                return;
            }
            for _ in 0..6 {
                let lsn = writer.last() + 1;
                if writer.append(segment(lsn, lsn), (lsn, lsn)).is_err() {
                    return;
                }
            }
            let last = writer.last();
            let Ok(number) = writer.append(EntryBody::Checkpoint(vec![2]), (0, last)) else {
                return;
            };
            assert!(log.raise_head(LogHead { oldest: number, checkpoint: number }).unwrap());
            let below: Vec<String> = (2..number).map(entry_name).collect();
            log.delete(&below).unwrap();
        })));
        let second = Machine::new(&server);
        let claimed = second.claim(Expects::Any);
        server.watch(None);
        let mut new = claimed.unwrap();
        let end = second.log.end().unwrap();
        assert_eq!((end.claim, end.next), (new.number(), new.number() + 1), "paused at {at}");
        let last = new.last();
        new.append(segment(last + 1, last + 1), (last + 1, last + 1)).unwrap();
        let mut old = writer.lock();
        assert_eq!(old.last(), last, "the claim knows all that was appended");
        let error = old.append(segment(last + 1, last + 1), (last + 1, last + 1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced, "paused at {at}");
    }
}

#[test]
fn claims_of_a_directory_survive_and_torn_ones_are_damage() {
    let files = SimFiles::new();
    let identity = Identity::new(&(Arc::clone(&files) as _), std::path::Path::new("/db"));
    assert!(!identity.load().unwrap().has([0; 16]), "no claim has the number 0");
    identity.store_claimed([3; 16]).unwrap();
    assert!(identity.load().unwrap().has([3; 16]));
    files.corrupt(std::path::Path::new("/db/shared"), 20, 1);
    assert_eq!(identity.load().unwrap_err().kind(), ErrorKind::Corrupt);
}
