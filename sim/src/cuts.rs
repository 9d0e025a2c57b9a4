//! The rig that cuts the power: a database on a simulated machine, worked on by one thread, and
//! the account of what it acknowledged. After a cut the reopened database must hold the content
//! after some prefix of the commits, one that has every durable acknowledged commit in it.

mod objects;
mod openings;

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use terrace::testing::{Failpoint, Machine, Moment, Survive, Trace};
use terrace::{
    Database, Durability, ErrorKind, Existing, Level0Container, Result, Table, TableOptions,
    WriteBatch,
};

pub use crate::account::{Account, Commit, cut_the_opening, reopen};
use crate::backups::{Backups, Kept, SET};
use crate::chance::Chance;
use crate::content::{Content, Effect, Rows, Settings, prepared_name, upper};
use crate::disturbed::{Disturbed, has_failed};
pub use crate::machines::{
    ALL_KINDS, KINDS, Kind, PATH, copy, lies_apart, mixed_level0, options, table_options,
};
use crate::transact::{prepare_transaction, write_in_transaction};
use crate::violation::Class;
pub use crate::violation::Violation;
use crate::workload::{self, AGING, Action, Taste};

/// How a run ends.
#[derive(Clone, Copy, Debug)]
pub enum End {
    Cut(Survive),
    /// The process dies; whatever it wrote stays.
    Kill,
}

pub struct Rig {
    pub machine: Machine,
    pub db: Database,
    pub chance: Chance,
    pub failpoint: Option<Failpoint>,
    /// The content before the first of `commits`.
    base: Content,
    /// What was asked for since, in order; the last may be under way.
    commits: Vec<Commit>,
    /// So many of them must survive a power cut.
    durable: usize,
    /// So many were acknowledged.
    acknowledged: usize,
    /// The content after all of them.
    pub content: Content,
    backups: Backups,
    /// While a recording is on: what had been told after so many marks.
    marks: Option<Vec<Told>>,
    /// Calls may fail, with what has come of that; else each error ends the run.
    disturbed: Option<Disturbed>,
    /// How many tables each commit of the recording wrote to, and whether it was durable.
    pub written: Vec<(usize, Durability)>,
    /// Of which tables values lie apart.
    pub apart: fn(&str) -> bool,
    /// Whether tables have containers of level 0 by their names.
    mixes_level0: bool,
    is_closed: bool,
}

/// What a database had told at a moment.
#[derive(Clone, Copy, Debug)]
struct Told {
    /// So many commits must survive a power cut.
    durable: usize,
    /// So many commits had an outcome.
    settled: usize,
    kept: Kept,
}

/// What a rig did while it was recorded, and what it owes for that.
#[derive(Debug)]
pub struct Recording {
    pub trace: Trace,
    account: Account,
    marks: Vec<Told>,
}

impl Recording {
    /// What must be found after a cut at `moment`.
    pub fn account(&self, moment: Moment) -> Account {
        let Told { durable, settled, kept } = self.marks[moment.acknowledged];
        self.account.then(durable, settled, kept)
    }
}

/// Bytes of a rig's region, once it has grown.
const WHOLE: u64 = 2 << 20;

impl Rig {
    pub fn new(kind: Kind, seed: u64, failpoint: Option<Failpoint>) -> Rig {
        let machine = kind.machine();
        // In every fourth rig the region begins small, and grows in the course of things.
        let initial = if seed % 4 == 3 { WHOLE / 2 } else { WHOLE };
        let options = options(&machine, failpoint).pm_initial_size(initial);
        let db = options.create(PATH).unwrap();
        Rig::over((machine, db, Content::default()), kind, seed, failpoint)
    }

    /// Records from now on what happens to the machine.
    pub fn record(&mut self) {
        self.account();
        self.marks = Some(vec![self.told()]);
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
        // By the number of commits: what is drawn stays the same.
        let n = self.commits.len();
        let Some(table) = self.content.names().pop() else { return };
        match n % 11 {
            3 => {
                let blob = Effect::Blob(format!("blob {n}").into_bytes());
                let put = Effect::Put(table, b"key with blob".to_vec(), b"value".to_vec());
                self.perform(&Action::Write(vec![put, blob], Durability::Durable));
            }
            5 if !self.content.0.contains_key(AGING) => self.create(AGING),
            7 => {
                let ages = self.content.0.contains_key(AGING);
                let table = if ages { AGING.into() } else { table };
                let ttl = ages.then(|| Duration::from_hours(100_000 + n as u64));
                let settings = Settings { filter_bits: 5 + n as u8 % 8, ttl };
                self.perform(&Action::Table(Effect::Options(table, settings)));
            }
            _ => {}
        }
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
            Action::Sync => self.sync(),
            Action::Write(effects, durability) => {
                let Some(batch) = self.batch(effects) else { return };
                if !self.make_room(batch.stored_bytes() as u64) {
                    return;
                }
                self.note_written(effects, *durability);
                let durability = *durability;
                self.commit(effects.clone(), durability, |db| db.write_with(&batch, durability));
            }
            Action::Table(effect) => {
                if !self.make_room(0) || !self.can_do(effect) {
                    return;
                }
                let level0 = |name: &str| match self.mixes_level0 {
                    true => mixed_level0(name),
                    false => Level0Container::GlobalIndex,
                };
                let cold = self.cold_tier();
                let made = |name: &str| match name {
                    AGING => TableOptions::new().large_values(600),
                    name => table_options((self.apart)(name)),
                };
                let options = |name: &str| made(name).level0(level0(name)).cold(cold);
                let options = if let Effect::Create(name) = effect {
                    options(name)
                } else {
                    TableOptions::new()
                };
                self.commit(vec![effect.clone()], Durability::Durable, |db| match effect {
                    Effect::Create(name) => db.create_table(name, options).map(drop),
                    Effect::Drop(name) => db.drop_table(name),
                    Effect::Rename(from, to) => db.rename_table(from, to),
                    Effect::Truncate(name) => db.truncate_table(name),
                    Effect::Prepare(n) => prepare_transaction(db, *n),
                    Effect::Commit(n) => db.commit_prepared(prepared_name(*n)),
                    Effect::RollBack(n) => {
                        db.roll_back_prepared(prepared_name(*n), terrace::Durability::Durable)
                    }
                    Effect::Options(name, settings) => {
                        let options = db.existing_table(name)?.options();
                        db.set_table_options(name, settings.set(options))
                    }
                    Effect::Blob(_)
                    | Effect::Put(..)
                    | Effect::Merge(..)
                    | Effect::Delete(..)
                    | Effect::DeleteRange(..) => {
                        panic!("{effect:?} is a write")
                    }
                });
            }
        }
    }

    /// Whether an action on a table is possible and a commit: where calls fail, what a scenario
    /// counts on may not have come to be, and options that a table has already are set without one.
    fn can_do(&self, effect: &Effect) -> bool {
        if let Effect::Options(name, settings) = effect
            && self.content.2.get(name) == Some(settings)
        {
            return false;
        }
        let there = |name: &String| self.content.0.contains_key(name);
        let has = |n: &u64| self.content.1.contains(&prepared_name(*n));
        // Tables with writes of prepared transactions stay what they are.
        let is_free = |name: &String| self.content.1.is_empty() || !["a", "b"].contains(&&**name);
        self.disturbed.is_none()
            || match effect {
                Effect::Create(name) => !there(name),
                Effect::Options(name, _) => there(name),
                Effect::Drop(name) | Effect::Truncate(name) => there(name) && is_free(name),
                Effect::Rename(from, to) => there(from) && is_free(from) && !there(to),
                Effect::Prepare(n) => {
                    !has(n) && ["a", "b"].iter().all(|name| self.content.0.contains_key(*name))
                }
                Effect::Commit(n) | Effect::RollBack(n) => has(n),
                Effect::Blob(_)
                | Effect::Put(..)
                | Effect::Merge(..)
                | Effect::Delete(..)
                | Effect::DeleteRange(..) => true,
            }
    }

    fn note_written(&mut self, effects: &[Effect], durability: Durability) {
        let tables: BTreeSet<&str> = effects.iter().filter_map(Effect::written).collect();
        self.written.push((tables.len(), durability));
    }

    /// Writes in a transaction that keeps little in memory, between them some that it rolls back.
    pub fn transact(&mut self, effects: Vec<Effect>) {
        if !self.make_room(0) {
            return;
        }
        let written = write_in_transaction(&self.db, &effects);
        let Some(txn) = self.tolerate("write in a transaction", written) else { return };
        self.note_written(&effects, Durability::Durable);
        self.commit(effects, Durability::Durable, |_| txn.commit());
    }

    /// Loads rows into a table; they take the place of others.
    pub fn load(&mut self, table: &str, rows: Rows) {
        let Some(handle) = self.table(table) else { return };
        if !self.make_room(0) {
            return;
        }
        let loaded = || {
            let mut load = handle.bulk_load(Existing::Replace)?;
            rows.iter().try_for_each(|(key, value)| load.put(key, value))?;
            Ok(load)
        };
        let loaded = loaded();
        let Some(mut load) = self.tolerate("load", loaded) else { return };
        let put = |(key, value)| Effect::Put(table.into(), key, value);
        self.written.push((1, Durability::Durable));
        let effects = rows.into_iter().map(put).collect();
        self.commit(effects, Durability::Durable, |_| load.finish().map(drop));
    }

    /// The handle of a table. Where calls fail, it may not be there: a creation has an unknown
    /// outcome until the next opening.
    fn table(&mut self, name: &str) -> Option<Table> {
        let handle = self.db.existing_table(name);
        if self.has_unknown() || !self.content.0.contains_key(name) {
            return handle.ok();
        }
        self.tolerate("open a table", handle)
    }

    fn batch(&mut self, effects: &[Effect]) -> Option<WriteBatch> {
        let mut batch = WriteBatch::new();
        for effect in effects {
            if let Effect::Blob(blob) = effect {
                batch.set_blob(blob);
                continue;
            }
            let name = effect.written().unwrap_or_else(|| panic!("{effect:?} is no write"));
            let table = self.table(name)?;
            match effect {
                Effect::Put(_, key, value) => {
                    batch.put(&table, key, value);
                }
                Effect::Merge(_, key, operand) => {
                    batch.merge(&table, key, operand);
                }
                Effect::Delete(_, key) => {
                    batch.delete(&table, key);
                }
                Effect::DeleteRange(_, start, end) => {
                    let range = (Bound::Included(start.clone()), upper(end.as_ref()));
                    batch.delete_range(&table, range);
                }
                other => panic!("{other:?} is no write"),
            }
        }
        Some(batch)
    }

    /// One commit: from its beginning on it may be there after an end.
    fn commit(
        &mut self,
        effects: Vec<Effect>,
        durability: Durability,
        run: impl FnOnce(&Database) -> Result<()>,
    ) {
        effects.iter().for_each(|effect| self.content.apply(effect));
        self.commits.push(Commit { effects, failed: false });
        self.note(|rig| {
            format!("commit {}, {durability:?}: {}", rig.commits.len(), rig.last_in_words())
        });
        let done = run(&self.db);
        let kind = done.as_ref().err().map(terrace::Error::kind);
        if self.tolerate("commit", done).is_some() {
            if self.has_unknown() {
                self.complain(Class::WrongError, "a commit after one with an unknown outcome");
            }
            self.disturbed.iter_mut().for_each(Disturbed::passed);
            self.acknowledged = self.commits.len();
            if durability == Durability::Durable {
                self.durable = self.commits.len();
            }
        } else if kind != Some(ErrorKind::UnknownOutcome) {
            self.take_back();
        }
        self.mark();
    }

    fn last_in_words(&self) -> String {
        let effects = self.commits.last().into_iter().flat_map(|commit| &commit.effects);
        effects.map(Effect::in_words).collect::<Vec<_>>().join(", ")
    }

    /// The last commit was not done.
    fn take_back(&mut self) {
        if let Some(last) = self.commits.last_mut() {
            last.failed = true;
        }
        self.content = self.base.clone();
        let done = self.commits.iter().filter(|commit| !commit.failed);
        done.flat_map(|commit| &commit.effects).for_each(|effect| self.content.apply(effect));
    }

    fn told(&self) -> Told {
        let (durable, settled) = (self.durable, self.commits.len());
        Told { durable, settled, kept: self.backups.kept() }
    }

    fn mark(&mut self) {
        let told = self.told();
        if let Some(marks) = &mut self.marks {
            marks.push(told);
            self.machine.mark();
        }
    }

    /// From now on calls may fail: errors are part of the account.
    pub fn disturb(&mut self) {
        self.disturbed = Some(Disturbed::default());
    }

    /// What has come of calls that fail.
    pub fn disturbed(&self) -> Option<&Disturbed> {
        self.disturbed.as_ref()
    }

    fn has_unknown(&self) -> bool {
        self.disturbed.as_ref().is_some_and(|disturbed| disturbed.has_unknown)
    }

    /// Notes something for the report of a violation, where calls fail.
    fn note(&mut self, what: impl FnOnce(&Rig) -> String) {
        if self.disturbed.is_some() {
            let what = what(self);
            self.disturbed.iter_mut().for_each(|disturbed| disturbed.note(what.clone()));
        }
    }

    fn complain(&mut self, class: Class, what: &str) {
        self.disturbed.iter_mut().for_each(|disturbed| disturbed.complain(class, what));
    }

    /// What a call gave; `None` for an error that it may tell where calls fail.
    pub fn tolerate<T>(&mut self, what: &str, result: Result<T>) -> Option<T> {
        match (result, &mut self.disturbed) {
            (Ok(value), _) => Some(value),
            (Err(error), None) => {
                panic!("{}", Class::WrongError.violation(format!("{what}: {error}")))
            }
            (Err(error), Some(disturbed)) => {
                if disturbed.failed(what, &error, has_failed(&self.machine)) {
                    self.mend();
                }
                None
            }
        }
    }

    /// Adds a backup to the set.
    pub fn back_up(&mut self) {
        if !self.goes_on() || self.has_unknown() {
            return;
        }
        self.note(|_| "a backup".into());
        self.backups.begin(self.content.clone());
        let made = self.db.backup(SET);
        if self.tolerate("back up", made).is_some() {
            self.backups.made();
            // What is in a backup is durable in its database.
            self.durable = self.commits.len();
        } else {
            self.backups.not_made(&self.machine);
        }
        self.mark();
    }

    /// Deletes the oldest backup of the set.
    pub fn delete_backup(&mut self) {
        if self.disturbed.is_some() && !(self.goes_on() && self.backups.has_several()) {
            return;
        }
        let number = self.backups.begin_deletion();
        let set = options(&self.machine, self.failpoint).backup_set(SET);
        let deleted = set.and_then(|set| set.delete(number));
        if self.tolerate("delete a backup", deleted).is_some() {
            self.backups.deleted();
        } else {
            self.backups.not_deleted(&self.machine);
        }
        self.mark();
    }

    fn forget_history(&mut self) {
        for commit in self.commits.drain(..).filter(|commit| !commit.failed) {
            commit.effects.iter().for_each(|effect| self.base.apply(effect));
        }
        (self.durable, self.acknowledged) = (0, 0);
    }

    /// Up to `n` background jobs.
    pub fn steps(&mut self, n: u64) {
        for _ in 0..n {
            if !self.step() {
                break;
            }
        }
    }

    /// One background job; whether there was one, and it was done.
    pub fn step(&mut self) -> bool {
        let stepped = self.db.step();
        let has_worked = self.tolerate("step", stepped).unwrap_or(false);
        if has_worked {
            self.disturbed.iter_mut().for_each(Disturbed::passed);
        }
        has_worked
    }

    /// Has a region that began small be as large as it is to become, if it is not; whether it grew.
    /// By itself it grows for a commit that needs it, and no earlier.
    fn grow_to_whole(&mut self) -> bool {
        let pm = self.db.stats().pm;
        if u64::from(pm.zones) * pm.zone_size >= WHOLE {
            return false;
        }
        let grown = self.db.grow_pm(WHOLE);
        self.tolerate("grow the region", grown).is_some()
    }

    /// Leaves the region with room for the next commit, of so many bytes, in one piece. Where calls
    /// fail it may not come to that; whether it did.
    pub fn make_room(&mut self, bytes: u64) -> bool {
        // Headers beside the records, of zone and parts.
        let piece = (bytes + 1024).next_power_of_two();
        let full = |db: &Database| {
            let pm = db.stats().pm;
            let free = u64::from(pm.zones - pm.zones_used) * pm.zone_size;
            // Some of it is kept for deletes.
            free < piece + 4 * pm.zone_size || pm.largest_free < piece
        };
        let most_idle = self.disturbed.as_ref().map_or(100_000, Disturbed::most_idle);
        let (mut jobs, mut idle) = (0, 0);
        while jobs < 400 && idle < most_idle {
            if !self.goes_on() {
                return false;
            }
            if !full(&self.db) {
                return true;
            }
            if self.step() || self.grow_to_whole() {
                jobs += 1;
            } else {
                // Another test of this process may hold an epoch that a zone waits for.
                idle += 1;
                std::thread::yield_now();
            }
        }
        if self.disturbed.is_none() {
            panic!("{jobs} background jobs made no room: {:?}", self.db.stats());
        }
        let has_stopped = self.db.sync().is_err();
        self.disturbed.iter_mut().for_each(|disturbed| disturbed.no_room(has_stopped));
        false
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
            settled: self.commits.len(),
            backups: self.backups.clone(),
        }
    }

    pub(crate) fn commits(&self) -> &[Commit] {
        &self.commits
    }

    pub(crate) fn backups(&self) -> &Backups {
        &self.backups
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

    /// The same with a machine on which calls failed, and fail again: backups are there from
    /// earlier lives.
    pub fn live_on(&mut self, (machine, db, content): (Machine, Database, Content), end: End) {
        let mut backups = std::mem::take(&mut self.backups);
        backups.live_on(&machine, end);
        self.go_on(machine, db, content);
        self.backups = backups;
        self.disturb();
    }
}
