//! Which pieces the collector leaves: each rule by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::registration::Registration;
use super::*;
use crate::os::Files;
use crate::replication::log::{
    Entry, EntryBody, LogCheckpoint, LogClaim, READS_AT_ONCE, entry_name,
};
use crate::storage::object_testing::{ObjectServer, StoreFault};
use crate::storage::{open_client, shared_name};
use terrace_testkit::SimFiles;

/// The claim of the writer.
const OWN: u64 = 8;

/// A store with pieces of earlier claims, of the writer's, and of a later one.
fn begun() -> (ObjectServer, SharedLog) {
    let server = ObjectServer::new();
    for claim in [3, OWN, 12] {
        (0..9).for_each(|piece| server.place(&shared_name(claim, piece)));
    }
    let files = SimFiles::new() as Arc<dyn Files>;
    let (client, _) =
        open_client((server.url(), true), &files, (0, &<_>::default()), None).unwrap();
    (server, SharedLog::new(client, false))
}

fn kept(before: u64) -> Kept {
    Kept::new(OWN, (before, None), (false, Duration::ZERO), 0)
}

/// What an opening keeps, with the claim before it.
fn following(claim: u64, claim_before: u64, before: (u64, Option<BTreeSet<PieceId>>)) -> Kept {
    let kept = Kept::new(claim, before, (false, Duration::ZERO), 0);
    kept.behind(claim_before, &Arc::default(), &Arc::default())
}

fn made(number: u64, pieces: BTreeSet<PieceId>, pending: u32) -> MadeCheckpoint {
    MadeCheckpoint { number, from: number, pieces, pending }
}

fn names(claim: u64, pieces: &[u32]) -> BTreeSet<PieceId> {
    pieces.iter().map(|piece| (claim, *piece)).collect()
}

fn no_piece() -> BTreeSet<PieceId> {
    BTreeSet::new()
}

/// Registers a follower as its opening does.
fn enter(log: &SharedLog, name: &str, place: FollowerPlace) {
    log.register(name, place).unwrap();
    log.enlist(name).unwrap();
}

/// The pieces of a claim that are left.
fn left(server: &ObjectServer, claim: u64) -> Vec<u32> {
    let pieces = server.names().into_iter().filter_map(|name| data_number(&name));
    pieces.filter(|(of, _)| *of == claim).map(|(_, piece)| piece).collect()
}

const ALL: [u32; 9] = [0, 1, 2, 3, 4, 5, 6, 7, 8];

/// Of its own claim and earlier ones, what neither of the last two checkpoints names goes. What is
/// newer than the newest one stays, and so does what a later claim has.
#[test]
fn the_last_two_checkpoints_are_kept() {
    let (server, log) = begun();
    let mut kept = kept(0);
    kept.add(made(10, names(OWN, &[0, 1]), 2));
    kept.collect(&log, &no_piece).unwrap();
    assert_eq!(left(&server, OWN), ALL);
    assert!(left(&server, 3).is_empty());
    kept.add(made(11, names(OWN, &[1, 2]), 3));
    kept.collect(&log, &no_piece).unwrap();
    assert_eq!(left(&server, OWN), ALL);
    kept.add(made(12, names(OWN, &[2, 3]), 5));
    kept.collect(&log, &no_piece).unwrap();
    assert_eq!(left(&server, OWN), [1, 2, 3, 5, 6, 7, 8]);
    assert_eq!(left(&server, 12), ALL);
}

#[test]
fn what_this_machine_reads_is_kept() {
    let (server, log) = begun();
    let mut kept = kept(0);
    (10..13).for_each(|number| kept.add(made(number, names(3, &[1]), 9)));
    kept.collect(&log, &|| BTreeSet::from([(3, 4), (OWN, 7)])).unwrap();
    assert_eq!((left(&server, 3), left(&server, OWN)), (vec![1, 4], vec![7]));
}

/// What a checkpoint of an earlier opening names is not known.
#[test]
fn all_is_kept_while_a_checkpoint_of_an_earlier_opening_is() {
    let (server, log) = begun();
    let mut kept = kept(6);
    kept.add(made(10, names(OWN, &[0]), 9));
    kept.collect(&log, &no_piece).unwrap();
    assert_eq!((left(&server, 3), left(&server, OWN)), (ALL.to_vec(), ALL.to_vec()));
    kept.add(made(11, names(OWN, &[1]), 9));
    kept.collect(&log, &no_piece).unwrap();
    assert_eq!((left(&server, 3), left(&server, OWN)), (Vec::new(), vec![0, 1]));
}

/// Bug: what a writer left that died while it made a checkpoint or collected stayed, where each
/// opening made one checkpoint at most. Cause: a collection came after a checkpoint alone, and no
/// data went before the second one. Fix: an opening begins one, and knows what the last checkpoint
/// names.
#[test]
fn what_an_earlier_opening_left_goes_with_the_first_checkpoint() {
    for (base, goes) in [(0, true), (11, true), (10, false), (4, false)] {
        let (server, log) = begun();
        (9..13).for_each(|number| server.place(&entry_name(number)));
        assert!(log.raise_head(LogHead { oldest: 11, checkpoint: 11, cleaned: 0 }).unwrap());
        if base > 0 {
            enter(&log, "reader", FollowerPlace { entry: 40, base, beat: 0 });
        }
        let before = (11, Some(names(3, &[1, 2])));
        let mut kept = Kept::new(OWN, before, (false, Duration::ZERO), 0);
        kept.collect(&log, &no_piece).unwrap();
        let is_there = |number| server.names().contains(&entry_name(number));
        assert_eq!([9, 10, 11, 12].map(is_there), [false, false, true, true]);
        assert_eq!((left(&server, 3), left(&server, OWN)), (ALL.to_vec(), ALL.to_vec()));
        kept.add(made(20, names(OWN, &[0, 5]), 6));
        kept.collect(&log, &no_piece).unwrap();
        let expected = match goes {
            true => (vec![1, 2], vec![0, 5, 6, 7, 8]),
            false => (ALL.to_vec(), ALL.to_vec()),
        };
        assert_eq!((left(&server, 3), left(&server, OWN)), expected, "a reader of {base}");
    }
}

/// What followers read is kept, up to the sixteenth checkpoint. Of those that read nothing of the
/// store no data is.
#[test]
fn what_followers_read_is_kept() {
    let (server, log) = begun();
    let mut kept = kept(0);
    for (number, piece) in (10..13).zip(0..) {
        kept.add(made(number, names(OWN, &[piece]), piece + 1));
    }
    enter(&log, "all", FollowerPlace { entry: 10, base: 0, beat: 0 });
    enter(&log, "one", FollowerPlace { entry: 40, base: 11, beat: 0 });
    enter(&log, "two", FollowerPlace { entry: 40, base: 12, beat: 0 });
    for (number, piece) in (13..27).zip(3..) {
        kept.add(made(number, names(OWN, &[piece]), piece + 1));
        kept.collect(&log, &no_piece).unwrap();
        assert_eq!(left(&server, OWN), ALL[1..], "{number}");
    }
    kept.add(made(27, names(OWN, &[7]), 9));
    kept.collect(&log, &no_piece).unwrap();
    assert_eq!(left(&server, OWN), ALL[2..], "sixteen are kept");
    log.unregister("one").unwrap();
    log.unregister("two").unwrap();
    kept.add(made(28, names(OWN, &[8]), 9));
    kept.collect(&log, &no_piece).unwrap();
    assert_eq!(left(&server, OWN), [7, 8]);
}

/// A follower reads what an earlier opening has checkpointed. It is not known, until there are
/// sixteen newer ones than it reads: 6 is one.
#[test]
fn what_followers_read_of_an_earlier_opening_is_kept() {
    let (server, log) = begun();
    let mut kept = kept(6);
    enter(&log, "one", FollowerPlace { entry: 40, base: 4, beat: 0 });
    for number in 10..24 {
        kept.add(made(number, names(OWN, &[1]), 9));
        kept.collect(&log, &no_piece).unwrap();
        assert_eq!((left(&server, 3), left(&server, OWN)), (ALL.to_vec(), ALL.to_vec()));
    }
    kept.add(made(24, names(OWN, &[1]), 9));
    kept.collect(&log, &no_piece).unwrap();
    assert_eq!((left(&server, 3), left(&server, OWN)), (Vec::new(), vec![1]));
}

/// A follower that was forgotten registers again at each request of a collection. What it reads is
/// there, or it is told that it may be deleted.
#[test]
fn a_follower_that_comes_back_is_told_what_is_kept() {
    let (mut told, mut kept_for_it) = (0, 0);
    for at in 0.. {
        let (server, log) = begun();
        let mut kept = kept(0);
        for (number, piece) in (10..13).zip(0..) {
            kept.add(made(number, names(OWN, &[piece]), piece + 1));
        }
        let files = SimFiles::new() as Arc<dyn Files>;
        let (client, _) =
            open_client((server.url(), true), &files, (0, &<_>::default()), None).unwrap();
        let (other, came) = (SharedLog::new(client, false), AtomicU64::new(0));
        let found = Arc::new(AtomicU64::new(u64::MAX));
        let into = Arc::clone(&found);
        server.watch(Some(Box::new(move |_, after| {
            if !after && came.fetch_add(1, Ordering::Relaxed) == at {
                other.register("back", FollowerPlace { entry: 40, base: 10, beat: 0 }).unwrap();
                into.store(other.enlist("back").unwrap(), Ordering::Relaxed);
            }
        })));
        kept.collect(&log, &no_piece).unwrap();
        server.watch(None);
        match found.load(Ordering::Relaxed) {
            u64::MAX => break,
            0 => kept_for_it += 1,
            oldest => {
                assert_eq!(oldest, 11, "{at}");
                told += 1;
                continue;
            }
        }
        kept.add(made(13, names(OWN, &[3]), 4));
        kept.collect(&log, &no_piece).unwrap();
        assert!(left(&server, OWN).contains(&0), "{at}: what it reads is gone");
    }
    assert!(told > 0 && kept_for_it > 2, "{told} {kept_for_it}");
}

/// A reader that starts copied what no registration spoke of, and then read entries that were not
/// kept, since a copy takes longer than a busy writer's next checkpoints. What it needs stays as
/// long as it gives signs. One that died is forgotten after sixteen checkpoints.
#[test]
fn a_reader_that_starts_holds_back_all_as_long_as_it_is_alive() {
    let (server, log) = begun();
    let mut kept = kept(0);
    let starts = |beat| FollowerPlace { entry: 10, base: 10, beat };
    kept.add(made(10, names(OWN, &[0]), 1));
    log.register("starting-a", starts(1)).unwrap();
    log.enlist("starting-a").unwrap();
    let mut make = |number: u64, live: LivePieces<'_>| {
        server.place(&crate::replication::log::entry_name(number));
        kept.add(made(number, names(OWN, &[(number % 7) as u32 + 1]), 9));
        kept.collect(&log, live).unwrap();
        assert_eq!(left(&server, OWN).contains(&0), log.read_register().unwrap().0.kept <= 10);
        left(&server, OWN).contains(&0)
    };
    for number in 11..60 {
        if number % 10 == 0 {
            log.register("starting-a", starts(number)).unwrap();
        }
        assert!(make(number, &no_piece), "{number}: it was alive lately");
        assert!(log.entry(11).is_err(), "{number}: the entry behind its own is there");
    }
    // The last sign came before checkpoint 50.
    let silent = (60..70).find(|number| !make(*number, &no_piece));
    assert_eq!(silent, Some(67), "counted from the collection behind the one that read it");
    assert_eq!(log.registered(&log.read_register().unwrap().0).unwrap(), [], "it is forgotten");
}

/// Puts entries of one opening: its claim, a checkpoint, and one behind that. The checkpoint before
/// is named by the first.
fn append_opening(log: &SharedLog, claim: u64, before: u64) {
    for (number, checkpoint) in [(claim, before), (claim + 1, claim + 1), (claim + 2, claim + 1)] {
        let body = match number - claim {
            0 => {
                EntryBody::Claim(LogClaim { nonce: [1; 16], incarnation: 1, owner: String::new() })
            }
            1 => {
                EntryBody::Checkpoint(LogCheckpoint { manifest: Vec::new(), prepares: Vec::new() })
            }
            _ => EntryBody::Tables(Vec::new()),
        };
        let first = if number == checkpoint { number } else { 0 };
        let entry = Entry { number, claim, checkpoint, first, last: number, body };
        log.append(number, &entry.encode().unwrap().into()).unwrap();
    }
}

/// Bug: a reader that died while it started held all entries and data for good, where openings were
/// short, and so did the data of a follower that was gone. Cause: each opening counted checkpoints
/// anew. Fix: the register says when a collector knew the last sign, and a reader of a checkpoint
/// that is older than the sixteenth of the log holds no data.
#[test]
fn readers_that_are_gone_hold_nothing_also_where_openings_are_short() {
    for (name, beat) in [("starting-a", 5), ("reports", 5), ("reports", 0)] {
        let (server, log) = begun();
        enter(&log, name, FollowerPlace { entry: 20, base: 20, beat });
        let (mut before, mut entries, mut pieces) = ((20, Some(names(3, &[1]))), None, None);
        append_opening(&log, 19, 0);
        for opening in 1..40 {
            let claim = 19 + 3 * opening;
            append_opening(&log, claim, before.0);
            let mut kept = following(claim, claim - 3, before);
            kept.collect(&log, &no_piece).unwrap();
            kept.add(made(claim + 1, names(claim, &[1]), 9));
            kept.collect(&log, &no_piece).unwrap();
            before = (claim + 1, Some(names(claim, &[1])));
            let oldest = log.head().unwrap().0.oldest;
            entries = entries.or((oldest > 21).then_some(opening));
            pieces = pieces.or(left(&server, 3).is_empty().then_some(opening));
        }
        // The second collection has known the sign: with the checkpoint of the first opening.
        let expected = if beat > 0 { 17 } else { 16 };
        assert_eq!((entries, pieces), (Some(17), Some(expected)), "{name} {beat}");
        let registered = log.read_register().unwrap().0.names;
        assert_eq!(registered.contains_key(name), name == "reports");
        let (head, _) = log.head().unwrap();
        assert!(head.cleaned > head.oldest - 6, "few entries are looked at again: {head:?}");
    }
}

/// Bug: a follower that was away was held back for eight checkpoints, not sixteen. Cause: a first
/// collection of which a request failed had taken note of a part of the earlier checkpoints, and
/// the next one did again. Fix: it takes note of all of them or of none.
#[test]
fn a_first_collection_that_fails_counts_no_checkpoint_twice() {
    for at in 1..60 {
        let (server, log) = begun();
        enter(&log, "reports", FollowerPlace { entry: 20, base: 20, beat: 0 });
        let mut before = 0;
        for opening in 0..14 {
            append_opening(&log, 19 + 3 * opening, before);
            before = 20 + 3 * opening;
        }
        let own = before + 2;
        let known = Some(names(3, &[1]));
        let mut kept = Kept::new(own, (before, known), (false, Duration::ZERO), 0);
        server.plan(server.requests() + at, StoreFault::Refuse);
        let failed = kept.collect(&log, &no_piece).is_err();
        server.forget_plans();
        kept.is_due = true;
        kept.collect(&log, &no_piece).unwrap();
        assert_eq!((kept.newest.len(), kept.marks.len()), (14, 14), "request {at}");
        assert_eq!(log.head().unwrap().0.oldest, 21, "request {at}");
        assert_eq!(left(&server, 3), ALL, "request {at}");
        if !failed {
            assert!(at > 30, "{at} requests");
            return;
        }
    }
    panic!("no collection succeeded");
}

/// A reader that starts, where openings are short, and gives a sign in each of them.
#[test]
fn readers_that_are_alive_hold_all_also_where_openings_are_short() {
    let (server, log) = begun();
    let mut before = (20, Some(names(3, &[1])));
    append_opening(&log, 19, 0);
    for opening in 1..60 {
        let beat = 1 + opening / 10;
        enter(&log, "starting-a", FollowerPlace { entry: 20, base: 20, beat });
        let claim = 19 + 3 * opening;
        append_opening(&log, claim, before.0);
        let mut kept = following(claim, claim - 3, before);
        kept.collect(&log, &no_piece).unwrap();
        kept.add(made(claim + 1, names(claim, &[1]), 9));
        kept.collect(&log, &no_piece).unwrap();
        before = (claim + 1, Some(names(claim, &[1])));
        assert_eq!(log.head().unwrap().0.oldest, if opening == 1 { 20 } else { 21 });
        assert_eq!(left(&server, 3), [1], "what it reads");
    }
}

/// A writer that was taken over collects late: it has read a sign that came beside the new
/// writer's checkpoints. That counts from the new writer's on, which changes the register first.
///
/// Bug: a takeover that had confirmed was taken for dead at once. Cause: a writer between the two
/// had never changed the register, so the last one went on with what the first had read late. Fix:
/// each begins with a change of the register, and goes on with what the one before it has read.
#[test]
fn signs_that_a_taken_over_writer_has_read_late_count_from_now_on() {
    for (between, own) in [(None, 30), (Some(6), 2), (Some(6), 0)] {
        let (server, log) = begun();
        let mut old = following(4, 0, (2, Some(names(3, &[1]))));
        let (claim_before, before) = between.map_or((4, 2), |claim| (claim, 39));
        let mut new = following(OWN, claim_before, (before, Some(names(3, &[1]))));
        (40..40 + own).for_each(|number| new.add(made(number, names(OWN, &[0]), 9)));
        enter(&log, "takeover-a", FollowerPlace { entry: before, base: before, beat: 7 });
        for _ in 0..2 {
            old.is_due = true;
            old.collect(&log, &no_piece).unwrap();
        }
        let seen = log.read_register().unwrap().0;
        assert_eq!(
            (seen.claim, seen.names["takeover-a"]),
            (4, SignSeen { beat: 7, checkpoint: 2 })
        );
        new.collect(&log, &no_piece).unwrap();
        assert!(left(&server, 3).contains(&1), "it was alive lately");
        old.is_due = true;
        old.collect(&log, &no_piece).unwrap();
        let seen = log.read_register().unwrap().0;
        let case = format!("{between:?} {own}");
        let anew = SignSeen { beat: 7, checkpoint: 0 };
        assert_eq!((seen.claim, seen.names["takeover-a"]), (OWN, anew), "{case}");
    }
}

/// A collection that was begun before the closing ends soon.
#[test]
fn a_closing_ends_a_collection_after_a_while() {
    let (server, log) = begun();
    let closing = Arc::<OnceLock<Instant>>::default();
    let mut kept = kept(0).behind(0, &Arc::default(), &closing);
    (10..13).for_each(|number| kept.add(made(number, names(OWN, &[1]), 9)));
    closing.set(time::now() - CLOSING).unwrap();
    let before = server.requests();
    assert_eq!(kept.collect(&log, &no_piece).unwrap_err().kind(), ErrorKind::Closed);
    assert!(server.requests() - before < 3);
}

/// What a takeover has registered holds an earlier writer back: that one may have been paused in
/// the middle of a collection, and it leaves its last two checkpoints alone by itself. So the
/// registration stays as long as data of that writer is read.
#[test]
fn a_takeover_stays_registered_while_it_reads_what_an_earlier_writer_sent() {
    let (_server, log) = begun();
    let mut kept = kept(0);
    log.register("takeover-a", FollowerPlace { entry: 5, base: 4, beat: 3 }).unwrap();
    log.enlist("takeover-a").unwrap();
    let registered = || log.registered(&log.read_register().unwrap().0).unwrap().len();
    let mut make = |number, live: LivePieces<'_>| {
        kept.add(made(number, names(OWN, &[1]), 9));
        kept.collect(&log, live).unwrap();
    };
    (10..40).for_each(|number| make(number, &|| BTreeSet::from([(3, 4)])));
    assert_eq!(registered(), 1);
    // Bug: it held sixteen checkpoints for good. Cause: a reader that is silent is bounded by so
    // many. Fix: one of a takeover holds none.
    let oldest = log.head().unwrap().0.oldest;
    assert_eq!(oldest, 38, "the last two are kept");
    make(40, &no_piece);
    assert_eq!(registered(), 0);
}

/// Bug: a takeover that had stood still claimed the log though the collector had deleted what it
/// reads. Cause: the collector had taken it for dead before it gave its next sign, and deleted
/// after that. Fix: the collector says what it keeps, looks for a sign, and deletes then. So
/// either it finds the sign, or the reader finds that its data is not kept.
#[test]
fn a_sign_of_life_beside_each_request_of_a_collection_counts_or_is_refused() {
    let (mut told, mut kept_for_it) = (0, 0);
    for at in 0.. {
        let (server, log) = begun();
        let mut kept = kept(0);
        kept.add(made(10, names(OWN, &[0]), 1));
        log.register("takeover-a", FollowerPlace { entry: 10, base: 10, beat: 1 }).unwrap();
        log.enlist("takeover-a").unwrap();
        for number in 11..26 {
            kept.add(made(number, names(OWN, &[(number % 7) as u32 + 1]), 9));
            kept.collect(&log, &no_piece).unwrap();
        }
        assert!(left(&server, OWN).contains(&0), "fewer than sixteen checkpoints since its sign");
        (26..29).for_each(|number| kept.add(made(number, names(OWN, &[8]), 9)));
        let files = SimFiles::new() as Arc<dyn Files>;
        let (client, _) =
            open_client((server.url(), true), &files, (0, &<_>::default()), None).unwrap();
        let (other, came) = (SharedLog::new(client, false), AtomicU64::new(0));
        let found = Arc::new(AtomicU64::new(u64::MAX));
        let into = Arc::clone(&found);
        server.watch(Some(Box::new(move |_, after| {
            if !after && came.fetch_add(1, Ordering::Relaxed) == at {
                let place = FollowerPlace { entry: 28, base: 10, beat: 2 };
                other.register("takeover-a", place).unwrap();
                into.store(other.enlist("takeover-a").unwrap(), Ordering::Relaxed);
            }
        })));
        kept.collect(&log, &no_piece).unwrap();
        server.watch(None);
        match found.load(Ordering::Relaxed) {
            u64::MAX => break,
            oldest if oldest > 10 => told += 1,
            _ => {
                kept_for_it += 1;
                // It claims the log. What the writer does yet deletes nothing of it.
                kept.add(made(29, names(OWN, &[8]), 9));
                kept.collect(&log, &no_piece).unwrap();
                assert!(left(&server, OWN).contains(&0), "{at}: what it reads is gone");
            }
        }
    }
    assert!(told > 2 && kept_for_it > 2, "{told} {kept_for_it}");
}

/// Bug: a reader that had just given a sign was taken for dead, and its data was deleted. Cause: a
/// collection that took long counted the checkpoints from its own beginning on, also those that
/// came before the sign. Fix: they are counted from the beginning of the next collection on.
#[test]
fn checkpoints_beside_a_collection_count_for_no_silence() {
    let (server, log) = begun();
    let mut kept = kept(0);
    (10..13).for_each(|number| kept.add(made(number, names(OWN, &[number as u32 - 10]), 9)));
    log.register("takeover-a", FollowerPlace { entry: 12, base: 10, beat: 1 }).unwrap();
    log.enlist("takeover-a").unwrap();
    kept.collect(&log, &no_piece).unwrap();
    // They were made while that went on, before the sign that it has read.
    (13..40).for_each(|number| kept.add(made(number, names(OWN, &[3]), 9)));
    for number in 40..56 {
        kept.collect(&log, &no_piece).unwrap();
        assert!(left(&server, OWN).contains(&0), "{number}: it was alive lately");
        kept.add(made(number, names(OWN, &[3]), 9));
    }
    kept.collect(&log, &no_piece).unwrap();
    assert!(!left(&server, OWN).contains(&0), "it is dead");
}

/// Bug: the collector deleted the data of a reader that had just started anew. Cause: it took the
/// reader's earlier start for dead, and deleted the name that both starts had. Fix: each start has
/// a name of its own.
#[test]
fn a_start_beside_each_request_of_a_collection_is_registered() {
    let mut started = 0;
    for at in 0.. {
        let (server, log) = begun();
        let mut kept = kept(0);
        let files = SimFiles::new() as Arc<dyn Files>;
        let (client, nonce) =
            open_client((server.url(), true), &files, (0, &<_>::default()), None).unwrap();
        let other = Arc::new(SharedLog::new(client, false));
        let registration = Arc::new(Registration::of_takeover(&other, nonce, true));
        let starts = |entry| FollowerPlace { entry, base: entry, beat: 0 };
        registration.begin(starts(10)).unwrap();
        for number in 10..27 {
            kept.add(made(number, names(OWN, &[(number % 7) as u32 + 1]), 9));
            kept.collect(&log, &no_piece).unwrap();
        }
        let registered = || log.registered(&log.read_register().unwrap().0).unwrap().len();
        assert_eq!(registered(), 1);
        // The newest one alone has piece 0.
        server.place(&shared_name(OWN, 0));
        kept.add(made(27, names(OWN, &[0]), 9));
        let (again, came) = (Arc::clone(&registration), AtomicU64::new(0));
        server.watch(Some(Box::new(move |_, after| {
            if !after && came.fetch_add(1, Ordering::Relaxed) == at {
                again.begin(starts(27)).unwrap();
            }
        })));
        kept.collect(&log, &no_piece).unwrap();
        server.watch(None);
        if registration.base() == 10 {
            assert_eq!(registered(), 0, "it is forgotten");
            break;
        }
        started += 1;
        for number in 28..32 {
            kept.add(made(number, names(OWN, &[1]), 9));
            kept.collect(&log, &no_piece).unwrap();
            assert!(left(&server, OWN).contains(&0), "{at}: what it reads is gone");
        }
        registration.end();
        assert_eq!(registered(), 0, "{at}");
    }
    assert!(started > 10, "{started}");
}

/// Bug: closing a shared database waited for a whole collection, thousands of requests. Cause:
/// nothing between two requests looked whether the database was closing. Fix: the collection does.
#[test]
fn a_closing_ends_a_collection() {
    // Those that are begun together have begun.
    let (mut ended, most) = (0, 2 + READS_AT_ONCE as u64);
    for at in 1.. {
        let (server, log) = begun();
        let log = Arc::new(log);
        (9..50).for_each(|number| server.place(&crate::replication::log::entry_name(number)));
        for n in 0..40 {
            let name = format!("f{n}");
            enter(&log, &name, FollowerPlace { entry: 90, base: 0, beat: 0 });
        }
        let mut kept = kept(0);
        (50..53).for_each(|number| kept.add(made(number, names(OWN, &[1]), 9)));
        let before = server.requests();
        let stops = Arc::clone(&log);
        server.watch(Some(Box::new(move |number, after| {
            if after && number == before + at {
                stops.client.stop();
            }
        })));
        let collected = kept.collect(&log, &no_piece);
        server.watch(None);
        let asked = server.requests() - before;
        if collected.is_ok() {
            assert!(asked <= at + most, "{asked}: it was stopped near the end, or not at all");
            break;
        }
        ended += 1;
        assert_eq!(collected.unwrap_err().kind(), ErrorKind::Closed, "{at}");
        assert!(asked <= at + most, "{at}: {asked} requests");
    }
    assert!(ended > 15, "{ended}");
}

/// A reader of a checkpoint goes on with an entry before its own. That stays as long as the
/// checkpoint does.
#[test]
fn entries_with_which_readers_of_the_last_two_checkpoints_go_on_are_kept() {
    let (server, log) = begun();
    (9..40).for_each(|number| server.place(&entry_name(number)));
    assert!(log.raise_head(LogHead { oldest: 9, checkpoint: 9, cleaned: 0 }).unwrap());
    let mut kept = kept(0);
    let oldest = || log.head().unwrap().0.oldest;
    for (number, from, expected) in [(12, 10, 9), (20, 15, 10), (30, 31, 15), (35, 33, 30)] {
        kept.add(MadeCheckpoint { number, from, pieces: BTreeSet::new(), pending: 0 });
        kept.collect(&log, &no_piece).unwrap();
        assert_eq!(oldest(), expected, "behind checkpoint {number}");
        assert!(server.names().contains(&entry_name(expected)));
    }
}

/// Bug: a directory told commits that the store has. Cause: a void claim, which came into a hole,
/// stayed in the log, and was taken for the one behind the directory's own. Fix: the next writer
/// deletes those between the last claim that counts and its own.
#[test]
fn a_void_claim_goes_and_one_that_counts_stays() {
    let (server, log) = begun();
    for number in [2, 5] {
        let claim = LogClaim { nonce: [number as u8; 16], incarnation: 1, owner: String::new() };
        let body = EntryBody::Claim(claim);
        let entry = Entry { number, claim: number, checkpoint: 0, first: 0, last: 9, body };
        log.append(number, &entry.encode().unwrap().into()).unwrap();
    }
    kept(0).behind(2, &Arc::default(), &Arc::default()).delete_entries(&log, OWN).unwrap();
    let left: Vec<String> =
        server.names().into_iter().filter(|name| name.contains("/log/")).collect();
    assert_eq!(left, [entry_name(2)]);
}
