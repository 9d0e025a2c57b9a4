//! One random course of everything that tables can do, over every container of level 0: all tables
//! in one of them, and each table in another. Commits go over three tables: one with operands, one
//! with values that lie apart too, and one whose rows expire.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::ops::Bound;
use std::time::Duration;

use crate::common::content::{
    Content, Effect, Rows, Settings, prepared_name, prepared_rows, read_all, read_table, upper,
};
use crate::common::cuts::{Kind, PATH, options};
use crate::common::{Chance, rounds, together};
use terrace::testing::{HandClock, Machine, Survive};
use terrace::{
    Database, Durability, Existing, Level0Container, Snapshot, TableOptions, WriteBatch, operators,
};

const ALL: [Level0Container; 3] =
    [Level0Container::GlobalIndex, Level0Container::Matrix, Level0Container::Triangle];

/// Prepared transactions write the first two.
const NAMES: [&str; 3] = ["a", "b", "c"];

/// Rows of this one expire.
const AGING: &str = "c";
const TTL: Duration = Duration::from_secs(60);

const SET: &str = "/set";

const KEYS: u64 = 400;

struct Course {
    machine: Machine,
    clock: HandClock,
    chance: Chance,
    containers: [Level0Container; 3],
    db: Option<Database>,
    content: Content,
    snapshots: Vec<(Snapshot, Content)>,
    /// Numbers of prepared transactions.
    prepared: Vec<u64>,
    next: u64,
    /// Row tables, drains, compactions, and what else all lives came to.
    did: [u64; 3],
}

impl Course {
    fn new(kind: Kind, containers: [Level0Container; 3], seed: u64) -> Course {
        let mut course = Course {
            machine: kind.machine(),
            clock: HandClock::default(),
            chance: Chance::new(seed),
            containers,
            db: None,
            content: Content::default(),
            snapshots: Vec::new(),
            prepared: Vec::new(),
            next: 0,
            did: [0; 3],
        };
        let options = options(&course.machine, None).clock(&course.clock);
        course.db = Some(options.create(PATH).unwrap());
        NAMES.into_iter().for_each(|name| course.create(name));
        course
    }

    fn db(&self) -> &Database {
        self.db.as_ref().unwrap()
    }

    fn create(&mut self, name: &str) {
        let table = NAMES.iter().position(|n| *n == name).unwrap();
        let options = TableOptions::new().level0(self.containers[table]);
        let options = match name {
            AGING => options.ttl(TTL).large_values(600),
            "b" => options.merge_operator(operators::APPEND).large_values(600),
            _ => options.merge_operator(operators::APPEND),
        };
        let settings = Settings::of(&options);
        self.db().create_table(name, options).unwrap();
        self.content.apply(&Effect::Create(name.into()));
        self.content.apply(&Effect::Options(name.into(), settings));
    }

    fn key(&mut self) -> Vec<u8> {
        format!("key {:04}", self.chance.below(KEYS)).into_bytes()
    }

    fn name(&mut self) -> &'static str {
        NAMES[self.chance.below(3) as usize]
    }

    /// A table that no prepared transaction has written to.
    fn free_name(&mut self) -> &'static str {
        if self.prepared.is_empty() { self.name() } else { AGING }
    }

    /// One commit over some tables.
    fn write(&mut self) {
        let mut effects = Vec::new();
        for _ in 0..1 + self.chance.below(3) {
            let (name, key) = (self.name(), self.key());
            let len = if self.chance.below(8) == 0 { 3000 } else { self.chance.below(700) };
            let value = self.chance.bytes(len as usize);
            effects.push(match self.chance.below(8) {
                0 => Effect::Delete(name.into(), key),
                1 if name != AGING => {
                    Effect::Merge(name.into(), key, value[..len as usize / 9].into())
                }
                2 if self.chance.below(4) == 0 => {
                    // Ten keys.
                    let end = [&key[..key.len() - 1], b"~"].concat();
                    Effect::DeleteRange(name.into(), key, Some(end))
                }
                _ => Effect::Put(name.into(), key, value),
            });
        }
        let mut batch = WriteBatch::new();
        for effect in &effects {
            let table = self.db().existing_table(effect.written().unwrap()).unwrap();
            match effect {
                Effect::Put(_, key, value) => batch.put(&table, key, value),
                Effect::Merge(_, key, operand) => batch.merge(&table, key, operand),
                Effect::Delete(_, key) => batch.delete(&table, key),
                Effect::DeleteRange(_, start, end) => {
                    let range = (Bound::Included(start.clone()), upper(end.as_ref()));
                    batch.delete_range(&table, range)
                }
                other => panic!("{other:?}"),
            };
        }
        let durability =
            if self.chance.percent(20) { Durability::Durable } else { Durability::Relaxed };
        self.db().write_with(&batch, durability).unwrap();
        effects.iter().for_each(|effect| self.content.apply(effect));
    }

    fn load(&mut self) {
        let (name, from) = (self.name(), self.chance.below(KEYS));
        let table = self.db().existing_table(name).unwrap();
        let mut load = table.bulk_load(Existing::Replace).unwrap();
        for n in from..from + 30 {
            let (key, value) = (format!("key {n:04}").into_bytes(), self.chance.bytes(400));
            load.put(&key, &value).unwrap();
            self.content.apply(&Effect::Put(name.into(), key, value));
        }
        load.finish().unwrap();
    }

    fn prepare(&mut self) {
        let n = self.next;
        self.next += 1;
        let txn = self.db().begin().unwrap();
        for effect in prepared_rows(n) {
            let table = self.db().existing_table(effect.written().unwrap()).unwrap();
            match &effect {
                Effect::Put(_, key, value) => txn.put(&table, key, value).unwrap(),
                Effect::Delete(_, key) => txn.delete(&table, key).unwrap(),
                other => panic!("{other:?}"),
            }
        }
        txn.prepare(prepared_name(n)).unwrap();
        self.prepared.push(n);
        self.content.apply(&Effect::Prepare(n));
    }

    fn resolve(&mut self) {
        let Some(n) = self.prepared.pop() else { return };
        if self.chance.percent(60) {
            self.db().commit_prepared(prepared_name(n)).unwrap();
            self.content.apply(&Effect::Commit(n));
        } else {
            self.db().roll_back_prepared(prepared_name(n), terrace::Durability::Durable).unwrap();
            self.content.apply(&Effect::RollBack(n));
        }
    }

    /// Takes a snapshot, or looks at one from before drains and all else that came since.
    fn snapshot(&mut self) {
        if self.snapshots.len() < 3 && self.chance.percent(50) {
            let taken = (self.db().snapshot().unwrap(), self.content.clone());
            self.snapshots.push(taken);
        } else if !self.snapshots.is_empty() {
            let n = self.chance.below(self.snapshots.len() as u64) as usize;
            let (snapshot, content) = self.snapshots.swap_remove(n);
            for (name, rows) in &content.0 {
                let table = self.db().existing_table(name).unwrap();
                let found: Rows = snapshot
                    .range(&table, ..)
                    .map(|row| row.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap())
                    .collect();
                assert!(found == *rows, "{name}: {} of {} rows", found.len(), rows.len());
            }
        }
    }

    /// Lets go of snapshots that a change of a table would make useless.
    fn forget_snapshots(&mut self) {
        self.snapshots.clear();
    }

    fn compact(&mut self) {
        let (name, mut bounds) = (self.name(), [self.key(), self.key()]);
        bounds.sort();
        let [from, to] = bounds;
        let table = self.db().existing_table(name).unwrap();
        self.db().compact_range(&table, from..to).unwrap();
    }

    fn back_up(&mut self) {
        let info = self.db().backup(SET).unwrap();
        let machine = self.machine.files_alone();
        machine.mend();
        let options = || options(&machine, None).clock(&self.clock);
        let set = options().backup_set(SET).unwrap();
        assert_eq!(set.verify().unwrap().damages, []);
        set.restore(info.number, "/restored").unwrap();
        let restored = options().open("/restored").unwrap();
        let mut want = self.content.clone();
        want.1.clear();
        assert_eq!(read_all(&restored).unwrap().differs_from(&want), None);
    }

    fn expire(&mut self) {
        // What came before a restart is as old as the next mark says.
        self.clock.pass(Duration::from_secs(2));
        while self.db().step().unwrap() {}
        self.clock.pass(2 * TTL);
        self.content.apply(&Effect::Truncate(AGING.into()));
        let table = self.db().existing_table(AGING).unwrap();
        assert_eq!(read_table(&table).unwrap().len(), 0, "{:?}", self.containers);
    }

    fn count(&mut self) {
        let background = self.db().stats().background;
        let did = [background.row_tables, background.drains, background.compactions];
        self.did.iter_mut().zip(did).for_each(|(all, did)| *all += did);
    }

    /// Closes it and opens it again, or the power goes.
    fn restart(&mut self) {
        self.forget_snapshots();
        self.count();
        if self.chance.percent(50) {
            self.db.take().unwrap().close().unwrap();
        } else {
            let table = self.db().existing_table(AGING).unwrap();
            // All that came before is durable with it.
            table.durability(Durability::Durable).put("last", "1").unwrap();
            self.content.apply(&Effect::Put(AGING.into(), b"last".into(), b"1".into()));
            let survive = Survive::Seeded(self.chance.next());
            self.machine = self.machine.crash(survive);
            self.db = None;
        }
        let options = options(&self.machine, None).clock(&self.clock);
        self.db = Some(options.open(PATH).unwrap());
        self.agrees();
    }

    fn change_container(&mut self) {
        // Of a table with a time to live, new options count for snapshots too.
        self.forget_snapshots();
        let table = self.chance.below(3) as usize;
        self.containers[table] = ALL[self.chance.below(3) as usize];
        let handle = self.db().existing_table(NAMES[table]).unwrap();
        let options = handle.options().level0(self.containers[table]);
        self.db().set_table_options(NAMES[table], options).unwrap();
    }

    fn act(&mut self, changes: bool) {
        match self.chance.below(120) {
            0..=1 => self.load(),
            2..=3 if self.prepared.len() < 3 => self.prepare(),
            2..=5 => self.resolve(),
            6..=11 => self.snapshot(),
            12..=13 => self.compact(),
            14 => self.back_up(),
            15 => assert_eq!(self.db().verify().unwrap().damages, []),
            16 => {
                self.forget_snapshots();
                let name = self.free_name();
                self.db().truncate_table(name).unwrap();
                self.content.apply(&Effect::Truncate(name.into()));
            }
            17 => {
                self.forget_snapshots();
                let name = self.free_name();
                self.db().drop_table(name).unwrap();
                self.content.apply(&Effect::Drop(name.into()));
                self.create(name);
            }
            18 => self.expire(),
            19..=20 => self.restart(),
            21 if changes => self.change_container(),
            _ => self.write(),
        }
        for _ in 0..self.chance.below(3) {
            self.db().step().unwrap();
        }
        let has_little = |db: &Database| db.stats().pm.zones - db.stats().pm.zones_used < 6;
        while has_little(self.db()) && self.db().step().unwrap() {}
    }

    fn agrees(&self) {
        let found = read_all(self.db()).unwrap();
        assert_eq!(found.differs_from(&self.content), None, "{:?}", self.containers);
    }

    /// So many acts; what the background did.
    fn run(mut self, acts: u64, changes: bool) -> [u64; 3] {
        for n in 0..acts {
            self.act(changes);
            if n % 40 == 0 {
                self.agrees();
            }
        }
        while self.db().step().unwrap() {}
        self.agrees();
        assert_eq!(self.db().verify().unwrap().damages, []);
        self.restart();
        self.did
    }
}

#[test]
fn tables_do_all_that_they_can_in_every_container() {
    let _together = together();
    for (n, container) in ALL.into_iter().enumerate() {
        for kind in [Kind::Files, Kind::Memory] {
            for seed in 0..rounds(1, 30) {
                let did =
                    Course::new(kind, [container; 3], 1000 * seed + n as u64).run(1500, false);
                let [row_tables, drains, compactions] = did;
                assert_eq!(row_tables > 0, container != Level0Container::GlobalIndex, "{did:?}");
                assert!(drains > 5 && compactions > 0, "{container:?}: {did:?}");
            }
        }
    }
}

#[test]
fn tables_do_all_that_they_can_in_containers_that_differ_and_change() {
    let _together = together();
    for seed in 0..rounds(3, 60) {
        let kind = [Kind::Memory, Kind::Files][seed as usize % 2];
        let mut chance = Chance::new(seed);
        let containers = [(); 3].map(|()| ALL[chance.below(3) as usize]);
        Course::new(kind, containers, 77 + seed).run(1500, true);
    }
}
