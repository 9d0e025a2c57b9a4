use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::shared_log::{PAGE, PREFIX};
use super::writer::Nonces;
use super::*;
use crate::backup::fetch_objects;
use crate::base::error::ErrorKind;
use crate::base::memory::Gauge;
use crate::base::record::Kind;
use crate::memtable::encode_record;
use crate::os::Files;
use crate::storage::object_testing::{ObjectServer, StoreFault};
use crate::storage::{MOST_SENT, Sends, open_client, shared_name};
use terrace_testkit::SimFiles;

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

fn part(kind: PartKind) -> LargePart {
    let records = records(&[("a", &"x".repeat(300)), ("b", "y")]);
    LargePart { lsn: 10, index: 4, run: 1, table: 3, kind, records }
}

fn large(kind: GroupKind, records: Vec<u8>) -> ShippedGroup {
    ShippedGroup { lsn: 10, kind, parts: vec![records] }
}

fn large_prepare() -> ShippedGroup {
    large(GroupKind::PreparedLarge(2), prepare(10, false).records)
}

fn bodies() -> Vec<(EntryBody, (u64, u64))> {
    let claim = LogClaim { nonce: [7; 16], incarnation: 3, owner: "process 1".into() };
    let table = |id, name: &str| SharedTable { id, name: name.into() };
    let tables = vec![table(3, "a"), table(4, "b")];
    let (manifest, prepares) = (b"manifest".repeat(100), vec![prepare(3, false), prepare(8, true)]);
    vec![
        (EntryBody::Claim(claim), (0, 9)),
        (EntryBody::Tables(tables), (0, 9)),
        (segment(10, 13), (10, 13)),
        (EntryBody::Segment(Vec::new()), (10, 13)),
        (EntryBody::Part(part(PartKind::Written)), (0, 9)),
        (EntryBody::Part(part(PartKind::Prepared)), (0, 9)),
        (EntryBody::Segment(vec![large(GroupKind::Large(2), records(&[]))]), (10, 13)),
        (EntryBody::Segment(vec![large_prepare()]), (10, 13)),
        (EntryBody::Checkpoint(LogCheckpoint { manifest, prepares }), (4, 14)),
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

/// A reader of a checkpoint goes on with an entry of any opening, up to the one behind it.
#[test]
fn a_checkpoint_says_where_its_reader_goes_on() {
    let body = || EntryBody::Checkpoint(LogCheckpoint { manifest: vec![1], prepares: Vec::new() });
    let is_sound = |from| {
        let bytes = entry(5, (body(), (from, 14))).encode().unwrap();
        Entry::decode(&bytes, 5).is_ok()
    };
    let sound: Vec<u64> = (0..9).filter(|from| is_sound(*from)).collect();
    assert_eq!(sound, [1, 2, 3, 4, 5, 6], "of claim 2, as entry 5");
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
fn parts_that_cannot_be_are_refused() {
    let of = |part: LargePart, last| {
        let bytes = entry(5, (EntryBody::Part(part), (0, last))).encode().unwrap();
        Entry::decode(&bytes, 5).is_ok()
    };
    let good = || part(PartKind::Loaded);
    assert!(of(good(), 9));
    assert!(!of(good(), 10), "its commit comes later");
    assert!(!of(LargePart { run: 5, ..good() }, 9), "each run has a part");
    assert!(!of(LargePart { table: 4, ..good() }, 9), "its rows are of its table");
    assert!(!of(LargePart { records: Vec::new(), ..good() }, 9));
    assert!(!of(LargePart { records: records(&[("b", "x"), ("a", "y")]), ..good() }, 9));
    assert!(!of(LargePart { records: records(&[("a", "x"), ("a", "y")]), ..good() }, 9));
    let segment = |groups: Vec<ShippedGroup>| {
        let bytes = entry(5, (EntryBody::Segment(groups), (10, 13))).encode().unwrap();
        Entry::decode(&bytes, 5).is_ok()
    };
    let of_kind = |kind| large(kind, records(&[("a", "b")]));
    assert!(segment(vec![of_kind(GroupKind::Large(1))]));
    assert!(!segment(vec![of_kind(GroupKind::Large(0))]), "it has parts");
    assert!(!segment(vec![of_kind(GroupKind::PreparedLarge(1))]), "it is no prepare");
    let later = ShippedGroup { lsn: 11, ..of_kind(GroupKind::Large(1)) };
    let first = ShippedGroup { kind: GroupKind::Commit, ..of_kind(GroupKind::Commit) };
    assert!(!segment(vec![first, later]), "its parts are right before its entry");
    let behind = ShippedGroup { lsn: 11, kind: GroupKind::Commit, ..of_kind(GroupKind::Commit) };
    let large = of_kind(GroupKind::Large(1));
    assert!(!segment(vec![large, behind]), "a reader's place is behind its entry once it is in");
}

#[test]
fn prepares_out_of_order_or_without_their_rows_are_refused() {
    let of = |prepares: Vec<SharedPrepare>| {
        let checkpoint = LogCheckpoint { manifest: vec![1], prepares };
        let bytes = entry(5, (EntryBody::Checkpoint(checkpoint), (6, 8))).encode().unwrap();
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
        Machine::with(server, files, false)
    }

    fn with(server: &ObjectServer, files: &Arc<SimFiles>, trusts_searches: bool) -> Machine {
        let files = Arc::clone(files) as Arc<dyn Files>;
        let (client, nonce) =
            open_client((server.url(), true), &files, (0, &<_>::default()), None).unwrap();
        let identity = Identity::new(&files, std::path::Path::new("/db"));
        let log = Arc::new(SharedLog::new(client, trusts_searches));
        Machine { log, nonce, identity }
    }

    /// Claims a log that is the directory's own, or empty.
    fn claim(&self) -> crate::base::error::Result<LogWriter> {
        LogWriter::claim(&self.log, &self.identity, (self.nonce, 1), |_| Ok(()))
            .map(|(writer, _)| writer)
    }

    /// Takes a log over, as a reader does that has nothing to apply.
    fn take_over(&self) -> crate::base::error::Result<LogWriter> {
        for _ in 0..CLAIM_TRIES {
            let end = self.log.end()?;
            if end.checkpoint == 0 {
                return Err(self.log.empty(ErrorKind::Invalid));
            }
            if let Some(writer) = LogWriter::claim_at(&self.log, (self.nonce, 1), end)? {
                return Ok(writer);
            }
        }
        Err(self.log.overtaken())
    }
}

fn checkpoint() -> EntryBody {
    EntryBody::Checkpoint(LogCheckpoint { manifest: vec![1], prepares: Vec::new() })
}

/// A log with a checkpoint as entry 2, and its writer.
fn begun(server: &ObjectServer) -> (Machine, LogWriter) {
    let machine = Machine::new(server);
    let mut writer = machine.claim().unwrap();
    writer.append(checkpoint(), (2, 3)).unwrap();
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
    assert!(machine.log.raise_head(LogHead { oldest: 20, checkpoint: 20, cleaned: 0 }).unwrap());
    let gone: Vec<String> = (2..20).map(entry_name).collect();
    machine.log.delete(&gone).unwrap();
    assert_eq!(machine.log.end().unwrap().next, 39);
    assert!(machine.log.is_past(19).unwrap() && !machine.log.is_past(20).unwrap());
    assert!(machine.log.raise_head(LogHead { oldest: 5, checkpoint: 30, cleaned: 0 }).unwrap());
    assert_eq!(machine.log.head().unwrap().0.oldest, 20, "it only moves up");
}

#[test]
fn a_writer_that_was_taken_over_appends_nothing_and_hears_by_whom() {
    let server = ObjectServer::new();
    let (_first, mut old) = begun(&server);
    let second = Machine::new(&server);
    let mut new = second.take_over().unwrap();
    new.append(segment(4, 5), (4, 5)).unwrap();
    let error = old.append(segment(4, 4), (4, 4)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    assert!(error.to_string().contains("incarnation 1"), "{error}");
    // It stays so, also once a collector has deleted all but claims.
    assert!(second.log.raise_head(LogHead { oldest: 4, checkpoint: 4, cleaned: 0 }).unwrap());
    second.log.delete(&[entry_name(2), entry_name(4)]).unwrap();
    assert_eq!(old.settle().unwrap_err().kind(), ErrorKind::Fenced);
}

/// What is read of the entry in the way is for the message alone. Its damage, or a format that this
/// version does not know, became the error of the append: the writer tried again for ever, and its
/// database went on with commits that no store gets. Now the writer is fenced.
#[test]
fn a_claim_that_cannot_be_read_fences_the_writer() {
    let mut at = 0;
    loop {
        let server = ObjectServer::new();
        let (first, mut old) = begun(&server);
        Machine::new(&server).take_over().unwrap();
        let claim = first.log.entry(3).unwrap().unwrap();
        if at == claim.encode().unwrap().len() {
            break;
        }
        server.damage(&entry_name(3), at);
        // The put, the look at what is there, and the read for the message.
        server.plan(server.requests() + 3, StoreFault::Refuse);
        let error = old.append(segment(4, 4), (4, 4)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{at}: {error}");
        let error = old.settle().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced, "{at}: {error}");
        at += 1;
    }
    assert!(at > 40, "{at}");
}

#[test]
fn a_directory_claims_again_what_it_had_and_no_other_does() {
    let (server, files) = (ObjectServer::new(), SimFiles::new());
    let first = Machine::on(&server, &files);
    first.claim().unwrap();
    let early = Machine::new(&server).claim().unwrap_err();
    assert_eq!(early.kind(), ErrorKind::Invalid, "also before a checkpoint");
    first.claim().unwrap().append(checkpoint(), (3, 3)).unwrap();
    Machine::on(&server, &files).claim().unwrap();
    // Bug: it was told to take the other database over "again". Cause: it was taken for one that
    // another machine has taken the store from. Fix: only a directory that had the store is.
    // Bug: one that writes another store was told so too. Cause: it was enough that it ever was a
    // writer. Fix: it knows the entry of its claim, and looks there.
    let elsewhere = SimFiles::new();
    let of_another = Machine::on(&ObjectServer::new(), &elsewhere);
    Machine { nonce: [9; 16], ..of_another }.claim().unwrap();
    for other in [Machine::new(&server), Machine::on(&server, &elsewhere)] {
        let other = other.claim().unwrap_err();
        assert_eq!(other.kind(), ErrorKind::Invalid);
        let text = other.to_string();
        assert!(text.contains("is another database's") && !text.contains("take it over"), "{text}");
    }
}

/// Bug: a directory was fenced out of its own log for good. Cause: an opening forgot a claim of
/// which no answer had come, and which came later. Fix: it claims again under the same number.
#[test]
fn a_directory_knows_a_claim_of_its_own_that_comes_late() {
    let mut twice = 0;
    for (at, delay) in (1..10).flat_map(|at| (0..12).map(move |delay| (at, delay))) {
        for refused in 1..10 {
            let (server, files) = (ObjectServer::new(), SimFiles::new());
            let opening = || Machine::on(&server, &files).claim();
            opening().unwrap().append(checkpoint(), (2, 3)).unwrap();
            let before = server.requests();
            server.plan(before + at, StoreFault::Delay(delay));
            (at + 1..at + 8).for_each(|later| server.plan(before + later, StoreFault::Refuse));
            let first = opening();
            server.forget_plans();
            server.plan(server.requests() + refused, StoreFault::Refuse);
            twice += u32::from(opening().is_err() && first.is_err());
            server.forget_plans();
            let third = opening();
            assert!(third.is_ok(), "{at} late by {delay}, then {refused}: {}", third.unwrap_err());
        }
    }
    assert!(twice > 100, "{twice} openings claimed nothing twice");
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
            let mut new = second.take_over().unwrap();
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

/// A search that began at a head from before a collection meets a hole, and takes it for the end.
/// The head that is read behind it says so, and a search from that one finds the end.
#[test]
fn a_search_that_meets_a_hole_of_the_collector_is_seen() {
    let server = ObjectServer::new();
    let (machine, mut writer) = begun(&server);
    for lsn in 4..11 {
        writer.append(segment(lsn, lsn), (lsn, lsn)).unwrap();
    }
    let log = &machine.log;
    let before = log.head().unwrap().0;
    let from = writer.next();
    let number = writer.append(checkpoint(), (from, 10)).unwrap();
    writer.append(segment(11, 11), (11, 11)).unwrap();
    assert!(log.raise_head(LogHead { oldest: number, checkpoint: number, cleaned: 0 }).unwrap());
    log.delete(&(2..number).map(entry_name).collect::<Vec<_>>()).unwrap();
    let (there, end) = log.search_end(before, 0).unwrap();
    assert!(end.next < number, "it ends in the hole: {end:?}");
    assert!(log.head().unwrap().0.oldest > there, "the head says so");
    assert_eq!(log.end().unwrap().next, writer.next());
}

/// Bug: the writer of a bucket that was put back to an older state was told that it never was its
/// writer: who follows the advice and removes the directory loses commits. Cause: its last claim is
/// not there, as in the store of another database. Fix: a claim behind the end of the log says so.
#[test]
fn a_writer_whose_store_was_put_back_is_told_so() {
    let (server, files) = (ObjectServer::new(), SimFiles::new());
    let opening = |nonce| Machine { nonce: [nonce; 16], ..Machine::on(&server, &files) };
    opening(1).claim().unwrap().append(checkpoint(), (3, 3)).unwrap();
    let claim = opening(2).claim().unwrap().number();
    server.lose(&entry_name(claim));
    let error = opening(3).claim().map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    assert!(error.to_string().contains("put back to an older state"), "{error}");
}

/// Bug: a search for the end of a long log took as many requests as that has entries, over 64.
/// Cause: the distances that double began again at one in each round. Fix: they go on.
#[test]
fn the_end_of_a_long_log_takes_few_requests() {
    let server = ObjectServer::new();
    let (machine, mut writer) = begun(&server);
    for lsn in 4..3000 {
        writer.append(segment(lsn, lsn), (lsn, lsn)).unwrap();
    }
    let before = server.requests();
    assert_eq!(machine.log.end().unwrap().next, writer.next());
    let took = server.requests() - before;
    assert!(took < 60, "{took} requests");
}

/// Bug: a damaged entry in the midst of the log kept it from being opened. Cause: a search for the
/// end reads headers of entries, and the damage of each failed it. Fix: such an entry is there.
/// Damage of the last one alone is told, since that says who writes.
#[test]
fn damage_in_the_midst_keeps_no_search_from_the_end() {
    let server = ObjectServer::new();
    let (machine, mut writer) = begun(&server);
    for lsn in 4..20 {
        writer.append(segment(lsn, lsn), (lsn, lsn)).unwrap();
    }
    let (log, last) = (&machine.log, writer.next() - 1);
    let checkpoint = log.head().unwrap().0.checkpoint;
    for number in checkpoint.max(2)..last {
        server.damage(&entry_name(number), 20);
    }
    assert_eq!(log.end().unwrap(), LogEnd { next: last + 1, ..log.end().unwrap() });
    assert_eq!(log.end().unwrap().last, 19);
    server.damage(&entry_name(last), 20);
    assert_eq!(log.end().unwrap_err().kind(), ErrorKind::Corrupt);
}

/// The names of a register that have a place.
fn places(log: &SharedLog, register: &Register) -> Vec<(String, FollowerPlace)> {
    let registered = log.registered(register).unwrap().into_iter();
    registered.filter_map(|it| Some((it.name, it.place?))).collect()
}

#[test]
fn registered_followers_are_listed_until_they_are_forgotten() {
    let server = ObjectServer::new();
    let log = Machine::new(&server).log;
    let at = |entry, base| FollowerPlace { entry, base, beat: 0 };
    let registered = |log: &SharedLog| places(log, &log.read_register().unwrap().0);
    assert_eq!(registered(&log), []);
    log.register("one", at(7, 0)).unwrap();
    assert_eq!(registered(&log), [], "it has no name in the register yet");
    log.enlist("one").unwrap();
    log.register("two", at(9, 4)).unwrap();
    log.enlist("two").unwrap();
    log.register("one", at(8, 0)).unwrap();
    assert_eq!(registered(&log), [("one".to_string(), at(8, 0)), ("two".to_string(), at(9, 4))]);
    log.unregister("one").unwrap();
    assert_eq!(registered(&log), [("two".to_string(), at(9, 4))]);
    server.damage("shared/followers/two", 17);
    assert_eq!(registered(&log), [], "other bytes hold nothing back");
    for name in ["", "a/b", &"x".repeat(65)] {
        assert_eq!(log.register(name, at(1, 0)).unwrap_err().kind(), ErrorKind::Invalid);
    }
    for fault in [StoreFault::LoseAnswer, StoreFault::Repeat(1), StoreFault::LoseRequest] {
        server.plan(server.requests() + 2, fault);
        log.register("three", at(5, 0)).unwrap();
        log.enlist("three").unwrap();
        server.deliver();
        assert_eq!(registered(&log), [("three".to_string(), at(5, 0))], "{fault:?}");
        log.unregister("three").unwrap();
    }
}

/// Bug: of thirty followers that were opened at once, twenty failed. Cause: each tried to change
/// the register eight times, without a pause, and others came between. Fix: it pauses, and tries
/// longer.
#[test]
fn a_reader_comes_into_a_register_that_others_change() {
    let server = ObjectServer::new();
    let (one, other) = (Machine::new(&server).log, Machine::new(&server).log);
    let (changes, inside) = (AtomicU64::new(0), AtomicBool::new(false));
    server.watch(Some(Box::new(move |_, after| {
        if after || inside.swap(true, Ordering::AcqRel) {
            return;
        }
        let change = changes.fetch_add(1, Ordering::AcqRel);
        if change < 30 {
            other.enlist(&format!("other {change}")).unwrap();
        }
        inside.store(false, Ordering::Release);
    })));
    one.enlist("one").unwrap();
    server.watch(None);
    let names = one.read_register().unwrap().0.names;
    assert!(names.contains_key("one") && names.len() == 31, "{names:?}");
}

/// A list that is as of before the registration lacks the follower. The register has it.
#[test]
fn a_follower_that_an_old_list_lacks_is_registered() {
    let server = ObjectServer::new();
    let log = Machine::new(&server).log;
    let place = FollowerPlace { entry: 7, base: 5, beat: 0 };
    log.register("one", place).unwrap();
    assert_eq!(log.enlist("one").unwrap(), 0);
    server.always(Some(StoreFault::Stale(60)));
    let (register, tag) = log.read_register().unwrap();
    assert_eq!(places(&log, &register), [("one".to_string(), place)]);
    assert_eq!(places(&log, &Register::default()), [], "the list is old");
    assert!(log.replace_register(&Register { kept: 4, ..register.clone() }, tag.clone()).unwrap());
    assert!(!log.replace_register(&Register { kept: 3, ..register }, tag).unwrap(), "it changed");
    assert_eq!(log.enlist("one").unwrap(), 4);
    for fault in [StoreFault::LoseAnswer, StoreFault::Repeat(1), StoreFault::LoseRequest] {
        for n in 1..4 {
            server.always(None);
            server.plan(server.requests() + n, fault);
            assert_eq!(log.enlist("two").unwrap(), 4, "{fault:?} {n}");
            log.unregister("one").unwrap();
            server.deliver();
            let names: Vec<String> = log.read_register().unwrap().0.names.into_keys().collect();
            assert_eq!(names, ["two"], "{fault:?} {n}");
            log.unregister("two").unwrap();
            server.forget_plans();
            log.enlist("one").unwrap();
        }
    }
    server.damage("shared/register", 17);
    assert_eq!(log.read_register().unwrap_err().kind(), ErrorKind::Corrupt);
}

/// The takeover of one machine is paused before request `at`. Meanwhile the writer goes on, makes
/// checkpoints, and deletes all that it may. What is wrong with the claim.
fn claim_with_a_pause(at: u64, trusts_searches: bool) -> Result<(), String> {
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
        let from = writer.next();
        let Ok(number) = writer.append(checkpoint(), (from, last)) else {
            return;
        };
        assert!(
            log.raise_head(LogHead { oldest: number, checkpoint: number, cleaned: 0 }).unwrap()
        );
        let below: Vec<String> = (2..number).map(entry_name).collect();
        log.delete(&below).unwrap();
    })));
    let second = Machine::with(&server, &SimFiles::new(), trusts_searches);
    let claimed = second.take_over();
    server.watch(None);
    let mut new = claimed.map_err(|error| error.to_string())?;
    let end = first.log.end().unwrap();
    if (end.claim, end.next) != (new.number(), new.number() + 1) {
        return Err(format!("the claim is entry {}, and the end {end:?}", new.number()));
    }
    let last = new.last();
    new.append(segment(last + 1, last + 1), (last + 1, last + 1)).unwrap();
    let mut old = writer.lock();
    if old.last() != last {
        return Err(format!("the claim knows {last}, and the writer has {}", old.last()));
    }
    // Where it was paused behind the claim, it has met that already.
    let appended = match old.is_undecided() {
        true => old.settle(),
        false => old.append(segment(last + 1, last + 1), (last + 1, last + 1)).map(drop),
    };
    let error = appended.unwrap_err();
    if error.kind() == ErrorKind::Fenced { Ok(()) } else { Err(error.to_string()) }
}

#[test]
fn a_claim_in_a_hole_of_the_collector_counts_for_nothing() {
    for at in 1..16 {
        assert_eq!(claim_with_a_pause(at, false), Ok(()), "paused at {at}");
    }
}

#[test]
fn claims_of_a_directory_survive_and_torn_ones_are_damage() {
    let files = SimFiles::new();
    let identity = Identity::new(&(Arc::clone(&files) as _), std::path::Path::new("/db"));
    assert!(!identity.load().unwrap().has([0; 16]), "no claim has the number 0");
    identity.store_claimed(([3; 16], 5), 0).unwrap();
    assert!(identity.load().unwrap().has([3; 16]));
    files.corrupt(std::path::Path::new("/db/shared"), 20, 1);
    assert_eq!(identity.load().unwrap_err().kind(), ErrorKind::Corrupt);
    // As an earlier version wrote it, and cut.
    let body = [[3; 16], [4; 16]].concat();
    let sum = crate::base::record::checksum(&[], &body).to_le_bytes();
    let before = [b"TERRNODE", &sum[..], &body].concat();
    let nonces = Nonces { claimed: [3; 16], intended: [4; 16], taken_at: 0, number: 0 };
    assert_eq!(Nonces::decode(&before), Some(nonces));
    assert_eq!(Nonces::decode(&before[..40]), None);
    let now = Nonces { taken_at: 6, number: 7, ..nonces };
    assert_eq!(Nonces::decode(&now.encode()), Some(now));
}

/// The planted bug `TrustSearches`: a takeover that is paused behind its look at the head takes a
/// hole for the end of the log, and finds no checkpoint before it.
#[test]
fn a_search_that_trusts_a_hole_is_found() {
    let wrong = (1..16).find_map(|at| claim_with_a_pause(at, true).err());
    let wrong = wrong.expect("the planted bug was not found");
    assert!(wrong.contains("no shared database"), "{wrong}");
}

/// Bug: a writer that was taken over put a commit in the place of a claim that counted, and told it
/// as safe. Cause: a machine that stood still behind its claim, while another one went on, took the
/// claim for void and deleted it. Fix: who claims deletes nothing.
#[test]
fn a_claim_that_counts_stays_though_its_machine_stood_still() {
    let server = ObjectServer::new();
    let (first, mut old) = begun(&server);
    let (second, third) = (Machine::new(&server), Machine::new(&server));
    let end = second.log.end().unwrap();
    // Behind the put of the claim, before the look at the head.
    let claim = server.requests() + 1;
    server.watch(Some(Box::new(move |number, after| {
        if after && number == claim {
            go_on_behind(&third);
        }
    })));
    let claimed = LogWriter::claim_at(&second.log, (second.nonce, 1), end).unwrap();
    server.watch(None);
    assert!(claimed.is_none(), "another one has gone on");
    assert!(first.log.is_past(3).unwrap());
    let error = old.append(segment(4, 4), (4, 4)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
}

/// A machine takes over, and deletes all that two checkpoints allow.
fn go_on_behind(machine: &Machine) {
    let mut writer = machine.take_over().unwrap();
    let number = (0..2).map(|_| writer.append(checkpoint(), (writer.next(), 3)).unwrap()).last();
    let number = number.unwrap();
    assert!(
        machine.log.raise_head(LogHead { oldest: number, checkpoint: number, cleaned: 0 }).unwrap()
    );
    machine.log.delete(&[entry_name(2)]).unwrap();
}

/// Pieces of data of one length each, with names, as a checkpoint has them.
fn pieces(count: u32) -> Vec<(String, Vec<u8>)> {
    let piece = |n: u32| (shared_name(1, n), n.to_le_bytes().repeat(100 + n as usize));
    (0..count).map(piece).collect()
}

fn send_all(
    log: &SharedLog,
    pieces: &[(String, Vec<u8>)],
) -> (crate::base::error::Result<()>, Vec<u32>) {
    let mut sends = Sends::new(&log.client, (&Arc::default(), u64::MAX));
    let mut all = (0..).zip(pieces);
    let sent = all
        .try_for_each(|(n, (name, bytes))| sends.send((n, name.clone()), bytes.clone(), |_, _| ()));
    let sent = sent.and_then(|()| sends.finish(|_, _| ()));
    (sent, sends.into_unsent().collect())
}

fn fetch_all(
    log: &SharedLog,
    pieces: &[(String, Vec<u8>)],
) -> crate::base::error::Result<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    let wanted = pieces.iter().map(|(name, bytes)| (name.clone(), bytes.len() as u32));
    fetch_objects(&log.client, wanted, (&Arc::default(), u64::MAX), |bytes| {
        found.push(bytes);
        Ok(())
    })?;
    Ok(found)
}

/// One request after the other would wait 64 times.
#[test]
fn data_of_a_far_store_moves_side_by_side() {
    let server = ObjectServer::new();
    let (log, all) = (Machine::new(&server).log, pieces(64));
    let ((sent, unsent), sends) = server.in_rounds(|| send_all(&log, &all));
    sent.unwrap();
    assert_eq!(unsent, [0; 0]);
    let (found, fetches) = server.in_rounds(|| fetch_all(&log, &all).unwrap());
    assert!(found.iter().eq(all.iter().map(|(_, bytes)| bytes)), "in their order");
    for rounds in [sends, fetches] {
        assert!((1..32).contains(&rounds.waits), "{rounds:?}");
    }
}

/// Bug: a job that read ahead in a store, pieces of a checkpoint or entries of the log, held up to
/// 32 MiB that no gauge counted, whatever the memory limit. Cause: what is fetched had a bound of
/// its own. Fix: it counts with what jobs send, within the same bound.
#[test]
fn what_is_fetched_is_counted_and_has_the_bound_of_the_limit() {
    let server = ObjectServer::new();
    let (log, all) = (Machine::new(&server).log, pieces(64));
    send_all(&log, &all).0.unwrap();
    let largest = all.iter().map(|(_, bytes)| bytes.len() as u64).max().unwrap();
    for most in [1, largest, 3 * largest, u64::MAX] {
        let (gauge, mut held) = (Arc::new(Gauge::default()), 0);
        let wanted = all.iter().map(|(name, bytes)| (name.clone(), bytes.len() as u32));
        let take = |bytes: Vec<u8>| {
            assert!(gauge.bytes() >= bytes.len() as u64, "what is handed over counts still");
            held = held.max(gauge.bytes());
            Ok(())
        };
        fetch_objects(&log.client, wanted, (&gauge, most), take).unwrap();
        // One alone may be more, and the one that is handed over is beside the next.
        assert!(held <= most.saturating_add(largest), "{held} of {most}");
        assert_eq!(held > 2 * largest, most > 2 * largest, "{held} of {most}");
        assert_eq!(gauge.bytes(), 0);
    }
    let (first, mut writer) = begun(&server);
    for lsn in 4..44 {
        writer.append(segment(lsn, lsn), (lsn, lsn)).unwrap();
    }
    let gauge = Arc::new(Gauge::default());
    let mut reads = EntryReads::new(&first.log, (3, writer.next()), (&gauge, 10 << 20));
    assert!(matches!(reads.next(3).unwrap(), NextEntry::There(_)));
    let listed = first.log.listed((PREFIX, &entry_name(3)), Some(&entry_name(10))).unwrap();
    let left = listed.iter().filter(|info| info.name <= entry_name(10));
    assert_eq!(gauge.bytes(), left.map(|info| info.len).sum::<u64>(), "seven of eight are left");
    drop(reads);
    assert_eq!(gauge.bytes(), 0);
}

/// Bug: under a small memory limit a takeover read the entries of the log one after the other,
/// however small they were. Cause: each was taken for a full segment. Fix: a list tells how large
/// they are. One that no list shows is taken for a full segment still.
#[test]
fn small_entries_are_read_side_by_side_under_a_small_limit() {
    let server = ObjectServer::new();
    let (first, mut writer) = begun(&server);
    for lsn in 4..44 {
        writer.append(segment(lsn, lsn), (lsn, lsn)).unwrap();
    }
    for most in [1 << 20, 5 << 20, MOST_SENT] {
        let gauge = Arc::new(Gauge::default());
        let ((), rounds) = server.in_rounds(|| {
            let within = (&gauge, most);
            let mut reads = EntryReads::new(&first.log, (3, writer.next()), within);
            for number in 3..writer.next() {
                assert!(matches!(reads.next(number).unwrap(), NextEntry::There(_)), "{number}");
            }
        });
        assert!(rounds.waits < 30, "{rounds:?} with {most} bytes");
    }
    server.always(Some(StoreFault::Stale(60)));
    let gauge = Arc::new(Gauge::default());
    let within = (&gauge, 5 << 20);
    let mut reads = EntryReads::new(&first.log, (3, writer.next()), within);
    assert!(matches!(reads.next(3).unwrap(), NextEntry::There(_)));
    server.always(None);
    assert!(gauge.bytes() <= 5 << 20, "{}", gauge.bytes());
}

/// Bug: under a small memory limit a takeover had the names of all entries in memory that it was to
/// read, and asked for all of them before it read one. Cause: their lengths were listed at once.
/// Fix: a page is listed when the reads come past the one before.
#[test]
fn lengths_of_entries_are_listed_a_page_at_a_time() {
    let server = ObjectServer::new();
    let (first, mut writer) = begun(&server);
    while writer.next() < 2 * PAGE as u64 + 10 {
        let lsn = writer.next() + 1;
        writer.append(segment(lsn, lsn), (lsn, lsn)).unwrap();
    }
    let gauge = Arc::new(Gauge::default());
    let lists = server.asked("").lists;
    let mut reads = EntryReads::new(&first.log, (3, writer.next()), (&gauge, 1 << 20));
    for number in 3..writer.next() {
        assert!(matches!(reads.next(number).unwrap(), NextEntry::There(_)), "{number}");
        // Eight are under way, and the length of the next one was looked for.
        let begun = (number + 8).min(writer.next() - 1);
        let pages = [3, 3 + PAGE as u64, 3 + 2 * PAGE as u64].iter().filter(|it| **it <= begun);
        assert_eq!(server.asked("").lists - lists, pages.count() as u64, "{number}");
    }
    assert_eq!(server.asked("").lists - lists, 3);
}

#[test]
fn data_moves_whatever_becomes_of_a_request() {
    let all = pieces(20);
    for at in 1..=20 {
        for fault in [
            StoreFault::LoseRequest,
            StoreFault::LoseAnswer,
            StoreFault::Delay(3),
            StoreFault::Repeat(2),
            StoreFault::Throttle,
        ] {
            let server = ObjectServer::new();
            let log = Machine::new(&server).log;
            server.plan(at, fault);
            let (sent, unsent) = send_all(&log, &all);
            sent.unwrap();
            assert_eq!(unsent, [0; 0]);
            server.deliver();
            server.plan(server.requests() + at, fault);
            let found = fetch_all(&log, &all).unwrap();
            assert!(found.iter().eq(all.iter().map(|(_, bytes)| bytes)), "{fault:?} at {at}");
        }
    }
}

/// A failure names its object, and counts every piece as unsent that the store may lack.
#[test]
fn a_failure_names_its_object_and_what_is_not_sent() {
    let all = pieces(20);
    for at in 1..=20 {
        let server = ObjectServer::new();
        let log = Machine::new(&server).log;
        server.plan(at, StoreFault::Refuse);
        let (sent, unsent) = send_all(&log, &all);
        let (error, failed) = (sent.unwrap_err(), (at - 1) as u32);
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains(&all[failed as usize].0), "{error}");
        assert!(unsent.contains(&failed), "{unsent:?}");
        let there = server.names();
        let is_known = |n: u32| there.contains(&all[n as usize].0) || unsent.contains(&n);
        let begun = (unsent.iter().max().unwrap() + 1).max(failed + 1);
        assert!((0..begun).all(is_known), "{unsent:?} {there:?}");

        let server = ObjectServer::new();
        let log = Machine::new(&server).log;
        send_all(&log, &all).0.unwrap();
        server.lose(&all[failed as usize].0);
        let error = fetch_all(&log, &all).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains(&all[failed as usize].0), "{error}");
        let mut longer = all.clone();
        longer[3].1.push(0);
        server.place(&all[failed as usize].0);
        let error = fetch_all(&log, &longer).unwrap_err();
        assert!(error.to_string().contains(&all[failed.min(3) as usize].0), "{error}");
    }
}

/// A takeover reads the entries before its claim ahead, in their order, and sees what was deleted.
#[test]
fn entries_that_are_read_ahead_come_in_their_order() {
    let server = ObjectServer::new();
    let (first, mut writer) = begun(&server);
    for lsn in 4..44 {
        writer.append(segment(lsn, lsn), (lsn, lsn)).unwrap();
    }
    let log = Machine::new(&server).log;
    let mut reads = EntryReads::new(&log, (3, writer.next()), (&Arc::default(), u64::MAX));
    let ((), rounds) = server.in_rounds(|| {
        for number in 3..writer.next() {
            let NextEntry::There(entry) = reads.next(number).unwrap() else { panic!("{number}") };
            assert_eq!((entry.number, entry.first), (number, number + 1));
        }
        assert!(matches!(reads.next(writer.next()).unwrap(), NextEntry::Absent), "the end");
    });
    assert!(rounds.waits < 30, "{rounds:?}");
    assert!(first.log.raise_head(LogHead { oldest: 20, checkpoint: 20, cleaned: 0 }).unwrap());
    first.log.delete(&(10..20).map(entry_name).collect::<Vec<_>>()).unwrap();
    let mut reads = EntryReads::new(&first.log, (9, writer.next()), (&Arc::default(), u64::MAX));
    assert!(matches!(reads.next(9).unwrap(), NextEntry::There(_)));
    assert!(matches!(reads.next(10).unwrap(), NextEntry::Deleted));
    server.lose(&entry_name(30));
    let mut reads = EntryReads::new(&first.log, (30, writer.next()), (&Arc::default(), u64::MAX));
    assert!(matches!(reads.next(30).unwrap(), NextEntry::Absent), "lost, and not deleted");
}
