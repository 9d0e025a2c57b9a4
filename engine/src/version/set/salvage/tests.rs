use std::ops::Range;
use std::path::PathBuf;

use super::super::Changing;
use super::super::tests::{DIRECTORY, add, create, create_table, keys};
use super::*;
use crate::mvcc::KeyInterval;
use crate::os::OpenHow;
use crate::sstable::tests::{Entry, write_extent};
use crate::version::journal::read_whole;
use terrace_testkit::SimFiles;

/// Bug: all rows of a table were left out, and the report did not tell.
/// Cause: a checkpoint was written between the giving of its number and the edit that made it,
/// and that edit was lost. A number below the checkpoint's next one was taken for a dropped
/// table's.
/// Fix: where edits are lost, that is so only up to the greatest number that it names.
#[test]
fn a_table_that_was_made_around_a_checkpoint_is_not_gone() {
    let counters = Op::Counters { next_table: 8, next_extent: 90, table_event_lsn: 5 };
    let named = Op::CreateTable { table: 3, created_lsn: 1, name: "t".into() };
    for are_lost in [false, true] {
        let mut ended = Ended::default();
        ended.begin(&[counters.clone(), named.clone()], are_lost);
        assert!(ended.has_table(2), "what it does not name is gone");
        assert_eq!(ended.has_table(7), !are_lost);
        assert_eq!(ended.next_extent, if are_lost { 0 } else { 90 });
    }
}

fn journal_path(epoch: u64) -> PathBuf {
    Path::new(DIRECTORY).join(format!("journal-{epoch:08}"))
}

fn read(files: &Arc<SimFiles>, epoch: u64) -> Vec<u8> {
    read_whole(&files.open(&journal_path(epoch), OpenHow::Read).unwrap()).unwrap()
}

/// Flips bits of a journal from one place up to another.
fn damage(files: &Arc<SimFiles>, epoch: u64, place: Range<u64>) {
    place.for_each(|at| files.corrupt(&journal_path(epoch), at, 0xa5));
}

fn salvage(files: &Arc<SimFiles>, floor: JournalFloor) -> SalvagedSet {
    let files = Arc::clone(files) as _;
    let journal = ReadableJournal::open(&files, Path::new(DIRECTORY), floor).unwrap();
    journal.replay(Decided::default()).unwrap()
}

/// Bug: the rows of a large commit were in tables of extents after a salvage, and rows that it
/// replaced showed. Cause: the edit that said that it was committed was lost, and a later one that
/// moved its extents to a level was refused. Fix: the later one says the commit and its LSN.
#[test]
fn an_edit_that_moves_a_run_says_that_it_was_committed() {
    let files = SimFiles::new();
    let set = create(&files);
    let table = create_table(&set, "t");
    let run = set.next_extent_id();
    let extents: Vec<_> = ["a", "m"]
        .iter()
        .map(|key| {
            let list = [Entry::put(key.as_bytes(), 5, key.as_bytes())];
            write_extent(set.store(), set.next_extent_id(), &list)
        })
        .collect();
    set.store().sync().unwrap();
    let ids = vec![extents[0].meta().id];
    set.apply(Edit { ops: vec![Op::AddRun { table, run, extents, loaded: true }] }, 5).unwrap();
    let begin = set.writer.lock().journal.len();
    set.apply(Edit { ops: vec![Op::CommitRun { table, run, lsn: 5 }] }, 5).unwrap();
    let end = set.writer.lock().journal.len();
    let interval = KeyInterval::closed(b"a", b"b");
    let moved = Op::MoveFromRun { table, run, level: 2, ids };
    set.apply(Edit { ops: vec![moved, Op::Drained { table, seq: 5, interval }] }, 6).unwrap();
    damage(&files, 1, begin..end);
    let found = salvage(&files, set.floor());
    assert_eq!(found.lost.len(), 1, "{:?}", found.lost);
    let version = found.set.version(table).unwrap();
    assert_eq!(keys(&found.set, table), ["a"]);
    let runs: Vec<_> = version.runs.iter().map(|run| (run.id, run.lsn)).collect();
    assert_eq!(runs, [(run, 5)]);
    assert_eq!(version.runs[0].extents.extents().len(), 1);
}

/// Bug: a salvage lost all names for a damaged checkpoint, though they were there. Cause: it read
/// the greatest epoch alone. An epoch before it stays where it could not be removed. Fix: its edits
/// come first where the checkpoint is lost.
#[test]
fn the_epoch_before_a_lost_checkpoint_is_read() {
    for has_later in [false, true] {
        let files = SimFiles::new();
        let set = create(&files);
        let table = create_table(&set, "t");
        for key in ["b", "a"] {
            set.apply(add(&set, table, key), 7).unwrap();
        }
        let before = read(&files, 1);
        {
            let Changing { mut writer, _inside } = set.lock_for_change().unwrap();
            let prepared = set.prepare_epoch(&writer, 7).unwrap();
            set.begin_epoch(&mut writer, prepared).unwrap();
        }
        let checkpoint = 64..set.writer.lock().journal.len();
        if has_later {
            set.apply(add(&set, table, "c"), 8).unwrap();
        }
        let file = files.open(&journal_path(1), OpenHow::CreateNew).unwrap();
        file.write_all_at(&before, 0).unwrap();
        let whole = salvage(&files, set.floor());
        assert_eq!(whole.lost, []);
        damage(&files, 2, checkpoint);
        let found = salvage(&files, set.floor());
        assert!(!found.lost.is_empty());
        assert_eq!(found.set.tables(), set.tables());
        let want: &[&str] = if has_later { &["a", "b", "c"] } else { &["a", "b"] };
        assert_eq!(keys(&found.set, table), want);
        // What comes behind it was lost with it.
        assert!(found.lost_edits.can_have_renamed(table));
    }
}

/// Bug: tables and extents that were removed came back in a salvage. Cause: any epoch that was left
/// counted as the one before the lost checkpoint, and its damage was not told. Fix: an epoch that
/// is older by more is passed over, and each flaw of one that is read has a line.
#[test]
fn an_epoch_that_is_older_by_more_is_passed_over() {
    let files = SimFiles::new();
    let set = create(&files);
    let table = create_table(&set, "t");
    set.apply(add(&set, table, "a"), 7).unwrap();
    let mut befores = Vec::new();
    for epoch in 1..=2 {
        befores.push(read(&files, epoch));
        let Changing { mut writer, _inside } = set.lock_for_change().unwrap();
        let prepared = set.prepare_epoch(&writer, 7).unwrap();
        set.begin_epoch(&mut writer, prepared).unwrap();
    }
    let checkpoint = 64..set.writer.lock().journal.len();
    damage(&files, 3, checkpoint);
    let leave = |epoch: u64, bytes: &[u8]| {
        let file = files.open(&journal_path(epoch), OpenHow::CreateNew).unwrap();
        file.write_all_at(bytes, 0).unwrap();
    };
    leave(1, &befores[0]);
    let older = salvage(&files, set.floor());
    assert_eq!(older.set.tables(), []);
    leave(2, &befores[1]);
    let before = salvage(&files, set.floor());
    assert_eq!(before.set.tables(), set.tables());
    damage(&files, 2, 64..80);
    let told = salvage(&files, set.floor()).lost;
    assert!(told.iter().any(|damage| damage.file == journal_path(2)), "{told:?}");
}

/// Bug: nothing told which bytes could not be read of an epoch before a lost checkpoint, and
/// nothing at all told of edits in them where they ended it. Cause: such bytes read as zeros, which
/// end a journal, and the failure was dropped. Fix: each place that cannot be read has a line.
#[test]
fn what_cannot_be_read_of_the_epoch_before_is_told() {
    let files = SimFiles::new();
    let set = create(&files);
    let table = create_table(&set, "t");
    // Longer than some sectors: that is what is not read around a bad byte.
    for n in 0..200 {
        set.apply(add(&set, table, &format!("{n:03}")), 7).unwrap();
    }
    let (len, before) = (set.writer.lock().journal.len(), read(&files, 1));
    assert!(len > 16 << 10, "{len}");
    {
        let Changing { mut writer, _inside } = set.lock_for_change().unwrap();
        let prepared = set.prepare_epoch(&writer, 7).unwrap();
        set.begin_epoch(&mut writer, prepared).unwrap();
    }
    let checkpoint = 64..set.writer.lock().journal.len();
    damage(&files, 2, checkpoint);
    let file = files.open(&journal_path(1), OpenHow::CreateNew).unwrap();
    file.write_all_at(&before, 0).unwrap();
    files.make_unreadable(&journal_path(1), 8 << 10..before.len() as u64);
    let told = salvage(&files, set.floor()).lost;
    let of_before = told.iter().filter(|damage| damage.file == journal_path(1));
    let unread: Vec<u64> =
        of_before.filter(|it| it.expected.contains("readable")).map(|it| it.offset).collect();
    assert_eq!(unread, [8 << 10], "{told:?}");
}

/// Bug: where the checkpoint was lost, a flaw of the epoch before had the last edits count as lost,
/// and tables and objects were doubted that sound edits speak of. Cause: offsets of two files were
/// compared. Fix: each file says by itself whether its last edits are lost.
#[test]
fn a_flaw_of_the_epoch_before_is_in_front_of_all_edits() {
    let files = SimFiles::new();
    let set = create(&files);
    let table = create_table(&set, "t");
    for n in 0..100 {
        set.apply(add(&set, table, &format!("{n:03}")), 7).unwrap();
    }
    let before = read(&files, 1);
    let flaw = set.writer.lock().journal.len() / 2;
    {
        let Changing { mut writer, _inside } = set.lock_for_change().unwrap();
        let prepared = set.prepare_epoch(&writer, 7).unwrap();
        set.begin_epoch(&mut writer, prepared).unwrap();
    }
    damage(&files, 2, 72..80);
    let file = files.open(&journal_path(1), OpenHow::CreateNew).unwrap();
    file.write_all_at(&before, 0).unwrap();
    damage(&files, 1, flaw..flaw + 8);
    set.apply(Edit { ops: vec![Op::RenameTable { table, name: "u".into() }] }, 8).unwrap();
    let found = salvage(&files, set.floor());
    assert_eq!(found.lost.len(), 2, "{:?}", found.lost);
    assert_eq!(&*found.set.tables()[0].name, "u");
    assert!(!found.may_have_objects && !found.lost_edits.can_have_renamed(table));
}

/// Bug: a salvage of a sound database took times to live away and doubted all tables. Cause: a torn
/// append counted as lost edits while the floor named the epoch before. Fix: it has a line, and
/// nothing else hangs on it.
#[test]
fn a_torn_append_behind_a_floor_of_the_epoch_before_is_no_lost_edit() {
    let files = SimFiles::new();
    let set = create(&files);
    let table = create_table(&set, "t");
    let floor = set.floor();
    {
        let Changing { mut writer, _inside } = set.lock_for_change().unwrap();
        let prepared = set.prepare_epoch(&writer, 7).unwrap();
        set.begin_epoch(&mut writer, prepared).unwrap();
    }
    let begin = set.writer.lock().journal.len();
    set.apply(add(&set, table, "a"), 7).unwrap();
    damage(&files, 2, begin + 8..begin + 16);
    let found = salvage(&files, floor);
    assert_eq!((found.lost, found.torn.map(|torn| torn.offset)), (vec![], Some(begin)));
    assert!(!found.may_have_objects && !found.lost_edits.can_have_renamed(table));
    assert_eq!(salvage(&files, set.floor()).lost.len(), 1, "the floor names it");
    assert_eq!(salvage(&files, JournalFloor::default()).lost.len(), 1, "there is no floor");
}
