//! What the integration tests share beyond the rig that cuts the power (`terrace-sim`).

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "every test binary uses a part of it"
)]

pub mod child;
pub mod lives;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use terrace::{
    Database, Durability, Index, Isolation, Mode, Options, Table, Transaction, TxnOptions,
};
pub use terrace_sim::{Chance, content, cuts, tiny, workload};

static TURN: RwLock<()> = RwLock::new(());

/// No other test that asks runs meanwhile. Readers of one database hold up the release of zones
/// in every other of the process, so what counts background jobs one by one runs alone.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    TURN.write()
}

/// Others may run meanwhile, but for those that run [`alone`].
pub fn together() -> RwLockReadGuard<'static, ()> {
    TURN.read()
}

/// Waits for what another thread does. A thread that fails before it has done that ends the wait
/// with `what`: without an end the test would hang and hide the failure.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_mins(2);
    while !is_so() {
        assert!(Instant::now() < end, "{what} within two minutes");
        std::thread::yield_now();
    }
}

/// How long threads of a test work: for a time, and then until they have done enough for what the
/// test is about, however slow the machine is. At the end of that the test says what is missing.
#[derive(Clone, Copy)]
pub struct Course(Instant);

impl Course {
    pub fn of(time: Duration) -> Course {
        Course(Instant::now() + time)
    }

    /// Whether they go on.
    pub fn goes_on(self, has_enough: impl FnOnce() -> bool) -> bool {
        let now = Instant::now();
        now < self.0 || (now < self.0 + Duration::from_mins(2) && !has_enough())
    }
}

/// Whether the long variants run.
pub fn long() -> bool {
    std::env::var_os("TERRACE_LONG").is_some_and(|v| v == "1")
}

/// `short` rounds, or `long` ones under `TERRACE_LONG=1`.
pub fn rounds(short: u64, many: u64) -> u64 {
    if long() { many } else { short }
}

/// Options of a tiny database with its region, and the index of level 0, in emulated memory.
pub fn indexed() -> Options {
    tiny().mode(Mode::Emulated { delay: Duration::ZERO }).index(Index::Persistent).stepped()
}

/// Has the files that links of an emulated database lead to lie in its directory, where copies of
/// it have their own.
pub fn without_links(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        if let Ok(target) = fs::read_link(entry.path()) {
            let bytes = fs::read(&target).unwrap();
            fs::remove_file(target).unwrap();
            fs::remove_file(entry.path()).unwrap();
            fs::write(entry.path(), bytes).unwrap();
        }
    }
}

/// A closed database with one row.
pub fn made() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let db = tiny().open(dir.path()).unwrap();
    db.table("t").unwrap().put("k", "v").unwrap();
    db.close().unwrap();
    dir
}

/// A call that finds nothing to write: the table has the row `k` with the value `1` and no other.
/// The handle has the durability that is named.
pub type NothingToWrite = fn(&Database, &Table, Durability) -> terrace::Result<()>;

pub const NOTHING_TO_WRITE: [NothingToWrite; 11] = [
    |_, t, _| t.compare_and_set("k", Some(b"1"), Some(b"1")).map(|had| assert!(had)),
    |_, t, _| t.compare_and_set("k", None, Some(b"2")).map(|had| assert!(!had)),
    |_, t, _| t.insert_if_absent("k", "2").map(|inserted| assert!(!inserted)),
    |_, t, _| t.update("k", |old| old.map(<[u8]>::to_vec)).map(drop),
    |_, t, _| t.take("none").map(|row| assert_eq!(row, None)),
    |db, _, durability| {
        let empty = db.existing_table("empty")?.durability(durability);
        empty.pop_last().map(|row| assert_eq!(row, None))
    },
    |_, t, _| t.retain(.., |_, _| true).map(|gone| assert_eq!(gone, 0)),
    |db, t, durability| has_locked(db, t, (Isolation::Snapshot, durability))?.commit(),
    |db, t, durability| has_locked(db, t, (Isolation::Snapshot, durability))?.enqueue()?.wait(),
    |db, t, durability| has_read(db, t, (Isolation::Serializable, durability))?.commit(),
    |db, t, durability| has_locked(db, t, (Isolation::ReadCommitted, durability))?.commit(),
];

/// A transaction that has read the row `k`.
pub fn has_read(
    db: &Database,
    table: &Table,
    (isolation, durability): (Isolation, Durability),
) -> terrace::Result<Transaction> {
    let txn = db.begin_with(TxnOptions::new().isolation(isolation).durability(durability))?;
    assert_eq!(txn.get(table, "k")?.as_deref(), Some(&b"1"[..]));
    Ok(txn)
}

/// A transaction that has read the row, and locked it.
fn has_locked(
    db: &Database,
    table: &Table,
    how: (Isolation, Durability),
) -> terrace::Result<Transaction> {
    let txn = has_read(db, table, how)?;
    txn.get_for_update(table, "k")?;
    Ok(txn)
}
