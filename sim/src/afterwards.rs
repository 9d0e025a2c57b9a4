//! What is done with each image once it was opened and held against its account: work goes on
//! there, jobs run until nothing is left to do, what was prepared is resolved, and the power is
//! cut again.

use terrace::testing::{Machine, Survive};
use terrace::{Durability, ObjectServer};

use crate::account::verified;
use crate::content::{Content, read_all, resolve_all};
use crate::cuts::{End, PATH, Rig, copy, options, reopen};
use crate::run::{Run, same};
use crate::violation::{Class, Violation};
use crate::workload::Taste;

/// How often a job is asked for that waits for a reader of another thread.
const MOST_ASKED: u64 = 1000;

fn refused(error: terrace::Error) -> Violation {
    Class::Refused.violation(error)
}

fn read(db: &terrace::Database) -> Result<Content, Violation> {
    read_all(db).map_err(refused)
}

impl Run {
    /// Works on the image on `machine`, whose content is `content`, and opens it once more.
    pub(crate) fn go_on_with(
        &self,
        machine: &Machine,
        (db, mut content): (terrace::Database, Content),
        event: u64,
    ) -> Result<(), Violation> {
        let choice = event.wrapping_add(self.seed) % 4;
        if choice == 3 {
            let resolved = resolve_all(&db, content.clone()).map_err(refused)?;
            if let Some(what) = resolved {
                let what = Class::Changed.violation(what);
                return Err(format!("after what was prepared: {what}"));
            }
            content = read(&db)?;
        }
        let seed = self.seed ^ event << 20;
        let mut rig = Rig::over((machine.clone(), db, content), self.kind, seed, self.failpoint);
        let taste = Taste { steps: 15, value: 6000, keys: 60, ranges: 5, ..Taste::default() };
        // Tables with writes of prepared transactions stay what they are.
        let tables = if rig.content.1.is_empty() { 4 } else { 0 };
        for _ in 0..4 {
            rig.act(&Taste { tables, ..taste });
        }
        if let Some(table) = rig.content.names().first() {
            rig.put(table, "key after it", 100, Durability::Durable);
        }
        let named = |what: Violation| format!("after work on what was found: {what}");
        if choice == 1 {
            rests_without_leaks(&rig.db).map_err(named)?;
            keeps_what_it_needs(&rig.db, &rig.machine).map_err(named)?;
            holds_what_an_opening_finds(&rig).map_err(named)?;
            counts_nothing_drained(&rig).map_err(named)?;
        }
        same(&read(&rig.db)?, &rig.content).map_err(named)?;
        let (end, left) = match choice {
            0 | 2 => {
                let survive = Survive::Seeded(seed);
                (End::Cut(survive), rig.machine.crash(survive))
            }
            _ => (End::Kill, rig.machine.kill()),
        };
        let account = rig.account();
        drop(rig);
        reopen(&left, self.failpoint, &account, end).map(drop).map_err(named)
    }
}

/// Each zone holds a record, but for the open one and the spare of each stream, and the open
/// one of the cleaner.
fn rests_without_leaks(db: &terrace::Database) -> Result<(), Violation> {
    for _ in 0..MOST_ASKED {
        if !db.step().map_err(refused)? {
            let pm = db.stats().pm;
            if pm.zones_empty <= 2 * pm.streams_used + 1 {
                return Ok(());
            }
            std::thread::yield_now();
        }
    }
    Err(Class::Leaked.violation(format!("zones: {:?}", db.stats().pm)))
}

/// After a collection the object store has what the database needs, and nothing else of it: also
/// once all requests have arrived that were late.
fn keeps_what_it_needs(db: &terrace::Database, machine: &Machine) -> Result<(), Violation> {
    let Some(store) = ObjectServer::of_machine(machine) else { return Ok(()) };
    store.deliver();
    let lost = |lost: Vec<String>| Class::Damaged.violation(format!("lost objects: {lost:?}"));
    let found = db.collect_objects().map_err(refused)?;
    if !found.lost.is_empty() {
        return Err(lost(found.lost));
    }
    let found = db.check_object_store().map_err(refused)?;
    match (found.left.first(), found.lost.is_empty()) {
        (None, true) => Ok(()),
        (_, false) => Err(lost(found.lost)),
        (Some(left), _) => Err(Class::Leaked.violation(format!("object {left}"))),
    }
}

/// A database at rest has no more bytes of extents taken than an opening, which goes by what is on
/// the media alone.
fn holds_what_an_opening_finds(rig: &Rig) -> Result<(), Violation> {
    let taken = |db: &terrace::Database| db.stats().disk.extent_bytes;
    let again = copy(&rig.machine);
    let opened = options(&again, rig.failpoint).open(PATH).map_err(refused)?;
    verified(&opened)?;
    let needed = taken(&opened);
    drop(opened);
    let held = at_last(&rig.db, taken, needed)?;
    match held > needed {
        false => Ok(()),
        true => {
            let what = format!("extents take {held} bytes, and {needed} are needed");
            Err(Class::Leaked.violation(what))
        }
    }
}

/// Once all is brought down, no record counts in a zone but those of the last two blobs, of which
/// the next blob lets the older one go, and verdicts, which outlive their prepares.
fn counts_nothing_drained(rig: &Rig) -> Result<(), Violation> {
    if !rig.content.1.is_empty() {
        return Ok(());
    }
    for name in rig.db.table_names() {
        let table = rig.db.existing_table(&name).map_err(refused)?;
        rig.db.compact_range(&table, ..).map_err(refused)?;
    }
    let most = if rig.content.3.is_some() { 2 } else { 0 };
    let records =
        |db: &terrace::Database| db.stats().pm.live_records.saturating_sub(db.outliving_verdicts());
    match at_last(&rig.db, records, most)? {
        left if left <= most => Ok(()),
        left => Err(Class::Leaked.violation(format!("{left} records count, and all are drained"))),
    }
}

/// What is counted once it is as little as `enough`, or when it does not become less. A reader of
/// another thread may have what was let go.
fn at_last(
    db: &terrace::Database,
    count: impl Fn(&terrace::Database) -> u64,
    enough: u64,
) -> Result<u64, Violation> {
    let mut asked = 0;
    while count(db) > enough && asked < MOST_ASKED {
        if !db.step().map_err(refused)? {
            asked += 1;
            std::thread::yield_now();
        }
    }
    Ok(count(db))
}
