//! Power cuts and kills while several writers, tables that come and go, drains, compactions and
//! edits of the journal are under way, with large values, operands, deleted ranges and a time to
//! live. Each image is opened by a database with a background of its own, and once more.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests stop and tell")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::content::{Content, Effect, Rows, read_all, upper};
use crate::common::cuts::{Kind, PATH, table_options};
use crate::common::{Chance, Course, rounds, tiny};
use terrace::testing::{Machine, Survive};
use terrace::{
    Database, Durability, ObjectServer, Options, StoreFault, TableOptions, Tier, WriteBatch,
};

const WRITERS: u64 = 3;
const IMAGES: usize = 8;
/// Commits of all writers between two images.
const BETWEEN: u64 = 150;
/// Tables of all writers: one takes operands, one has a time to live.
const SHARED: [&str; 2] = ["operands", "aging"];

fn options(machine: &Machine) -> Options {
    tiny().machine(machine)
}

/// What the commit `n` of writer `t` does where its rows and its own tables are `content`: one
/// event of a table, or writes.
fn effects(t: u64, n: u64, content: &Content) -> Vec<Effect> {
    let mut chance = Chance::new(t << 32 | n);
    let own: Vec<String> =
        content.names().into_iter().filter(|name| !SHARED.contains(&&**name)).collect();
    if n % 30 == 29 {
        let Some(name) = own.first().cloned() else {
            return vec![Effect::Create(format!("own {t}"))];
        };
        let other = format!("own {t}, event {n}");
        return vec![match chance.below(3) {
            0 => Effect::Truncate(name),
            1 => Effect::Drop(name),
            _ => Effect::Rename(name, other),
        }];
    }
    let names: Vec<&str> = SHARED.into_iter().chain(own.iter().map(String::as_str)).collect();
    let key = |number: u64| format!("{t} {number:03}").into_bytes();
    let one = |chance: &mut Chance| {
        let (name, number) = (chance.pick(&names).to_string(), chance.below(150));
        match chance.below(20) {
            0 | 1 => Effect::Delete(name, key(number)),
            2 => Effect::DeleteRange(name, key(number), Some(key(number + 12))),
            3..=6 if name != "aging" => Effect::Merge(name, key(number), chance.bytes(20)),
            dice => {
                let most = if dice < 14 { 100 } else { 5000 };
                let len = chance.below(most) as usize;
                Effect::Put(name, key(number), chance.bytes(len))
            }
        }
    };
    (0..1 + chance.below(3)).map(|_| one(&mut chance)).collect()
}

/// How far one writer has come.
#[derive(Default)]
struct Progress {
    begun: AtomicU64,
    told: AtomicU64,
    durable: AtomicU64,
}

impl Progress {
    /// Does one commit after the other until it is told to stop.
    fn write(&self, db: &Database, t: u64, stop: &AtomicBool) {
        let mut content = empty();
        for n in 1.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            self.begun.store(n, Ordering::SeqCst);
            let effects = effects(t, n, &content);
            let durability = if n % 8 == 0 { Durability::Durable } else { Durability::Relaxed };
            let is_durable = match &effects[..] {
                [Effect::Create(name)] => db.create_table(name, table_options(true)).map(drop),
                [Effect::Truncate(name)] => db.truncate_table(name),
                [Effect::Drop(name)] => db.drop_table(name),
                [Effect::Rename(from, to)] => db.rename_table(from, to),
                writes => db.write_with(&batch(db, writes), durability),
            }
            .map(|()| durability == Durability::Durable || effects[0].written().is_none());
            if is_durable.unwrap_or_else(|e| panic!("commit {n} of writer {t}: {e}")) {
                self.durable.store(n, Ordering::SeqCst);
            }
            self.told.store(n, Ordering::SeqCst);
            effects.iter().for_each(|effect| content.apply(effect));
        }
    }
}

fn batch(db: &Database, writes: &[Effect]) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for effect in writes {
        let table = db.existing_table(effect.written().unwrap()).unwrap();
        match effect {
            Effect::Put(_, key, value) => batch.put(&table, key, value),
            Effect::Merge(_, key, operand) => batch.merge(&table, key, operand),
            Effect::Delete(_, key) => batch.delete(&table, key),
            Effect::DeleteRange(_, start, end) => batch.delete_range(
                &table,
                (std::ops::Bound::Included(start.clone()), upper(end.as_ref())),
            ),
            other => panic!("{other:?} is no write"),
        };
    }
    batch
}

fn empty() -> Content {
    let mut content = Content::default();
    SHARED.into_iter().for_each(|name| content.apply(&Effect::Create(name.into())));
    content
}

/// What lies on disk at some time.
#[derive(Debug, Default)]
struct Reached {
    level2: bool,
    ranges: bool,
    values: bool,
    /// Extents in the object store, where there is one.
    objects: bool,
}

impl Reached {
    fn look(&mut self, db: &Database) -> bool {
        let stats = db.stats();
        self.objects |= stats.objects.is_none_or(|objects| objects.objects > 0);
        for table in stats.tables {
            self.values |= table.value_extents > 0;
            for of in &table.levels {
                self.level2 |= of.level >= 2 && of.records > 0;
                self.ranges |= of.range_deletes > 0;
            }
        }
        self.has_all()
    }

    fn has_all(&self) -> bool {
        self.level2 && self.ranges && self.values && self.objects
    }
}

/// What an end left, and how far each writer has to have come there, and may.
struct Image {
    machine: Machine,
    spans: Vec<(u64, u64)>,
    what: String,
}

fn take(machine: &Machine, writers: &[Progress], seed: u64) -> Image {
    let is_kill = seed % 2 == 1;
    let count = |of: fn(&Progress) -> &AtomicU64| -> Vec<u64> {
        writers.iter().map(|writer| of(writer).load(Ordering::SeqCst)).collect()
    };
    let must = count(if is_kill { |of| &of.told } else { |of| &of.durable });
    let found = if is_kill { machine.kill() } else { machine.crash(Survive::Seeded(seed)) };
    let spans = must.into_iter().zip(count(|of| &of.begun)).collect();
    Image { machine: found, spans, what: format!("image {seed}, a kill: {is_kill}") }
}

/// What of the tables is of writer `t`: rows with its number, and its tables.
fn part_of(t: u64, found: &Content) -> BTreeMap<String, Rows> {
    let (own, mine) = (format!("own {t}"), format!("{t} "));
    let rows = |rows: &Rows| -> Rows {
        let mine = rows.iter().filter(|(key, _)| key.starts_with(mine.as_bytes()));
        mine.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let tables = found.0.iter();
    let tables = tables.filter(|(name, _)| SHARED.contains(&&***name) || name.starts_with(&own));
    tables.map(|(name, found)| (name.clone(), rows(found))).collect()
}

/// Each writer's part is what it was after one of its commits in the span.
fn check(found: &Content, spans: &[(u64, u64)], what: &str) {
    for (t, (must, may)) in (0..).zip(spans.iter().copied()) {
        let (part, mut content) = (part_of(t, found), empty());
        let is_it = (0..=may).any(|n| {
            if n > 0 {
                effects(t, n, &content).iter().for_each(|effect| content.apply(effect));
            }
            n >= must && content.0 == part
        });
        let after = |n: u64| {
            let mut at = empty();
            (1..=n).for_each(|n| {
                let effects = effects(t, n, &at);
                effects.iter().for_each(|effect| at.apply(effect));
            });
            at.0
        };
        let differs = || {
            let (found, must) = (part_of(t, found), after(must));
            let names = [&found, &must].map(|of| of.keys().cloned().collect::<Vec<_>>());
            let rows = |of: &BTreeMap<String, Rows>| of.values().flatten().count();
            format!("{} rows of {} in {names:?}", rows(&found), rows(&must))
        };
        assert!(is_it, "{what}, writer {t} at {must} to {may}: {}", differs());
    }
}

/// Opens an image, holds it against the account, works on it, and opens it once more.
fn check_image(image: &Image) {
    let Image { machine, spans, what } = image;
    let open = || options(machine).open(PATH).unwrap_or_else(|e| panic!("{what}: {e}"));
    let db = open();
    let found = read_all(&db).unwrap();
    check(&found, spans, what);
    assert_eq!(db.verify().unwrap().damages, [], "{what}");
    for name in db.table_names() {
        let table = db.existing_table(&name).unwrap();
        db.compact_range(&table, ..).unwrap_or_else(|e| panic!("{what}: {e}"));
    }
    assert_eq!(read_all(&db).unwrap().differs_from(&found), None, "{what}, compacted");
    db.close().unwrap();
    let db = open();
    assert_eq!(read_all(&db).unwrap().differs_from(&found), None, "{what}, opened again");
    assert_eq!(db.verify().unwrap().damages, [], "{what}, opened again");
}

fn has_worked(db: &Database) -> bool {
    let background = db.stats().background;
    background.drains > 3 && background.compactions > 1
}

fn run(kind: Kind, seed: u64) {
    let machine = kind.machine();
    let db = options(&machine).create(PATH).unwrap();
    let store = ObjectServer::of_machine(&machine);
    let cold = if store.is_some() { Tier::Object } else { Tier::Ssd };
    // A table takes operands or has a time to live.
    let aging = TableOptions::new().large_values(600).ttl(Duration::from_hours(100_000));
    db.create_table("operands", table_options(true).cold(cold)).unwrap();
    db.create_table("aging", aging.cold(cold)).unwrap();
    if let Some(store) = &store {
        // The two threads that compact with objects and delete them meet a store that is not well.
        let faults = [
            StoreFault::Throttle,
            StoreFault::LoseAnswer,
            StoreFault::LoseRequest,
            StoreFault::Repeat(4),
        ];
        let (from, of) = (store.requests() + 5, faults.into_iter().cycle());
        (from..from + 3000).step_by(11).zip(of).for_each(|(n, fault)| store.plan(n, fault));
    }
    let writers: Vec<Progress> = (0..WRITERS).map(|_| Progress::default()).collect();
    let (mut images, mut next) = (VecDeque::new(), BETWEEN);
    let (mut reached, stop) = (Reached::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(&writers)
            .map(|(t, writer)| {
                scope.spawn({
                    let (db, stop) = (&db, &stop);
                    move || writer.write(db, t, stop)
                })
            })
            .collect();
        let course = Course::of(Duration::ZERO);
        let is_alive = || !threads.iter().any(std::thread::ScopedJoinHandle::is_finished);
        while is_alive()
            && course.goes_on(|| reached.look(&db) && has_worked(&db) && images.len() >= IMAGES)
        {
            let told: u64 = writers.iter().map(|of| of.told.load(Ordering::SeqCst)).sum();
            if told > next {
                images.push_back(take(&machine, &writers, seed * 100 + next / BETWEEN));
                next += BETWEEN;
                // The latest have the most below them.
                if images.len() > IMAGES {
                    images.pop_front();
                }
            }
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let stats = db.stats();
    eprintln!("{kind:?}: {} images, {reached:?}, {:?}", images.len(), stats.background);
    assert!(reached.has_all(), "{kind:?}: {reached:?}");
    assert!(images.len() >= IMAGES, "{kind:?}: {} images", images.len());
    assert!(has_worked(&db), "{kind:?}: {:?}", stats.background);
    let all: Vec<(u64, u64)> =
        writers.iter().map(|of| of.told.load(Ordering::SeqCst)).map(|told| (told, told)).collect();
    db.close().unwrap();
    let what = format!("{kind:?}, seed {seed}, closed");
    check_image(&Image { machine, spans: all, what });
    for mut image in images {
        image.what = format!("{kind:?}, seed {seed}, {}", image.what);
        check_image(&image);
    }
}

fn all_seeds(kind: Kind) {
    (0..rounds(1, 30)).for_each(|seed| run(kind, seed));
}

#[test]
fn writers_and_all_jobs_are_cut_on_files() {
    all_seeds(Kind::Files);
}

#[test]
fn writers_and_all_jobs_are_cut_on_persistent_memory() {
    all_seeds(Kind::Memory);
    all_seeds(Kind::Mixed);
}

#[test]
fn writers_and_all_jobs_are_cut_with_a_persistent_index() {
    all_seeds(Kind::Index);
}

#[test]
fn writers_and_all_jobs_are_cut_with_a_persistent_index_without_room() {
    all_seeds(Kind::FullIndex);
}

#[test]
fn writers_and_all_jobs_are_cut_beside_a_store_that_fails() {
    all_seeds(Kind::Objects);
}
