mod machine;

use super::*;
use crate::storage::object::client::Patience;
use crate::storage::object::clock::StepTimer;
use crate::storage::object::memory::{Effect, MemoryServer, RequestKind};
use crate::storage::object::store::FailureKind;
use crate::storage::object::transfers::{ExtentSink, Uploads};
use terrace_testkit::SimFiles;

const DATABASE: [u8; 16] = [7; 16];

fn names() -> ObjectNames {
    ObjectNames::of(DATABASE)
}

fn claim(incarnation: u64, nonce: u8) -> WriterClaim {
    WriterClaim { incarnation, nonce: [nonce; 16], owner: format!("writer {nonce}") }
}

fn open(server: &Arc<MemoryServer>, claim: WriterClaim, named: &[ObjectId]) -> Arc<ObjectTier> {
    Arc::new(built(server, claim, named))
}

fn built(server: &Arc<MemoryServer>, claim: WriterClaim, named: &[ObjectId]) -> ObjectTier {
    let (store, timer) = (Arc::new(server.client()), Arc::new(StepTimer::default()));
    let client = Arc::new(Client::new(store, timer, Patience::default()));
    ObjectTier::open(client, names(), claim, named.iter().copied())
}

fn content(id: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(31) + id) as u8).collect()
}

fn uploads(tier: &Arc<ObjectTier>) -> Uploads {
    tier.uploads((&Arc::default(), u64::MAX))
}

fn put(uploads: &mut Uploads, extent: u64, len: usize) -> Result<ObjectId> {
    Ok(uploads.put(extent, &content(extent, len))?.object().unwrap())
}

fn write(tier: &Arc<ObjectTier>, extent: u64, len: usize) -> ObjectId {
    let mut uploads = uploads(tier);
    let id = put(&mut uploads, extent, len).unwrap();
    uploads.finish().unwrap();
    id
}

fn count(server: &MemoryServer, kind: RequestKind) -> usize {
    server.log().iter().filter(|request| request.kind == kind).count()
}

#[test]
fn an_opening_asks_for_nothing_and_reads_ask_once() {
    let server = MemoryServer::new();
    let len = 1 << 20;
    let id = write(&open(&server, claim(1, 1), &[]), 5, len);
    let before = server.requests();
    let tier = open(&server, claim(2, 2), &[id]);
    assert_eq!(server.requests(), before, "an opening reads nothing");
    for (offset, len) in [(0, 10), (1000, 4096), (len as u32 - 100, 100)] {
        let bytes = tier.read(id, 1 << 20, (offset, len)).unwrap();
        assert_eq!(bytes, content(5, 1 << 20)[offset as usize..(offset + len) as usize]);
    }
    assert_eq!(server.requests(), before + 3);
}

#[test]
fn the_end_of_an_object_is_read_once_and_kept_over_a_restart() {
    let server = MemoryServer::new();
    let files = SimFiles::new();
    let tails = || TailCache::open(&*files, &Arc::default(), "/tails".as_ref(), 8 << 20).unwrap();
    let len: u32 = 2 << 20;
    let id = write(&open(&server, claim(1, 1), &[]), 5, len as usize);
    let all = content(5, len as usize);

    let tier = Arc::new(built(&server, claim(2, 2), &[id]).with_tails(tails()));
    let before = server.requests();
    let ends = [(len - 64, 64), (len - 5000, 4936), (tail_offset(len), 70), (len - 64, 64)];
    let read_ends = |tier: &ObjectTier| {
        for (offset, n) in ends {
            let bytes = tier.read(id, len, (offset, n)).unwrap();
            assert_eq!(bytes, all[offset as usize..(offset + n) as usize]);
        }
    };
    read_ends(&tier);
    assert_eq!(server.requests(), before + 1, "one ranged read of the end");
    drop(tier);

    let tier = Arc::new(built(&server, claim(3, 3), &[id]).with_tails(tails()));
    read_ends(&tier);
    tier.read(id, len, (0, 100)).unwrap();
    assert_eq!(server.requests(), before + 2, "a block of an extent that was open: one request");

    let fresh = write(&tier, 6, len as usize);
    let before = server.requests();
    tier.read(fresh, len, (len - 64, 64)).unwrap();
    assert_eq!(server.requests(), before, "the end of what was just written is there");
}

#[test]
fn what_was_released_is_deleted_in_one_request() {
    let server = MemoryServer::new();
    let tier = open(&server, claim(1, 1), &[]);
    let ids: Vec<ObjectId> = (1..=5).map(|n| write(&tier, n, 100)).collect();
    ids[..4].iter().for_each(|id| tier.release(*id));
    assert_eq!(server.content().len(), 6, "nothing is deleted yet");
    assert_eq!(tier.delete_released().unwrap(), 4);
    assert_eq!(count(&server, RequestKind::Delete), 1);
    let left: Vec<String> = server.content().into_keys().collect();
    assert_eq!(left, [names().extent(ids[4]), names().fence()]);
    assert_eq!(tier.delete_released().unwrap(), 0);
}

#[test]
fn a_deletion_that_failed_is_made_again() {
    let server = MemoryServer::new();
    let tier = open(&server, claim(1, 1), &[]);
    let id = write(&tier, 1, 100);
    tier.release(id);
    server.always(Some(Effect::Fail(FailureKind::Refused)));
    let error = tier.delete_released().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    server.always(None);
    assert_eq!(tier.delete_released().unwrap(), 1);
    assert_eq!(server.content().len(), 1);
}

#[test]
fn the_collector_takes_what_a_crash_left_and_nothing_else() {
    let server = MemoryServer::new();
    let dead = open(&server, claim(1, 1), &[]);
    let kept = write(&dead, 1, 100);
    let left = [write(&dead, 2, 200), write(&dead, 3, 300)];
    let tier = open(&server, claim(2, 2), &[kept]);
    let mut under_way = uploads(&tier);
    put(&mut under_way, 4, 400).unwrap();
    tier.reserve(5).unwrap();
    let foreign = format!("{}notes", names().prefix());
    server.place(&foreign);
    for dry_run in [true, false] {
        let found = tier.collect(dry_run).unwrap();
        assert_eq!((found.live, found.live_bytes), (2, 500));
        assert_eq!((&found.left[..], found.left_bytes), (&left[..], 500));
        assert_eq!((found.foreign, found.lost), (vec![foreign.clone()], vec![]));
        assert_eq!(server.content().len(), if dry_run { 6 } else { 4 });
    }
    under_way.finish().unwrap();
    assert_eq!(tier.collect(false).unwrap().left, []);
}

/// Bug: a closing waited for all requests of a collection: a list, a look at each object that the
/// list lacks, deletions. Cause: the collection asked once, at its beginning, whether it may go on.
/// Fix: it asks before each request.
#[test]
fn a_collection_ends_at_the_next_request_once_the_database_is_closing() {
    let mut ended = 0;
    for after in 0.. {
        let server = MemoryServer::new();
        let dead = open(&server, claim(1, 1), &[]);
        write(&dead, 1, 100);
        (0..2500)
            .for_each(|n| server.place(&names().extent(ObjectId { epoch: 1, extent: 10 + n })));
        let lost = [3, 4, 5].map(|extent| ObjectId { epoch: 1, extent });
        let tier = open(&server, claim(2, 2), &lost);
        tier.fence().unwrap();
        let (begun, stopped) = (server.requests(), Arc::clone(&tier));
        server.watch(Some(Box::new(move |n, _| {
            if n > begun + after {
                stopped.stop();
            }
        })));
        let collected = tier.collect(false);
        server.watch(None);
        match collected {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
                // A deletion is two requests: a look at the fence comes first.
                let more = server.requests() - begun - after;
                assert!((1..=2).contains(&more), "{more} requests after the closing had begun");
                ended += 1;
            }
            Ok(found) => {
                assert_eq!((found.lost.len(), found.left.len()), (3, 2501));
                break;
            }
        }
    }
    // Four lists, three looks, three deletions with one look at the fence each.
    assert!(ended >= 11, "{ended} requests");
}

/// Bug: a collection beside a closing told that the database is damaged, or that the store is away.
/// Cause: a closing leaves a request one attempt, and the failure of that attempt was the answer.
/// Fix: once the database is closing, a collection that fails tells that.
#[test]
fn a_collection_that_a_closing_ends_tells_of_the_closing() {
    for kind in [FailureKind::Wrong, FailureKind::Throttled] {
        let server = MemoryServer::new();
        let tier = open(&server, claim(1, 1), &[]);
        write(&tier, 1, 100);
        server.always(Some(Effect::Fail(kind)));
        let stopped = Arc::clone(&tier);
        server.watch(Some(Box::new(move |_, _| stopped.stop())));
        for dry_run in [false, true] {
            let error = tier.collect(dry_run).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        }
        server.watch(None);
    }
}

/// A closing deletes a bounded number of objects, and a store that fails is asked once.
#[test]
fn what_a_closing_deletes_is_bounded() {
    let server = MemoryServer::new();
    let tier = open(&server, claim(1, 1), &[]);
    let ids: Vec<ObjectId> = (0..9500).map(|n| tier.reserve(n).unwrap()).collect();
    ids.iter().for_each(|id| tier.release(*id));
    tier.stop();
    server.always(Some(Effect::Fail(FailureKind::Throttled)));
    let before = server.requests();
    tier.delete_at_close();
    assert_eq!((server.requests() - before, tier.count()), (1, (0, 9500)));
    server.always(None);
    tier.delete_at_close();
    assert_eq!((count(&server, RequestKind::Delete), tier.count()), (8, (0, 1500)));
}

#[test]
fn a_lost_object_is_corrupt_by_name_and_an_old_list_is_not_believed() {
    let server = MemoryServer::new();
    let tier = open(&server, claim(1, 1), &[]);
    let (lost, kept) = (write(&tier, 1, 100), write(&tier, 2, 100));
    // Behind the second put there was a look at the fence.
    server.plan(server.requests() + 1, Effect::Stale(3));
    let found = tier.collect(false).unwrap();
    assert_eq!((found.live, found.lost), (1, vec![]), "the list lacks one, and it is there");
    server.lose(&names().extent(lost));
    assert_eq!(tier.collect(false).unwrap().lost, [lost]);
    let error = tier.read(lost, 100, (0, 10)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains(&names().extent(lost)), "{error}");
    tier.read(kept, 100, (0, 10)).unwrap();
}

#[test]
fn a_writer_that_is_fenced_off_deletes_nothing_and_says_who_has_the_store() {
    let server = MemoryServer::new();
    let one = open(&server, claim(1, 1), &[]);
    let ids = [write(&one, 1, 100), write(&one, 2, 100)];
    let two = open(&server, claim(1, 2), &ids);
    write(&two, 3, 100);
    one.release(ids[0]);
    for error in [
        one.confirm().unwrap_err(),
        one.delete_released().unwrap_err(),
        one.collect(false).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Fenced);
        assert!(error.to_string().contains("writer 2 (epoch 2, incarnation 1)"), "{error}");
    }
    two.read(ids[0], 100, (0, 10)).unwrap();
    two.release(ids[1]);
    two.delete_released().unwrap();
    let error = one.read(ids[1], 100, (0, 10)).unwrap_err();
    assert!(error.to_string().contains("writer 2"), "not damage: {error}");
}

#[test]
fn a_store_that_comes_back_needs_no_restart() {
    let server = MemoryServer::new();
    let tier = open(&server, claim(1, 1), &[]);
    let id = write(&tier, 1, 100);
    for kind in [FailureKind::Away, FailureKind::Late, FailureKind::Throttled, FailureKind::Refused]
    {
        server.always(Some(Effect::Fail(kind)));
        let error = tier.read(id, 100, (0, 10)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        for part in [names().extent(id), kind.as_str().to_string()] {
            assert!(error.to_string().contains(&part), "{error}");
        }
        let mut failing = uploads(&tier);
        let new = put(&mut failing, kind as u64 + 10, 10).unwrap();
        failing.finish().unwrap_err();
        tier.release(new);
        server.always(None);
        tier.read(id, 100, (0, 10)).unwrap();
    }
}

#[test]
fn a_restart_with_a_known_fence_takes_one_request_before_it_writes() {
    let server = MemoryServer::new();
    let before = open(&server, claim(1, 1), &[]);
    let id = write(&before, 1, 100);
    let last = before.fence().unwrap();
    let requests = server.requests();
    let tier = built(&server, claim(2, 2), &[id]).with_last_fence(last);
    assert_eq!(tier.reserve(1).unwrap(), ObjectId { epoch: 2, extent: 1 });
    assert_eq!(server.requests(), requests + 1);
    let counts = tier.counts();
    assert_eq!((counts.puts, counts.gets, counts.received_bytes), (1, 0, 0));
}

#[test]
fn a_tier_that_closes_makes_no_attempt_again() {
    let server = MemoryServer::new();
    let tier = open(&server, claim(1, 1), &[]);
    let id = write(&tier, 1, 100);
    server.always(Some(Effect::Fail(FailureKind::Throttled)));
    tier.stop();
    let requests = server.requests();
    tier.read(id, 100, (0, 10)).unwrap_err();
    assert_eq!(server.requests(), requests + 1);
}

/// Bug: an edit could name an object that the store never got.
/// Cause: uploads of all jobs were in one queue. A job waited for the oldest one outside of the
/// queue, whichever job's that was. The job that the upload belonged to asked meanwhile, found
/// neither the upload nor its failure, and took it for acknowledged.
/// Fix: each job has its own uploads, and waits for no other ones.
#[test]
fn what_a_job_takes_for_acknowledged_is_in_the_store_whatever_other_jobs_do() {
    for seed in 0..40u64 {
        let server = MemoryServer::new();
        let tier = open(&server, claim(1, 1), &[]);
        tier.fence().unwrap();
        // Some requests are lost and made again, and of some no attempt succeeds.
        for n in 0..60 {
            let effect = match (n * 7 + seed) % 5 {
                0 => Effect::LoseRequest,
                1 if n % 3 == 0 => Effect::Fail(FailureKind::Refused),
                _ => continue,
            };
            server.plan(server.requests() + 1 + n, effect);
        }
        let barrier = std::sync::Barrier::new(2);
        let job = |first: u64| {
            let mut uploads = uploads(&tier);
            barrier.wait();
            let mut sent = Vec::new();
            for extent in first..first + 12 {
                match put(&mut uploads, extent, 50) {
                    Ok(id) => sent.push(id),
                    Err(error) => return (sent, Err(error)),
                }
            }
            (sent, uploads.finish())
        };
        std::thread::scope(|scope| {
            let jobs = [scope.spawn(|| job(100)), scope.spawn(|| job(200))];
            for (first, job) in [100, 200].into_iter().zip(jobs) {
                let (sent, done) = job.join().unwrap();
                let content = server.content();
                let lacks: Vec<_> =
                    sent.iter().filter(|id| !content.contains_key(&names().extent(**id))).collect();
                match done {
                    Ok(()) => assert_eq!(lacks, Vec::<&ObjectId>::new(), "seed {seed}"),
                    Err(error) => {
                        let own = (first..first + 12)
                            .map(|extent| names().extent(ObjectId { epoch: 1, extent }));
                        let message = error.to_string();
                        let is_own = own.into_iter().any(|name| message.contains(&name));
                        assert!(is_own || message.contains("fence"), "seed {seed}: {message}");
                    }
                }
            }
        });
    }
}
