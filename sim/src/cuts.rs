//! The rig that cuts the power: a database on a simulated machine, worked on by one thread, and
//! the account of what it acknowledged. After a cut the reopened database must hold the content
//! after some prefix of the commits, one that has every durable acknowledged commit in it.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use terrace::testing::{Machine, Moment, Planted, Survive, Trace};
use terrace::{Database, Durability, Existing, Options, TableOptions, TxnOptions, WriteBatch};

use crate::backups::{Backups, Kept, SET};
use crate::chance::Chance;
use crate::content::{
    Content, Differences, Effect, Rows, prepared_name, prepared_rows, read_all, upper,
};
use crate::workload::{self, Action, Taste};

/// What went wrong, in words.
pub type Violation = String;

/// Where the path of every simulated database leads.
pub const PATH: &str = "/db";

/// Which simulated machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Files,
    Memory,
    /// With persistent memory, and the index of level 0 in it.
    Index,
}

pub const KINDS: [Kind; 3] = [Kind::Files, Kind::Memory, Kind::Index];

impl Kind {
    pub fn machine(self) -> Machine {
        match self {
            Kind::Files => Machine::with_files(),
            Kind::Memory => Machine::with_memory(),
            Kind::Index => Machine::with_memory().index(true),
        }
    }
}

/// How a run ends.
#[derive(Clone, Copy, Debug)]
pub enum End {
    Cut(Survive),
    /// The process dies; whatever it wrote stays.
    Kill,
}

/// Options for the rig: tiny, stepped, on `machine`.
pub fn options(machine: &Machine, planted: Option<Planted>) -> Options {
    let options = crate::tiny().stepped().machine(machine);
    match planted {
        Some(bug) => options.planted(bug),
        None => options,
    }
}

/// In these tables values from 600 bytes on lie apart on disk.
const APART: [&str; 2] = ["b", "d"];

/// Whether values of a table lie apart.
pub fn lies_apart(name: &str) -> bool {
    APART.contains(&name)
}

/// What a table is created with whose values lie apart, or do not.
pub fn table_options(apart: bool) -> TableOptions {
    let options = TableOptions::new();
    if apart { options.large_values(600) } else { options }
}

/// A copy of a machine on which nothing is pending.
pub fn copy(machine: &Machine) -> Machine {
    machine.kill()
}

pub struct Rig {
    pub machine: Machine,
    pub db: Database,
    pub chance: Chance,
    pub planted: Option<Planted>,
    /// The content before the first of `commits`.
    base: Content,
    /// What was asked for since, in order; the last may be under way.
    commits: Vec<Vec<Effect>>,
    /// So many of them must survive a power cut.
    durable: usize,
    /// So many were acknowledged.
    acknowledged: usize,
    /// The content after all of them.
    pub content: Content,
    backups: Backups,
    /// While a recording is on: how many commits, and which backups, must survive after so many
    /// marks.
    marks: Option<Vec<(usize, Kept)>>,
    /// How many tables each commit of the recording wrote to, and whether it was durable.
    pub written: Vec<(usize, Durability)>,
    /// Of which tables values lie apart.
    pub apart: fn(&str) -> bool,
}

/// What a rig did while it was recorded, and what it owes for that.
#[derive(Debug)]
pub struct Recording {
    pub trace: Trace,
    account: Account,
    marks: Vec<(usize, Kept)>,
}

impl Recording {
    /// What must be found after a cut at `moment`.
    pub fn account(&self, moment: Moment) -> Account {
        let (durable, kept) = self.marks[moment.acknowledged];
        let mut account = Account { durable, ..self.account.clone() };
        account.backups.owe(kept);
        account
    }
}

impl Rig {
    pub fn new(kind: Kind, seed: u64, planted: Option<Planted>) -> Rig {
        let machine = kind.machine();
        let db = options(&machine, planted).create(PATH).unwrap();
        Rig {
            machine,
            db,
            chance: Chance::new(seed),
            planted,
            base: Content::default(),
            commits: Vec::new(),
            durable: 0,
            acknowledged: 0,
            content: Content::default(),
            backups: Backups::default(),
            marks: None,
            written: Vec::new(),
            apart: lies_apart,
        }
    }

    /// Records from now on what happens to the machine.
    pub fn record(&mut self) {
        self.account();
        self.marks = Some(vec![(self.durable, self.backups.kept())]);
        self.written.clear();
        self.machine.record();
    }

    /// Ends the recording.
    pub fn recorded(&mut self) -> Recording {
        let account = self.owed();
        let trace = self.machine.recorded().expect("a recording is on");
        let marks = self.marks.take().expect("a recording is on");
        Recording { trace, account, marks }
    }

    /// Any of the ways in which power is lost.
    pub fn survive(&mut self) -> Survive {
        match self.chance.below(4) {
            0 => Survive::Nothing,
            1 => Survive::Everything,
            _ => Survive::Seeded(self.chance.next()),
        }
    }

    /// Picks and does something.
    pub fn act(&mut self, taste: &Taste) {
        let action = workload::next(&mut self.chance, taste, &self.content);
        self.perform(&action);
    }

    /// Creates a table.
    pub fn create(&mut self, name: &str) {
        self.perform(&Action::Table(Effect::Create(name.into())));
    }

    /// Puts a value of `len` random bytes.
    pub fn put(&mut self, table: &str, key: &str, len: usize, durability: Durability) {
        let value = self.chance.bytes(len);
        let put = Effect::Put(table.into(), key.as_bytes().to_vec(), value);
        self.perform(&Action::Write(vec![put], durability));
    }

    /// Does it on the database and in the account.
    pub fn perform(&mut self, action: &Action) {
        match action {
            Action::Steps(n) => self.steps(*n),
            Action::Write(effects, durability) => {
                let batch = self.batch(effects);
                self.make_room(batch.stored_bytes() as u64);
                let tables: BTreeSet<&str> = effects.iter().filter_map(Effect::written).collect();
                self.written.push((tables.len(), *durability));
                self.begin(effects.clone());
                self.db.write_with(batch, *durability).unwrap();
                self.acknowledge(*durability);
            }
            Action::Table(effect) => {
                self.make_room(0);
                self.begin(vec![effect.clone()]);
                match effect {
                    Effect::Create(name) => {
                        let options = table_options((self.apart)(name));
                        self.db.create_table(name, options).unwrap();
                    }
                    Effect::Drop(name) => self.db.drop_table(name).unwrap(),
                    Effect::Rename(from, to) => self.db.rename_table(from, to).unwrap(),
                    Effect::Truncate(name) => self.db.truncate_table(name).unwrap(),
                    Effect::Prepare(n) => self.prepare_transaction(*n),
                    Effect::Commit(n) => self.db.commit_prepared(prepared_name(*n)).unwrap(),
                    Effect::RollBack(n) => self.db.roll_back_prepared(prepared_name(*n)).unwrap(),
                    Effect::Put(..) | Effect::Delete(..) | Effect::DeleteRange(..) => {
                        panic!("{effect:?} is a write")
                    }
                }
                self.acknowledge(Durability::Durable);
            }
        }
    }

    /// Writes in a transaction that keeps little in memory, between them some that it rolls back.
    pub fn transact(&mut self, effects: Vec<Effect>) {
        self.make_room(0);
        let txn = self.db.begin_with(TxnOptions::new().spill_at(6000)).unwrap();
        for (n, effect) in effects.iter().enumerate() {
            let handle = |table: &str| self.db.existing_table(table).unwrap();
            txn.set_savepoint("before").unwrap();
            match effect {
                Effect::Put(table, key, value) => {
                    if n % 5 == 0 {
                        txn.put(&handle(table), key, [7; 5000]).unwrap();
                        txn.roll_back_to("before").unwrap();
                    }
                    txn.put(&handle(table), key, value).unwrap();
                }
                Effect::Delete(table, key) => txn.delete(&handle(table), key).unwrap(),
                Effect::DeleteRange(table, start, end) => {
                    let range = (Bound::Included(start.clone()), upper(end.as_ref()));
                    txn.delete_range(&handle(table), range).unwrap();
                }
                other => panic!("{other:?} is no write"),
            }
            txn.release_savepoint("before").unwrap();
        }
        let tables: BTreeSet<&str> = effects.iter().filter_map(Effect::written).collect();
        self.written.push((tables.len(), Durability::Durable));
        self.begin(effects);
        txn.commit().unwrap();
        self.acknowledge(Durability::Durable);
    }

    /// Loads rows into a table; they take the place of others.
    pub fn load(&mut self, table: &str, rows: Rows) {
        self.make_room(0);
        let handle = self.db.existing_table(table).unwrap();
        let mut load = handle.bulk_load_with(Existing::Replace).unwrap();
        rows.iter().for_each(|(key, value)| load.put(key, value).unwrap());
        let put = |(key, value)| Effect::Put(table.into(), key, value);
        self.written.push((1, Durability::Durable));
        self.begin(rows.into_iter().map(put).collect());
        load.finish().unwrap();
        self.acknowledge(Durability::Durable);
    }

    fn prepare_transaction(&self, n: u64) {
        // Every second one keeps a row in memory, and spills the others.
        let spill_at = if n.is_multiple_of(2) { 1 } else { usize::MAX };
        let txn = self.db.begin_with(TxnOptions::new().spill_at(spill_at)).unwrap();
        for effect in prepared_rows(n) {
            match effect {
                Effect::Put(table, key, value) => {
                    txn.put(&self.db.existing_table(&table).unwrap(), key, value).unwrap();
                }
                Effect::Delete(table, key) => {
                    txn.delete(&self.db.existing_table(&table).unwrap(), key).unwrap();
                }
                other => panic!("{other:?} is no write"),
            }
        }
        txn.prepare(prepared_name(n)).unwrap();
    }

    fn batch(&self, effects: &[Effect]) -> WriteBatch {
        let mut batch = WriteBatch::new();
        for effect in effects {
            match effect {
                Effect::Put(table, key, value) => {
                    batch.put(&self.db.existing_table(table).unwrap(), key, value);
                }
                Effect::Delete(table, key) => {
                    batch.delete(&self.db.existing_table(table).unwrap(), key);
                }
                Effect::DeleteRange(table, start, end) => {
                    let range = (Bound::Included(start.clone()), upper(end.as_ref()));
                    batch.delete_range(&self.db.existing_table(table).unwrap(), range);
                }
                other => panic!("{other:?} is no write"),
            }
        }
        batch
    }

    fn begin(&mut self, effects: Vec<Effect>) {
        effects.iter().for_each(|effect| self.content.apply(effect));
        self.commits.push(effects);
    }

    fn acknowledge(&mut self, durability: Durability) {
        self.acknowledged = self.commits.len();
        if durability == Durability::Durable {
            self.durable = self.commits.len();
        }
        self.mark();
    }

    fn mark(&mut self) {
        if let Some(marks) = &mut self.marks {
            marks.push((self.durable, self.backups.kept()));
            self.machine.mark();
        }
    }

    /// Adds a backup to the set.
    pub fn back_up(&mut self) {
        self.backups.begin(self.content.clone());
        self.db.backup(SET).unwrap();
        self.backups.made();
        // What is in a backup is durable in its database.
        self.durable = self.commits.len();
        self.mark();
    }

    /// Deletes the oldest backup of the set.
    pub fn delete_backup(&mut self) {
        let number = self.backups.begin_deletion();
        let set = options(&self.machine, self.planted).backup_set(SET).unwrap();
        set.delete(number).unwrap();
        self.backups.deleted();
        self.mark();
    }

    /// Closes the database: everything is durable.
    pub fn close(&mut self) {
        self.db.clone().close().unwrap();
        self.durable = self.commits.len();
        self.mark();
    }

    /// Opens the database that was closed.
    pub fn open(&mut self) {
        self.db = options(&self.machine, self.planted).open(PATH).unwrap();
    }

    /// Opens the database that was closed, under a limit of memory.
    pub fn open_within(&mut self, memory: u64) {
        self.db = options(&self.machine, self.planted).memory(memory).open(PATH).unwrap();
    }

    fn forget_history(&mut self) {
        for effects in self.commits.drain(..) {
            effects.iter().for_each(|effect| self.base.apply(effect));
        }
        (self.durable, self.acknowledged) = (0, 0);
    }

    /// Up to `n` background jobs.
    pub fn steps(&mut self, n: u64) {
        for _ in 0..n {
            if !self.db.step().unwrap() {
                break;
            }
        }
    }

    /// Leaves the region with room for the next commit, of so many bytes, in one piece.
    pub fn make_room(&mut self, bytes: u64) {
        // Headers beside the records, of zone and parts.
        let piece = (bytes + 1024).next_power_of_two();
        let full = |db: &Database| {
            let pm = db.stats().pm;
            pm.zones - pm.zones_used < 5 || pm.largest_free < piece
        };
        let (mut jobs, mut idle) = (0, 0);
        while jobs < 400 && idle < 100_000 {
            if !full(&self.db) {
                return;
            }
            if self.db.step().unwrap() {
                jobs += 1;
            } else {
                // Another test of this process may hold an epoch that a zone waits for.
                idle += 1;
                std::thread::yield_now();
            }
        }
        panic!("{jobs} background jobs made no room: {:?}", self.db.stats());
    }

    /// Works until the planned end has come, `most` actions at most; what it left.
    pub fn work_until_found(&mut self, taste: &Taste, most: u64) -> Option<(Machine, Account)> {
        for _ in 0..most {
            let account = self.account();
            self.act(taste);
            if let Some(found) = self.machine.found() {
                return Some((found, account.with_last(self)));
            }
        }
        None
    }

    /// What must be found if the end comes now. Forgets what is beyond doubt.
    pub fn account(&mut self) -> Account {
        if self.durable == self.commits.len() {
            self.forget_history();
        }
        self.owed()
    }

    fn owed(&self) -> Account {
        Account {
            base: Arc::new(self.base.clone()),
            commits: Arc::new(self.commits.clone()),
            durable: self.durable,
            acknowledged: self.acknowledged,
            backups: self.backups.clone(),
        }
    }

    /// Goes on with another machine, whose content was found to be `content`.
    pub fn go_on(&mut self, machine: Machine, db: Database, content: Content) {
        self.machine = machine;
        self.db = db;
        self.base = content.clone();
        self.content = content;
        self.commits.clear();
        (self.durable, self.acknowledged) = (0, 0);
        self.backups = Backups::default();
    }
}

/// What a database had been asked for, and had acknowledged, when its end came.
#[derive(Clone, Debug)]
pub struct Account {
    base: Arc<Content>,
    commits: Arc<Vec<Vec<Effect>>>,
    durable: usize,
    acknowledged: usize,
    backups: Backups,
}

impl Account {
    /// With the commits that came since; one of them was under way. So may a backup be, or the
    /// deletion of one.
    pub fn with_last(mut self, rig: &Rig) -> Account {
        self.commits = Arc::new(rig.commits.clone());
        let kept = self.backups.kept();
        self.backups.clone_from(&rig.backups);
        self.backups.owe(kept);
        self
    }

    /// Holds `found` against the account.
    pub fn check(&self, end: End, found: &Content) -> Result<(), Violation> {
        let must = match end {
            End::Cut(_) => self.durable,
            End::Kill => self.acknowledged,
        };
        let mut content = Content::clone(&self.base);
        let mut matches = Vec::new();
        let mut differences = Differences::between(&content, found);
        for n in 0..=self.commits.len() {
            if differences.is_none(&content, found) {
                matches.push(n);
            }
            for effect in self.commits.get(n).into_iter().flatten() {
                content.apply(effect);
                differences.after(effect, &content, found);
            }
        }
        if matches.iter().any(|n| *n >= must) {
            return Ok(());
        }
        let all = self.commits.len();
        if let Some(n) = matches.last() {
            return Err(format!("found the first {n} of {all} commits, {must} must be there"));
        }
        let first = found.differs_from(&content).unwrap_or_default();
        Err(format!("found no prefix of {all} commits, {must} must be there; {first}"))
    }
}

/// Opens what was found after an end, and holds it against the account; a panic is a violation.
pub fn reopen(
    machine: &Machine,
    planted: Option<Planted>,
    account: &Account,
    end: End,
) -> Result<(Database, Content), Violation> {
    let opened =
        std::panic::catch_unwind(AssertUnwindSafe(|| -> terrace::Result<(Database, Content)> {
            let db = options(machine, planted).open(PATH)?;
            let content = read_all(&db)?;
            Ok((db, content))
        }));
    let (db, content) = match opened {
        Ok(Ok(opened)) => opened,
        Ok(Err(e)) => return Err(format!("after {end:?}: {e}")),
        Err(_) => return Err(format!("after {end:?}: a panic")),
    };
    account.check(end, &content).map_err(|what| format!("after {end:?}: {what}"))?;
    if let Some(note) = db.stats().pm.index_note {
        return Err(format!("after {end:?}: the index: {note}"));
    }
    account.backups.check(machine).map_err(|what| format!("after {end:?}: {what}"))?;
    let report = db.verify().map_err(|e| format!("after {end:?}: {e}"))?;
    match report.damages.first() {
        Some(damage) => Err(format!("after {end:?}: {damage}")),
        None => Ok((db, content)),
    }
}

/// Cuts the power again before each step of the opening of `machine`: every time the next opening
/// must find what an undisturbed one finds. Gives how many steps there were.
pub fn cut_the_opening(
    machine: &Machine,
    planted: Option<Planted>,
    want: &Content,
    survive: Survive,
    every: u64,
) -> Result<u64, Violation> {
    let mut n = 1;
    loop {
        let again = copy(machine);
        again.cut_before(n, survive);
        let db = options(&again, planted).open(PATH).map_err(|e| e.to_string())?;
        let Some(found) = again.found() else { return Ok(n) };
        drop(db);
        let db = options(&found, planted).open(PATH).map_err(|e| {
            format!("cut before step {n} of the opening ({survive:?}), opened again: {e}")
        })?;
        let content = read_all(&db).map_err(|e| e.to_string())?;
        if let Some(what) = content.differs_from(want) {
            return Err(format!("cut before step {n} of the opening ({survive:?}): {what}"));
        }
        n += every;
    }
}
