//! Bugs that the suite found, each with the shortest way to it that is known.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests stop and tell")]

use crate::common::content::{Effect, read_all};
use crate::common::cuts::{End, KINDS, Kind, PATH, Rig, copy, options, reopen};
use crate::common::workload::Action;
use crate::common::{alone, together, wait_until};
use terrace::Durability::{Durable, Relaxed};
use terrace::ErrorKind;
use terrace::testing::{Call, CallSite, Failpoint, Fault, Faulty, FileKind, Machine, Survive};

/// Bug: a process killed between the write and the sync of a drain's edit, an opening that read
/// the edit from the operating system's cache and released the drained zones, a power cut: the
/// edit was gone and so were the records. Cause: opening made the region durable again, not the
/// journal. Fix: opening syncs the journal and its directory before anything builds on them.
#[test]
fn an_unsynced_edit_is_made_durable_before_zones_are_released_for_it() {
    let _alone = alone();
    let mut killed = 0;
    for n in 1.. {
        // In the middle of the first drain, before one sync after the other.
        let mut rig = Rig::new(Kind::Files, 1, None);
        rig.create("t");
        for n in 0..120 {
            rig.put("t", &format!("{n:03}"), 9000, Durable);
        }
        while rig.db.stats().background.merges == 0 || rig.db.stats().pm.zones_used < 8 {
            rig.steps(1);
        }
        // Something to settle first.
        rig.put("t", "late", 10, Relaxed);
        rig.machine.kill_before(n);
        while rig.db.stats().background.drains == 0 {
            rig.steps(1);
        }
        let Some(found) = rig.machine.found() else { break };
        killed += 1;
        let (_db, content) = reopen(&found, None, &rig.account(), End::Kill).unwrap();
        let cut = found.crash(Survive::Nothing);
        let again = options(&cut, None).open(PATH).unwrap();
        assert_eq!(read_all(&again).unwrap().differs_from(&content), None, "killed at {n}");
    }
    // It writes no floor: that of the merge before is enough.
    assert!(killed >= 3, "{killed}");
}

/// Bug: on persistent memory, a process killed between the store of a new stream and its fence, an
/// opening that found the stream in the cache and gave it zones, a power cut: the stream was gone,
/// and the database refused as damaged. Cause: opening made durable again what streams hold, not
/// the streams. Fix: their objects and entries are stored again.
#[test]
fn an_unfenced_stream_is_made_durable_before_it_has_zones() {
    let _alone = alone();
    let mut killed = 0;
    for n in 1.. {
        let mut rig = Rig::new(Kind::Memory, 3, None);
        rig.create("t");
        let streams = |rig: &Rig| rig.db.stats().pm.streams_used;
        let before = streams(&rig);
        fill_a_sixteenth(&mut rig);
        rig.machine.kill_before(n);
        while streams(&rig) == before {
            rig.steps(1);
        }
        let Some(found) = rig.machine.found() else { break };
        killed += 1;
        let (db, content) = reopen(&found, None, &rig.account(), End::Kill).unwrap();
        rig.go_on(found, db, content);
        fill_a_sixteenth(&mut rig);
        while streams(&rig) == before {
            rig.steps(1);
        }
        rig.put("t", "in its own stream", 10, Durable);
        let cut = rig.machine.crash(Survive::Nothing);
        let end = End::Cut(Survive::Nothing);
        let found = reopen(&cut, None, &rig.account(), end);
        assert!(found.is_ok(), "killed at {n}: {:?}", found.err());
    }
    assert!(killed > 1, "{killed}");
}

/// Of the region, so that the next look at streams finds a busy table.
fn fill_a_sixteenth(rig: &mut Rig) {
    for n in 0..16 {
        rig.put("t", &format!("{n:03}"), 9000, Durable);
    }
}

/// Bug: power lost while copy B of the superblock was written, and again while the next opening
/// wrote copy A: both were torn, and the database was lost. Cause: A was always the first to be
/// written. Fix: the copy that the region was opened by is the last.
#[test]
fn a_torn_superblock_is_written_before_the_sound_one() {
    let _alone = alone();
    let mut cut = 0;
    for kind in KINDS {
        let mut rig = Rig::new(kind, 6, None);
        rig.create("t");
        rig.put("t", "key", 10, Durable);
        let (base, account) = (rig.machine.crash(Survive::Nothing), rig.account());
        let torn = |machine: &Machine, step: u64, seed: u64| {
            let machine = copy(machine);
            machine.cut_before(step, Survive::Seeded(seed));
            drop(options(&machine, None).open(PATH).unwrap());
            machine.found()
        };
        for (first, second, seed) in
            (1..9).flat_map(|first| (1..9).map(move |n| (first, n, 8 * first + n)))
        {
            let Some(once) = torn(&base, first, seed) else { continue };
            let Some(twice) = torn(&once, second, seed + 100) else { continue };
            cut += 1;
            let end = End::Cut(Survive::Seeded(seed));
            let found = reopen(&twice, None, &account, end);
            assert!(found.is_ok(), "{kind:?}, {first}, then {second}: {:?}", found.err());
        }
    }
    assert!(cut > 40, "{cut}");
}

/// Bug: on persistent memory, a process killed between the store that releases a zone and its
/// fence, an opening that found the zone free and forgot the incarnation of its records, a power
/// cut: the zone was back, its records were of no living incarnation, and the database refused as
/// damaged. Cause: opening made durable again what zones hold, not which of them are free. Fix: all
/// fixed parts of the region are stored again as they were found.
#[test]
fn an_unfenced_release_is_made_durable_before_incarnations_are_forgotten() {
    let _alone = alone();
    let (mut killed, mut cut) = (0, 0);
    for n in 1.. {
        let mut rig = Rig::new(Kind::Memory, 4, None);
        rig.create("t");
        let fill = |rig: &mut Rig, rounds: u64| {
            (0..rounds * 12).for_each(|n| rig.put("t", &format!("{:02}", n % 12), 9000, Durable));
        };
        fill(&mut rig, 1);
        let found = rig.machine.crash(Survive::Nothing);
        let end = End::Cut(Survive::Nothing);
        let (db, content) = reopen(&found, None, &rig.account(), end).unwrap();
        rig.go_on(found, db, content);
        fill(&mut rig, 8);
        rig.machine.kill_before(n);
        while rig.db.stats().background.zones_released == 0 {
            rig.steps(1);
        }
        let Some(found) = rig.machine.found() else { break };
        killed += 1;
        let account = rig.account();
        for k in 1.. {
            let again = copy(&found);
            again.cut_before(k, Survive::Nothing);
            drop(options(&again, None).open(PATH).unwrap());
            let Some(lost) = again.found() else { break };
            cut += 1;
            let found = reopen(&lost, None, &account, end);
            assert!(found.is_ok(), "killed at {n}, cut at {k}: {:?}", found.err());
        }
    }
    assert!(killed > 3 && cut > 15, "{killed}, {cut}");
}

/// Bug: on persistent memory, a process killed between the store of a zone's seal and its fence,
/// an opening that found the seal in the cache and went on in the next zone, a power cut: the
/// seal was gone and the database refused as damaged. Cause: opening made records above the floor
/// durable again, not seals. Fix: seals from the zone of the GIDX word on are stored again.
#[test]
fn an_unfenced_seal_is_made_durable_before_the_next_zone_is_used() {
    let _alone = alone();
    for n in 1.. {
        let mut rig = Rig::new(Kind::Memory, 2, None);
        rig.create("t");
        for n in 0..12 {
            rig.put("t", &format!("{n:03}"), 10_000, Durable);
        }
        rig.steps(20);
        rig.machine.kill_before(n);
        for n in 12..16 {
            rig.put("t", &format!("{n:03}"), 10_000, Durable);
        }
        let Some(found) = rig.machine.found() else {
            assert!(n > 5, "{n}");
            break;
        };
        let db = options(&found, None).open(PATH).unwrap();
        let t = db.existing_table("t").unwrap();
        t.put("after", "the kill").unwrap();
        while db.step().unwrap() {}
        t.put("and after", "the floor").unwrap();
        let want = read_all(&db).unwrap();
        let cut = found.crash(Survive::Nothing);
        let again = options(&cut, None).open(PATH).unwrap_or_else(|e| panic!("step {n}: {e}"));
        assert_eq!(read_all(&again).unwrap().differs_from(&want), None, "step {n}");
    }
}

/// Many relaxed commits to table a, one to b, the drop of a, which makes them all durable.
fn dropped(kind: Kind) -> Rig {
    let mut rig = Rig::new(kind, 3, None);
    rig.create("a");
    rig.create("b");
    rig.steps(50);
    for n in 0..50 {
        rig.put("a", &format!("{n:03}"), 10_000, Relaxed);
    }
    rig.put("b", "kept", 100, Relaxed);
    // A spare zone now, so that no sync for one comes between the drop and the release.
    rig.steps(1);
    rig.perform(&Action::Table(Effect::Drop("a".into())));
    rig
}

/// Readers of other tests may hold the release up for a while.
fn until_zones_are_released(rig: &mut Rig, mut before_each: impl FnMut(&Rig)) {
    wait_until("a zone is released", || {
        before_each(rig);
        rig.steps(1);
        rig.db.stats().background.zones_released > 0
    });
}

/// Bug: zones of a dropped table were released before the floor on the media had passed them; a
/// power cut then made recovery stop at the LSNs that were missing, and durable commits after
/// them were lost. Cause: zones were judged by the durable watermark, which the floor follows
/// one run later. Fix: the floor is written and synced before a release.
#[test]
fn zones_are_released_only_below_the_floor_that_is_on_the_media() {
    let _alone = alone();
    for kind in KINDS {
        let mut rig = dropped(kind);
        until_zones_are_released(&mut rig, |_| ());
        let (cut, end) = (rig.machine.crash(Survive::Nothing), End::Cut(Survive::Nothing));
        reopen(&cut, None, &rig.account(), end).unwrap();
    }
}

/// Bug: the zone that the GIDX word on the media named could be released while a newer word was
/// written and not yet synced; a cut that kept the release and lost the word left a database that
/// was refused as damaged. Cause: only the word last written was asked about. Fix: as above.
#[test]
fn the_zone_that_the_durable_gidx_word_names_is_not_released() {
    let _alone = alone();
    for seed in 0..40 {
        let mut rig = dropped(Kind::Files);
        rig.put("b", "rides the floor, unsynced", 100, Relaxed);
        let account = rig.account();
        until_zones_are_released(&mut rig, |rig| {
            rig.machine.cut_before(1, Survive::Seeded(seed));
        });
        let found = rig.machine.found().unwrap();
        reopen(&found, None, &account, End::Cut(Survive::Seeded(seed))).unwrap();
    }
}

/// Bug: after a failed sync, iterators and snapshots went on showing relaxed commits that were
/// on no device, while point reads did not. Cause: they read at the LSN that they had registered.
/// Fix: on a poisoned database every read stays at or below the durable watermark.
#[test]
fn no_kind_of_read_serves_what_a_failed_sync_lost() {
    let _alone = alone();
    let machine = Machine::with_files();
    let db = options(&machine, None).open(PATH).unwrap();
    let t = db.table("t").unwrap();
    t.put("durable", "1").unwrap();
    t.durability(Relaxed).put("relaxed", "2").unwrap();
    let before = db.snapshot().unwrap();
    machine.fail_sync_after(1);
    t.put("fails", "3").unwrap_err();
    assert_eq!(t.get("relaxed").unwrap(), None);
    let keys: Vec<_> = t.iter().map(|row| row.unwrap().0).collect();
    assert_eq!(keys, ["durable"]);
    assert_eq!(before.get(&t, "relaxed").unwrap(), None);
    assert_eq!(before.range(&t, ..).rev().count(), 1);
    assert_eq!(db.snapshot().unwrap().get(&t, "relaxed").unwrap(), None);
}

/// Bug: a creation whose last syncs failed left a journal without a region, a directory that
/// could neither be opened nor created in. Cause: only the region was removed. Fix: the journal
/// is removed first.
#[test]
fn a_creation_that_failed_can_be_repeated() {
    let _alone = alone();
    for kind in KINDS {
        let mut failures = 0;
        for n in 1.. {
            let machine = kind.machine();
            machine.fail_sync_after(n);
            if options(&machine, None).create(PATH).is_ok() {
                break;
            }
            failures += 1;
            let db = options(&machine, None).open(PATH);
            let db = db.unwrap_or_else(|e| panic!("{kind:?}, sync {n} failed, again: {e}"));
            db.table("t").unwrap().put("k", "v").unwrap();
        }
        assert!(failures >= 3, "{failures}");
    }
}

/// Bug: the records of a table that was dropped kept their zones for as long as the thread that
/// dropped it did nothing more: writers met a full region, that thread itself among them, for a
/// minute. Cause: deferred work stayed in a list of the thread's own. Fix: it is handed over at
/// once, to the thread that drives the epochs.
#[test]
fn zones_of_a_dropped_table_are_released_whatever_its_dropper_does_next() {
    let _alone = alone();
    let mut rig = Rig::new(Kind::Files, 4, None);
    rig.create("t");
    for n in 0..50 {
        rig.put("t", &format!("{n:03}"), 10_000, Relaxed);
    }
    let (done, wait) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let (dropped, was_dropped) = std::sync::mpsc::channel();
        let db = rig.db.clone();
        scope.spawn(move || {
            db.drop_table("t").unwrap();
            dropped.send(()).unwrap();
            // Until the other end is gone.
            wait.recv().unwrap_err();
        });
        was_dropped.recv().unwrap();
        until_zones_are_released(&mut rig, |_| ());
        drop(done);
        assert!(rig.db.stats().background.zones_released >= 3, "{:?}", rig.db.stats());
    });
}

/// Bug: a snapshot from before a truncation read the table as empty. Cause: its reads went to the
/// table that stands there now, at an LSN from before it was made. Fix: they fail, as documented.
#[test]
fn snapshots_from_before_a_truncation_fail_on_the_table() {
    let _alone = alone();
    let machine = Machine::with_files();
    let db = options(&machine, None).open(PATH).unwrap();
    let t = db.table("t").unwrap();
    t.put("k", "v").unwrap();
    let before = db.snapshot().unwrap();
    db.truncate_table("t").unwrap();
    assert_eq!(before.get(&t, "k").unwrap_err().kind(), ErrorKind::Invalid);
    let rows: Vec<_> = before.range(&t, ..).collect();
    assert!(matches!(&rows[..], [Err(e)] if e.kind() == ErrorKind::Invalid), "{rows:?}");
    assert_eq!(db.snapshot().unwrap().get(&t, "k").unwrap(), None);
}

/// Bug: with the newer floor slot damaged, recovery walked from the older one, stopped at LSNs
/// whose zones had been released since, and lost what came after without a word. Cause: the floor
/// slot alone said where to start. Fix: what lies before a GIDX word was whole at its floor, so
/// recovery starts above its greatest LSN at least.
#[test]
fn a_damaged_floor_slot_loses_nothing() {
    let _alone = alone();
    for slot in [8192, 8192 + 512] {
        let mut rig = dropped(Kind::Files);
        until_zones_are_released(&mut rig, |_| ());
        rig.put("b", "after the release", 100, Durable);
        let (found, end) = (rig.machine.crash(Survive::Nothing), End::Cut(Survive::Nothing));
        found.corrupt(std::path::Path::new("/db/region"), slot + 8, 0xff);
        match options(&found, None).open(PATH) {
            Err(e) => assert_eq!(e.kind(), ErrorKind::Corrupt, "{e}"),
            Ok(db) => rig.account().check(end, &read_all(&db).unwrap()).unwrap(),
        }
    }
}

/// Bug: on persistent memory, what the keeper of the floor knew to be durable went back by some
/// commits, and with it F. Cause: a waiter that saw `written` raised and `durable` not yet took the
/// second stage, which persistent memory does not have; by the time it looked, the first stage had
/// gone further than its target, and only an equal one was told apart. Fix: a target that is
/// durable already, or was passed, is left alone. (The keeper asserts that nothing goes back.)
#[test]
fn what_is_durable_does_not_go_back_under_many_waiters() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let mode = terrace::Mode::Emulated { delay: std::time::Duration::ZERO };
    let options = terrace::Options::new().mode(mode).pm_size(32 << 20);
    let db = options.pm_path(dir.path().join("region")).create(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..16u64 {
            let table = &table;
            scope.spawn(move || {
                for n in 0..12_000u64 {
                    table.put([thread as u8, n as u8], n.to_be_bytes()).unwrap();
                }
            });
        }
    });
    db.close().unwrap();
}

const JOURNAL_SYNC: Faulty = Faulty::Site(CallSite { call: Call::Sync, file: FileKind::Journal });

/// Puts rows of 6,000 bytes, with all jobs that the background finds after each, until there were
/// three drains, or a job fails, as the `nth` sync of the journal has it: how many rows were
/// acknowledged, and the error.
fn put_and_drain(machine: &Machine, nth: u64) -> (u32, Option<terrace::Error>) {
    let db = options(machine, None).open(PATH).unwrap();
    let table = db.table("t").unwrap();
    machine.fail(Fault::once(JOURNAL_SYNC, nth));
    let mut rows = 0;
    while db.stats().background.drains < 3 {
        table.put(u32::to_be_bytes(rows), [rows as u8; 6000]).unwrap();
        rows += 1;
        loop {
            match db.step() {
                Ok(true) => {}
                Ok(false) => break,
                Err(e) => return (rows, Some(e)),
            }
        }
    }
    (rows, None)
}

fn holds_rows(db: &terrace::Database, rows: u32) -> Result<(), String> {
    let table = db.existing_table("t").unwrap();
    let lost = (0..rows).filter(|n| table.get(n.to_be_bytes()).unwrap().is_none()).count();
    let count = table.iter().count() as u32;
    if lost > 0 || count != rows { Err(format!("{lost} of {rows} rows are lost")) } else { Ok(()) }
}

/// Bug: the sync of a drain's edit failed and the process died. The next opening read the edit out
/// of the operating system's cache, synced the journal and released the drained zones. A power cut
/// took the edit, and the records with it. Cause: after a failed write-back the pages are marked
/// clean and stay readable, so a later sync writes nothing. Fix: an opening writes again what it
/// found in the journal beyond the floor.
#[test]
fn an_edit_whose_sync_failed_is_written_again_by_the_next_opening() {
    let _alone = alone();
    for kind in [Kind::Files, Kind::Memory] {
        let mut struck = 0;
        for (nth, more) in (1..).flat_map(|nth| [(nth, 0), (nth, 60)]) {
            let machine = kind.machine();
            let (acknowledged, error) = put_and_drain(&machine, nth);
            let Some(error) = error else { break };
            assert!(error.to_string().contains("journal"), "{error}");
            struck += 1;
            let found = machine.kill();
            let db = options(&found, None).open(PATH).unwrap();
            holds_rows(&db, acknowledged).unwrap();
            let table = db.existing_table("t").unwrap();
            for n in acknowledged..acknowledged + more {
                table.put(n.to_be_bytes(), [n as u8; 6000]).unwrap();
                while db.step().unwrap() {}
            }
            let cut = found.crash(Survive::Nothing);
            let what = format!("{kind:?}, sync {nth}, {more} more rows: {error}");
            let db = options(&cut, None).open(PATH).unwrap_or_else(|e| panic!("{what}: {e}"));
            holds_rows(&db, acknowledged + more).unwrap_or_else(|lost| panic!("{what}: {lost}"));
            assert!(db.verify().unwrap().damages.is_empty(), "{what}");
        }
        assert!(struck >= 6, "{kind:?}: {struck} syncs of the journal failed");
    }
}

/// Bug: a growth of the region got the error of a sync that covered commits of others too, and
/// kept it to itself. The next durable commit was acknowledged, and a power cut took it. Cause: the
/// operating system reports a failed write-back once per open file, and growth synced beside the
/// region's other users. Fix: growth takes its turn, and its failure stops the database.
#[test]
fn a_failed_sync_of_a_growth_stops_the_database() {
    let _together = together();
    let machine = Machine::with_files();
    let db = options(&machine, None).open(PATH).unwrap();
    let table = db.table("t").unwrap();
    table.put("durable", "1").unwrap();
    table.durability(Relaxed).put("relaxed", [1; 40_000]).unwrap();
    machine.fail_sync_after(1);
    let error = db.grow_pm(5 << 20).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let refused = table.put("after", "2").expect_err("nothing is acknowledged any more");
    assert!(refused.to_string().contains("simulated I/O error"), "the cause is named: {refused}");
    for found in [machine.kill(), machine.crash(Survive::Nothing)] {
        let db = options(&found, None).open(PATH).unwrap();
        assert!(db.existing_table("t").unwrap().get("durable").unwrap().is_some());
        db.grow_pm(5 << 20).unwrap();
        db.existing_table("t").unwrap().put("after", "2").unwrap();
        let cut = found.crash(Survive::Nothing);
        let db = options(&cut, None).open(PATH).unwrap();
        assert!(db.existing_table("t").unwrap().get("after").unwrap().is_some());
    }
}

/// Bug: the power went after a creation with `pm_path`, and the region was gone: the database could
/// neither be opened nor made again. Cause: the directory of the region was never synced. Fix: it
/// is, before the journal has its name.
#[test]
fn a_region_in_another_directory_is_there_after_a_cut() {
    let _together = together();
    let made = |failpoint: Option<Failpoint>| {
        let machine = Machine::with_files();
        let db = options(&machine, failpoint).pm_path("/pm/region").create(PATH).unwrap();
        db.table("t").unwrap().put("k", "v").unwrap();
        let cut = machine.crash(Survive::Nothing);
        options(&cut, None).pm_path("/pm/region").open(PATH)
    };
    let db = made(None).unwrap();
    assert_eq!(db.existing_table("t").unwrap().get("k").unwrap().unwrap(), "v");
    assert!(made(Some(Failpoint::SkipRegionName)).is_err(), "as it was before");
}

/// Bug: a backup lacked all rows that a table had above its levels, and said nothing. Cause: it
/// leaves a table out that has no bytes there; after an opening with a persistent index the
/// background counts them step by step, and until then there seem to be none. Fix: a backup counts
/// what is left to be counted first.
#[test]
fn a_backup_right_after_an_opening_has_what_a_persistent_index_leads_to() {
    let _alone = alone();
    let machine = Kind::Index.machine();
    let db = options(&machine, None).create(PATH).unwrap();
    let table = db.table("t").unwrap();
    for n in 0..400u32 {
        if db.stats().background.merges > 0 {
            break;
        }
        table.put(n.to_be_bytes(), [7; 3000]).unwrap();
        while db.step().unwrap() {}
    }
    assert!(db.stats().tables[0].level0_records > 0, "the index has some of them");
    db.close().unwrap();
    let db = options(&machine, None).open(PATH).unwrap();
    db.backup("/set").unwrap();
    let alone = machine.files_alone();
    options(&alone, None).backup_set("/set").unwrap().restore(1, "/restored").unwrap();
    let restored = options(&alone, None).open("/restored").unwrap();
    assert_eq!(read_all(&restored).unwrap(), read_all(&db).unwrap());
}

/// Bug: a creation failed, and no later one worked: "/db holds \"region\" and no Terrace database".
/// Cause: where the call that makes the region has made it and tells an error, or the directory
/// cannot be listed, the undoing took nothing for its own and removed the marker. Fix: what lies in
/// the directory is removed under the marker, and the marker stays where that is not known.
#[test]
fn a_creation_that_fails_can_be_repeated_whatever_call_it_was() {
    let _together = together();
    let unfaulted = Machine::with_files();
    drop(options(&unfaulted, None).create(PATH).unwrap());
    let list = CallSite { call: Call::List, file: FileKind::Directory };
    for (site, times) in unfaulted.calls() {
        for nth in 1..=times {
            for (outcome, lists) in site.call.outcomes().iter().flat_map(|o| [(o, 0), (o, 4)]) {
                let machine = Machine::with_files();
                machine.fail(Fault { outcome: *outcome, ..Fault::once(Faulty::Site(site), nth) });
                if lists > 0 {
                    // The directory cannot be listed any more when the creation is undone.
                    machine
                        .fail(Fault { for_good: true, ..Fault::once(Faulty::Site(list), lists) });
                }
                let what = format!("{site} {nth}, {outcome:?}, {lists}");
                // The opening may also fail behind a creation that went well.
                drop(options(&machine, None).create(PATH));
                machine.mend();
                for found in [machine.kill(), machine.crash(Survive::Everything)] {
                    let db = options(&found, None).open(PATH);
                    let db = db.unwrap_or_else(|e| panic!("{what}: {e}"));
                    db.table("t").unwrap().put("k", "v").unwrap();
                }
            }
        }
    }
}

/// Two tables with extents and value extents.
fn rig_with_extents() -> Rig {
    let mut rig = Rig::new(Kind::Files, 1, None);
    rig.create("a");
    rig.create("b");
    while rig.db.stats().background.drains < 3 || rig.db.stats().tables[1].value_extents == 0 {
        for table in ["a", "b"] {
            rig.put(table, &format!("{}", rig.content.0[table].len()), 9000, Relaxed);
        }
        rig.steps(4);
    }
    rig
}

/// Bug: `verify` called damaged what it could not read. Cause: its report had nothing else to say.
/// Fix: what could not be read is told by itself, with the error.
#[test]
fn a_verification_that_cannot_read_names_no_damage() {
    let _alone = alone();
    let rig = rig_with_extents();
    let mut unread = 0;
    let cases = [(FileKind::Extents, true), (FileKind::Extents, false), (FileKind::Journal, true)];
    for ((file, is_open), for_good) in cases.into_iter().flat_map(|c| [(c, false), (c, true)]) {
        let site = CallSite { call: Call::Read, file };
        for nth in 1.. {
            let machine = rig.machine.kill();
            let db = options(&machine, None).open(PATH).unwrap();
            let fault = Fault { for_good, ..Fault::once(Faulty::Site(site), nth) };
            let report = if is_open {
                machine.fail(fault);
                db.verify()
            } else {
                db.close().unwrap();
                machine.fail(fault);
                options(&machine, None).verify(PATH)
            };
            let failed = machine.failed_calls().get(&site).copied().unwrap_or(0);
            let what = format!("{site} {nth}, {for_good}");
            match report {
                Ok(report) => {
                    assert_eq!(report.damages, [], "{what}");
                    // What was read ahead in vain is read again.
                    let may_be_sound = failed == 0 || !for_good;
                    assert!(may_be_sound || !report.is_sound(), "{what}");
                    for place in &report.unreadable {
                        assert!(place.error.contains("simulated I/O error"), "{place:?}");
                        assert!(!place.what.is_empty(), "{place:?}");
                    }
                    unread += report.unreadable.len();
                }
                Err(e) => assert_eq!(e.kind(), ErrorKind::Unavailable, "{what}: {e}"),
            }
            if failed == 0 {
                break;
            }
        }
    }
    assert!(unread > 10, "{unread}");
}

/// Bug: a backup, or a restore, called an extent damaged that it could not read. Cause: the check
/// of an extent before its copy makes damage of each error. Fix: an error of the device stays one.
#[test]
fn a_backup_that_cannot_read_says_so_and_names_no_damage() {
    let _alone = alone();
    let rig = rig_with_extents();
    let site = CallSite { call: Call::Read, file: FileKind::Extents };
    let mut failed = 0;
    for nth in 1.. {
        let machine = rig.machine.kill();
        let db = options(&machine, None).open(PATH).unwrap();
        machine.fail(Fault::once(Faulty::Site(site), nth));
        match db.backup("/set") {
            Ok(_) => break,
            Err(e) => assert_eq!(e.kind(), ErrorKind::Unavailable, "read {nth}: {e}"),
        }
        failed += 1;
        db.backup("/set").unwrap();
    }
    assert!(failed > 0, "a backup reads extents");
}

/// Bug, of the simulated machine: directories were durable when made, so no test saw whether a
/// creation syncs what is above the database.
#[test]
fn directories_above_a_database_are_durable_with_it() {
    let _together = together();
    let path = "/above/of/db";
    let made = |machine: &Machine| -> terrace::Result<()> {
        options(machine, None).open(path)?.table("t")?.put("k", "v")
    };
    let whole = Machine::with_files();
    made(&whole).unwrap();
    for survive in [Survive::Nothing, Survive::Everything, Survive::Seeded(4)] {
        let found = options(&whole.crash(survive), None).open(path).unwrap();
        assert!(found.existing_table("t").unwrap().get("k").unwrap().is_some(), "{survive:?}");
        for n in 1.. {
            let machine = Machine::with_files();
            machine.cut_before(n, survive);
            made(&machine).unwrap();
            let Some(found) = machine.found() else { break };
            made(&found).unwrap_or_else(|e| panic!("cut before step {n}, {survive:?}: {e}"));
            let cut = found.crash(Survive::Nothing);
            let db = options(&cut, None).open(path).unwrap();
            assert!(db.existing_table("t").unwrap().get("k").unwrap().is_some(), "{n}");
        }
    }
}
