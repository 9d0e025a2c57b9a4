//! Checkpoints of the levels: a reader of one applies again what the writer had above its levels,
//! beside what it had drained of that.

use super::{Content, content, force_checkpoint, key, make_tables, of_machine, prepare, settle};
use super::{WORK, taken_over, writer_options};
use crate::common::cuts::PATH;
use crate::common::{Chance, alone, rounds};
use terrace::operators::COUNTER;
use terrace::testing::{Failpoint, Machine, Survive};
use terrace::{
    Database, Durability, Existing, Level0Container, ObjectServer, Result, Table, TableOptions,
    WriteBatch,
};

/// Checkpoints come after so many bytes of segments.
const CHECKPOINT_BYTES: u64 = 2 << 10;

/// A writer of which readers are compared with it.
struct World {
    server: ObjectServer,
    machine: Machine,
    bug: Option<Failpoint>,
    /// That of the writer: each has its own.
    path: String,
    db: Database,
    round: u64,
    chance: Chance,
}

impl World {
    fn new(seed: u64, bug: Option<Failpoint>) -> World {
        let (server, machine) = (ObjectServer::new(), Machine::with_files());
        let options = writer_options(&machine, &server, bug).checkpoint_bytes(CHECKPOINT_BYTES);
        let (path, db) = (PATH.to_string(), options.open(PATH).unwrap());
        make_tables(&db, &|| ());
        World { server, machine, bug, path, db, round: 0, chance: Chance::new(seed) }
    }

    /// Rows of a few keys: operands, puts, deletes, ranges, loads.
    fn write(&mut self) -> Result<()> {
        let n = self.chance.below(40);
        let table = self.db.existing_table("counted")?;
        match self.chance.below(12) {
            0..5 => table.merge(key(n), 1i64.to_le_bytes()),
            5 => table.put(key(n), 1000i64.to_le_bytes()),
            6 => table.delete(key(n)),
            7 => {
                let mut batch = WriteBatch::new();
                batch.delete_range(&table, key(n)..key(n + self.chance.below(12)));
                batch.merge(&table, key(n), 5i64.to_le_bytes());
                self.db.write(batch)
            }
            8 => {
                let mut load = table.bulk_load(Existing::Replace)?;
                (n..n + 5).try_for_each(|n| load.put(key(n), 7i64.to_le_bytes()))?;
                load.finish().map(drop)
            }
            9 => {
                self.round += 1;
                let own = 1 << 20 | self.round;
                prepare(&self.db, &format!("own {own}"), own, Durability::Durable)
            }
            10 => match self.db.list_prepared().first() {
                Some(one) if n.is_multiple_of(2) => self.db.commit_prepared(&one.id),
                Some(one) => self.db.roll_back_prepared(&one.id, Durability::Durable),
                None => Ok(()),
            },
            _ => {
                self.round += 1;
                let which = self.chance.below(WORK.len() as u64) as usize;
                // What is prepared may be in the way of it.
                drop(WORK[which](&self.db, self.round * 10 + which as u64, &|| ()));
                Ok(())
            }
        }
    }

    /// Drains some keys of a table.
    fn drain(&mut self) -> Result<()> {
        let names = self.db.table_names();
        let name = match self.chance.below(3) {
            0 => &names[self.chance.below(names.len() as u64) as usize],
            _ => "counted",
        };
        let (table, from) = (self.db.existing_table(name)?, self.chance.below(40));
        let upto = from + 1 + self.chance.below(30);
        match self.chance.below(4) {
            0 => self.db.compact_range(&table, ..).map(drop),
            _ => self.db.compact_range(&table, key(from)..key(upto)).map(drop),
        }
    }

    fn act(&mut self) -> Result<()> {
        match self.chance.below(40) {
            0..24 => self.write(),
            24..30 => self.drain(),
            30..36 => self.db.step().map(drop),
            36 => {
                force_checkpoint(&self.db);
                Ok(())
            }
            37 => {
                self.machine = self.machine.crash(Survive::Everything);
                self.open()
            }
            38 => {
                self.db.clone().close()?;
                self.open()
            }
            _ => {
                self.check();
                self.round += 1;
                self.path = format!("/taken {}", self.round);
                self.machine = Machine::with_files();
                let options = of_machine(&self.machine, self.bug);
                let options = options.checkpoint_bytes(CHECKPOINT_BYTES);
                self.db = options.open_shared(self.server.url(), &self.path)?;
                Ok(())
            }
        }
    }

    fn open(&mut self) -> Result<()> {
        let options = writer_options(&self.machine, &self.server, self.bug);
        self.db = options.checkpoint_bytes(CHECKPOINT_BYTES).open(&self.path)?;
        Ok(())
    }

    /// A takeover of a copy of the store has what the writer has.
    fn check(&mut self) {
        settle(|| self.db.step());
        let (expected, found) = (content(&self.db), taken_over(&self.server.copy()));
        let (expected, found): (Content, Content) = (expected.unwrap(), content(&found).unwrap());
        assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        for (name, rows) in &expected {
            let differs = |key: &&Vec<u8>| found[name].get(*key) != rows.get(*key);
            let keys: Vec<_> = rows.keys().chain(found[name].keys()).filter(differs).collect();
            assert!(keys.is_empty(), "{name} differs in {keys:?}");
        }
    }
}

fn run(seed: u64, bug: Option<Failpoint>) {
    let mut world = World::new(seed, bug);
    for n in 0..120 {
        world.act().unwrap_or_else(|error| panic!("seed {seed}, act {n}: {error}"));
        if n % 15 == 14 {
            world.check();
        }
    }
}

#[test]
fn readers_of_checkpoints_have_what_the_writer_has() {
    let _turn = alone();
    let first = std::env::var("TERRACE_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    for seed in first..first + rounds(8, 400) {
        println!("seed {seed}");
        run(seed, None);
    }
}

/// Bug: no takeover came past a checkpoint that was made while parts of a large commit went out.
/// Cause: its first entry was one of these parts, and a reader lacked those before. Fix: it is the
/// first part. This history had it.
#[test]
fn a_checkpoint_begins_with_no_further_part_of_a_commit() {
    let _turn = alone();
    run(139, None);
}

#[test]
fn planted_bugs_of_checkpoints_are_found() {
    let _turn = alone();
    for bug in [Failpoint::ForgetLevel0, Failpoint::ReplayDrained] {
        let finds = |seed| std::panic::catch_unwind(|| run(seed, Some(bug))).is_err();
        assert!((0..40).any(finds), "{bug:?} was not found");
    }
}

/// The log of a writer that overwrites a few rows in memory for days ends at a region or two: a row
/// that is never written again does not keep all of it.
#[test]
fn one_cold_row_does_not_keep_the_log() {
    let _turn = alone();
    let (server, machine) = (ObjectServer::new(), Machine::with_files());
    let options = writer_options(&machine, &server, None).checkpoint_bytes(64 << 10);
    let db = options.open(PATH).unwrap();
    let (cold, hot) = (db.table("cold").unwrap(), db.table("hot").unwrap());
    settle(|| db.step());
    cold.put("row", "cold").unwrap();
    let region = 2 << 20;
    let status = || {
        let status = of_machine(&Machine::with_files(), None).shared_status(server.url()).unwrap();
        (status.oldest, status.entry)
    };
    let (mut chance, mut written, mut longest) = (Chance::new(1), 0, 0);
    while written < 8 * region {
        for n in 0..16 {
            let value = chance.bytes(2000);
            written += value.len() as u64;
            hot.put(key(n), value).unwrap();
        }
        settle(|| db.step());
        let (oldest, entry) = status();
        longest = longest.max(entry - oldest);
    }
    settle(|| db.step());
    let entries = status().1;
    assert!(longest * 2 < entries, "{longest} of {entries} entries are kept");
    assert_eq!(content(&taken_over(&server)).unwrap(), content(&db).unwrap());
}

/// Operands of a table that were drained, and whose zone has gone. A row table has cold rows: older
/// ones of another table, so that a reader of a checkpoint begins before the operands, or later
/// ones of the same table.
fn operands_behind_a_cold_row(bug: Option<Failpoint>, is_one_table: bool) {
    let (server, machine) = (ObjectServer::new(), Machine::with_files());
    let options = writer_options(&machine, &server, bug).checkpoint_bytes(CHECKPOINT_BYTES);
    let db = options.open(PATH).unwrap();
    make_tables(&db, &|| ());
    let matrix = TableOptions::new().level0(Level0Container::Matrix);
    let cold = db.create_table("cold", matrix.merge_operator(COUNTER)).unwrap();
    let mut chance = Chance::new(1);
    let mut fill = |mut last| {
        let before = db.stats().background.row_tables;
        while db.stats().background.row_tables == before {
            last += 1;
            cold.put(key(last), chance.bytes(2000)).unwrap();
            db.step().unwrap();
        }
        last
    };
    let count_and_drain = |table: &Table, n| {
        table.merge(key(n), 1i64.to_le_bytes()).unwrap();
        db.compact_range(table, key(n)..key(n + 1)).unwrap();
    };
    let counted = if is_one_table { &cold } else { &db.existing_table("counted").unwrap() };
    let mut last = fill(100);
    count_and_drain(counted, 1);
    if is_one_table {
        last = fill(100_000);
        db.compact_range(&cold, key(100)..key(100_000)).unwrap();
    }
    let removed = || db.stats().background.row_tables_removed;
    let before = removed();
    assert_eq!(before, u64::from(is_one_table), "the older row table has gone");
    let (hot, released) =
        (db.existing_table("t").unwrap(), || db.stats().background.zones_released);
    let released_before = released();
    for n in 0.. {
        assert!(n < 1000, "no zone was released");
        hot.put(key(n % 4), chance.bytes(20_000)).unwrap();
        if n % 4 == 3 {
            // Merges memtables, so that zones die before drains come.
            for table in [&hot, &cold] {
                db.compact_range(table, key(9)..key(10)).unwrap();
            }
        }
        // What is in the memtable lies in a zone.
        cold.put(key(last - n % 3), "again").unwrap();
        db.step().unwrap();
        if released() > released_before + 1 {
            break;
        }
    }
    // An edit of the table gives its view what was forgotten.
    count_and_drain(counted, 2);
    let checkpoints = || db.stats().share.unwrap().checkpoints;
    let sent = checkpoints();
    for n in 0.. {
        assert!(n < 100, "there was no checkpoint");
        hot.put(key(5), chance.bytes(1000)).unwrap();
        db.step().unwrap();
        if checkpoints() > sent + 1 {
            break;
        }
    }
    settle(|| db.step());
    assert_eq!(removed(), before, "the cold row lies in level 0");
    let found = taken_over(&server);
    assert_eq!(content(&found).unwrap(), content(&db).unwrap());
}

/// Bug: operands were applied twice. Cause: the first entry of a checkpoint followed from all
/// tables, and what a table had drained by its own alone: it forgot steps above that entry.
/// Fix: the drained map of a checkpoint has what lies below all that its table has above levels.
#[test]
fn what_a_table_forgot_is_not_applied_again() {
    let _turn = alone();
    operands_behind_a_cold_row(None, false);
    let finds = || operands_behind_a_cold_row(Some(Failpoint::ForgetSteps), false);
    assert!(std::panic::catch_unwind(finds).is_err(), "the planted bug was not found");
}

/// Bug: the same within one table. Cause: a row table counted as old as what the round of drains
/// had left, so the log began before steps that were forgotten. Fix: it is as old as its rows.
#[test]
fn what_a_row_table_forgot_is_not_applied_again() {
    let _turn = alone();
    operands_behind_a_cold_row(None, true);
}

/// Bug: commits were lost where a disk was put back to what it was before a drain. Cause: a
/// checkpoint from before that counted, which had the drain, so level 0 was taken for drained.
/// Fix: a checkpoint has the levels alone only where what the log lacks is drained at its moment.
#[test]
fn a_disk_that_was_put_back_behind_a_checkpoint_drains_again() {
    let _turn = alone();
    let (server, machine) = (ObjectServer::new(), Machine::with_files());
    let options = writer_options(&machine, &server, None).checkpoint_bytes(20 << 10);
    let db = options.open(PATH).unwrap();
    make_tables(&db, &|| ());
    settle(|| db.step());
    let mut batch = WriteBatch::new();
    let (table, counted) = (db.existing_table("t").unwrap(), db.existing_table("counted").unwrap());
    for n in 0..20 {
        batch.put(&table, key(n), Chance::new(n).bytes(2000));
        batch.merge(&counted, key(n), 1i64.to_le_bytes());
    }
    db.write(batch).unwrap();
    let share = || db.stats().share.unwrap();
    let before = share().checkpoints;
    while share().lag_commits > 0 {
        db.step().unwrap();
    }
    assert_eq!(share().checkpoints, before, "the next one is due");
    let put_back = machine.crash(Survive::Everything);
    for table in [&table, &counted] {
        db.compact_range(table, ..).unwrap();
    }
    settle(|| db.step());
    assert!(share().checkpoints > before);
    let options = writer_options(&put_back, &server, None).checkpoint_bytes(CHECKPOINT_BYTES);
    let db = options.open(PATH).unwrap();
    let before = db.stats().share.unwrap().checkpoints;
    for n in 0..20 {
        db.existing_table("t").unwrap().put("more", Chance::new(n).bytes(1000)).unwrap();
        settle(|| db.step());
        assert_eq!(content(&taken_over(&server.copy())).unwrap(), content(&db).unwrap(), "{n}");
    }
    assert!(db.stats().share.unwrap().checkpoints > before);
}

/// Bug: once the store had lost an entry of the log, no takeover came past it for as long as a row
/// from before lay in memory. Cause: each checkpoint began before it, or was not made, since the
/// writer could not find its first entry. Fix: the writer drains, and the next checkpoint begins
/// behind it.
#[test]
fn an_entry_that_is_gone_is_left_behind() {
    let _turn = alone();
    let (server, machine) = (ObjectServer::new(), Machine::with_files());
    let options = writer_options(&machine, &server, None).checkpoint_bytes(16 << 10);
    let db = options.open(PATH).unwrap();
    make_tables(&db, &|| ());
    settle(|| db.step());
    let share = || db.stats().share.unwrap();
    let step = |n: u64| {
        let hot = db.existing_table("t").unwrap();
        hot.put(key(n % 4), Chance::new(n).bytes(500)).unwrap();
        while share().lag_commits > 0 {
            db.step().unwrap();
        }
    };
    db.existing_table("both").unwrap().put("cold", "row").unwrap();
    (0..10).for_each(step);
    let status = of_machine(&Machine::with_files(), None).shared_status(server.url()).unwrap();
    server.lose(&format!("shared/log/{:016x}", status.entry - 2));
    let before = share().checkpoints;
    for n in 10.. {
        assert!(n < 1000, "no checkpoint was made");
        step(n);
        // One that fails is tried again.
        drop(db.step());
        if share().checkpoints > before + 1 {
            break;
        }
    }
    settle(|| db.step());
    assert_eq!(content(&taken_over(&server)).unwrap(), content(&db).unwrap());
}
