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

/// A transaction that is prepared; `spills` if some of its rows lie in an object.
fn prepare(lsn: u64, spills: bool) -> SharedPrepare {
    let mut records = Vec::new();
    encode_record(&mut records, 0, Kind::Prepare, b"name", &[1, 0, 0, 0, 0, 0, 0, 0]);
    match spills {
        true => encode_record(&mut records, 0, Kind::SpilledRun, &[1; 8], &[]),
        false => encode_record(&mut records, 3, Kind::Put, b"a", b"b"),
    }
    let pieces = spills.then_some(DataPiece { claim: 2, number: 7, len: 90 });
    SharedPrepare { lsn, records, pieces: pieces.into_iter().collect() }
}

fn bodies() -> Vec<(EntryBody, (u64, u64))> {
    let claim = LogClaim { nonce: [7; 16], incarnation: 3, owner: "process 1".into() };
    let options = TableOptions::new().filter_bits(0);
    let table = |id, name: &str, options| SharedTable { id, name: name.into(), options };
    let tables = vec![table(3, "a", options), table(4, "b", TableOptions::new())];
    let (manifest, prepares) = (b"manifest".repeat(100), vec![prepare(3, false), prepare(8, true)]);
    vec![
        (EntryBody::Claim(claim), (0, 9)),
        (EntryBody::Tables(tables), (0, 9)),
        (segment(10, 13), (10, 13)),
        (EntryBody::Segment(Vec::new()), (10, 13)),
        (EntryBody::Checkpoint(LogCheckpoint { manifest, prepares }), (0, 14)),
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
    let of_kind = |kind, prepare: SharedPrepare| {
        of(vec![ShippedGroup { kind, parts: vec![prepare.records], ..group(4) }], (4, 8))
    };
    assert!(of_kind(GroupKind::Prepared, prepare(4, false)));
    assert!(!of_kind(GroupKind::Prepared, prepare(4, true)));
    assert!(!of_kind(GroupKind::Commit, prepare(4, false)));
}

#[test]
fn prepares_out_of_order_or_without_their_rows_are_refused() {
    let of = |prepares: Vec<SharedPrepare>| {
        let checkpoint = LogCheckpoint { manifest: vec![1], prepares };
        let bytes = entry(5, (EntryBody::Checkpoint(checkpoint), (0, 8))).encode().unwrap();
        Entry::decode(&bytes, 5).is_ok()
    };
    assert!(of(vec![prepare(4, false), prepare(8, true)]));
    assert!(!of(vec![prepare(4, false), prepare(4, false)]));
    assert!(!of(vec![prepare(9, false)]), "it is later than the checkpoint");
    assert!(!of(vec![SharedPrepare { pieces: Vec::new(), ..prepare(4, true) }]));
    assert!(!of(vec![SharedPrepare { records: records(&[("a", "b")]), ..prepare(4, false) }]));
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

fn checkpoint() -> EntryBody {
    EntryBody::Checkpoint(LogCheckpoint { manifest: vec![1], prepares: Vec::new() })
}

/// A log with a checkpoint as entry 2, and its writer.
fn begun(server: &ObjectServer) -> (Machine, LogWriter) {
    let machine = Machine::new(server);
    let mut writer = machine.claim(Expects::Own).unwrap();
    writer.append(checkpoint(), (0, 3)).unwrap();
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

/// A search is paused before each of its requests. Meanwhile the writer goes on, makes a checkpoint
/// and deletes all that it may, so that the search meets holes: it never gives an end that lies in
/// one.
#[test]
fn a_search_that_meets_a_hole_of_the_collector_starts_again() {
    let mut disturbed = 0;
    for at in 1..24 {
        let server = ObjectServer::new();
        let (first, mut writer) = begun(&server);
        for lsn in 4..11 {
            writer.append(segment(lsn, lsn), (lsn, lsn)).unwrap();
        }
        let searcher = Machine::new(&server);
        let (log, came) = (Arc::clone(&first.log), std::sync::atomic::AtomicU64::new(0));
        let writer = Arc::new(parking_lot::Mutex::new(writer));
        let own = Arc::clone(&writer);
        server.watch(Some(Box::new(move |_, after| {
            let came = came.fetch_add(u64::from(!after), std::sync::atomic::Ordering::Relaxed);
            let Some(mut writer) = own.try_lock() else { return };
            if after || came + 1 != at {
                return;
            }
            let last = writer.last();
            let number = writer.append(checkpoint(), (0, last)).unwrap();
            writer.append(segment(last + 1, last + 1), (last + 1, last + 1)).unwrap();
            assert!(log.raise_head(LogHead { oldest: number, checkpoint: number }).unwrap());
            let below: Vec<String> = (2..number).map(entry_name).collect();
            log.delete(&below).unwrap();
        })));
        let found = searcher.log.end().unwrap();
        server.watch(None);
        let writer = writer.lock();
        let head = searcher.log.head().unwrap().0;
        assert_eq!(found.next, writer.next(), "paused at {at}: {found:?}");
        disturbed += u64::from(head.oldest > 1);
    }
    assert!(disturbed > 6, "{disturbed} searches met the collector");
}

#[test]
fn registered_followers_are_listed_until_they_are_forgotten() {
    let server = ObjectServer::new();
    let log = Machine::new(&server).log;
    assert_eq!(log.registered().unwrap(), []);
    log.register("one", 7).unwrap();
    log.register("two", 9).unwrap();
    log.register("one", 8).unwrap();
    assert_eq!(log.registered().unwrap(), [("one".to_string(), 8), ("two".to_string(), 9)]);
    log.unregister("one").unwrap();
    assert_eq!(log.registered().unwrap(), [("two".to_string(), 9)]);
    server.damage("shared/followers/two", 17);
    assert_eq!(log.registered().unwrap(), [], "other bytes hold nothing back");
    for name in ["", "a/b", &"x".repeat(65)] {
        assert_eq!(log.register(name, 1).unwrap_err().kind(), ErrorKind::Invalid);
    }
    for fault in [StoreFault::LoseAnswer, StoreFault::Repeat(1), StoreFault::LoseRequest] {
        server.plan(server.requests() + 2, fault);
        log.register("three", 5).unwrap();
        server.deliver();
        assert_eq!(log.registered().unwrap(), [("three".to_string(), 5)], "{fault:?}");
        log.unregister("three").unwrap();
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
            let Ok(number) = writer.append(checkpoint(), (0, last)) else {
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
