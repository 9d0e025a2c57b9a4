//! What all callers of a run share: the machine, and the database that is open there now.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use terrace::testing::schedule::{self, Stays};
use terrace::testing::{Failpoint, HandClock, Machine, ReadFaults};
use terrace::{
    BackgroundTuning, CommitTuning, Database, Error, ErrorKind, Isolation, Options, Result,
};

use super::bucket::DISTANCE;
use super::ledger::{Ledger, Seen};
use super::rows::{LIST_KEYS, ROWS};
use crate::machines::{Kind, PATH};
use crate::violation::Class;

/// Clones are the same world. Its mutex is no point of the scheduler.
#[derive(Clone)]
pub(super) struct World {
    pub machine: Machine,
    pub clock: HandClock,
    pub ledger: Ledger,
    pub bug: Option<Failpoint>,
    pub seed: u64,
    /// The database is shared through the object store.
    pub is_shared: bool,
    pub callers: usize,
    /// In so many of a hundred operations the caller stands still for a while.
    pub stayed: u64,
    pub stays: Stays,
    /// After so many of a hundred operations a caller rests. What callers write in a run alone
    /// wakes no thread of the background; time does.
    pub rests: u64,
    /// What a point costs in time. A run of microseconds alone has ended before a thread of the
    /// background has rested, or a lock was waited for long.
    pub tick: Duration,
    /// A caller writes so many of its rows in each table.
    pub rows: u64,
    /// Transactions append to so many lists.
    pub lists: u8,
    /// Of all transactions that append to lists.
    pub isolation: Isolation,
    database: Arc<Mutex<Life>>,
}

/// The database since its last opening.
#[derive(Default)]
struct Life {
    number: u64,
    db: Option<Database>,
    /// So many of the world's databases callers have closed, or are about to.
    closed: u64,
    /// A caller that has closed it opens it again.
    is_opening: bool,
    /// What was acknowledged and is not durable may be lost.
    has_stopped: bool,
    /// So many calls had failed when the machine was mended.
    mended: u64,
}

impl World {
    pub(super) fn new(
        machine: &Machine,
        ledger: &Ledger,
        (seed, callers, kind): (u64, usize, Kind),
        bug: Option<Failpoint>,
    ) -> World {
        // No machine's clock goes back.
        let clock = HandClock::default();
        clock.pass(ledger.time().1);
        if kind == Kind::Shared {
            ledger.lags();
        }
        let levels = [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable];
        World {
            machine: machine.clone(),
            clock,
            ledger: ledger.clone(),
            bug,
            seed,
            is_shared: kind == Kind::Shared,
            callers,
            stayed: [0, 0, 15, 40][(seed / 3 % 4) as usize],
            stays: Stays::default(),
            rests: [0, 30, 60, 60][(seed / 37 % 4) as usize],
            tick: Duration::from_micros(match kind {
                // What waits for an answer of another machine gives up after seconds.
                Kind::Shared => 1,
                _ => [1, 10, 100, 100][(seed / 31 % 4) as usize],
            }),
            rows: [ROWS, 2, 1][(seed / 19 % 3) as usize],
            lists: [LIST_KEYS, 2, 1][(seed / 7 % 3) as usize],
            isolation: levels[(seed % 3) as usize],
            database: Arc::new(Mutex::new(Life::default())),
        }
    }

    pub(super) fn options(&self) -> Options {
        self.options_on(&self.machine).share(self.is_shared)
    }

    /// The same on another machine, for a database that is not shared.
    pub(super) fn options_on(&self, machine: &Machine) -> Options {
        let options = crate::tiny().machine(machine).clock(&self.clock);
        // What a run writes fits in the cache, so in some nothing stays there.
        let options = if self.seed % 5 < 2 { options.cache_size(0) } else { options };
        let is_far = machine.store_url().is_some() && (self.seed / 5).is_multiple_of(2);
        let (latency, bytes) = DISTANCE;
        let options = if is_far { options.object_store_distance(latency, bytes) } else { options };
        // In some runs batches of several callers go together.
        let batches = if self.is_shared { 1 } else { [1, 1, 2, 8][(self.seed / 5 % 4) as usize] };
        let options = options.commit_tuning(CommitTuning::new().group_batches(batches));
        let threads = [2, 2, 1, 4][(self.seed / 17 % 4) as usize];
        // What a caller writes fills no memtable of the usual size.
        let options = match [None, Some(200), Some(4000)][(self.seed / 29 % 3) as usize] {
            Some(bytes) => options.freeze_bytes(bytes),
            None => options,
        };
        let options = options.background_tuning(BackgroundTuning::new().threads(threads));
        // Of the usual size no run of a schedule has one that is not asked for.
        let options = options.checkpoint_bytes([1 << 10, 8 << 10][(self.seed / 11 % 2) as usize]);
        match self.bug {
            Some(bug) => options.failpoint(bug),
            None => options,
        }
    }

    /// Whether cold levels may lie in an object store: in half of the runs whose nodes share it.
    pub(super) fn has_bucket(&self) -> bool {
        self.machine.store_url().is_some() && (!self.is_shared || (self.seed / 7).is_multiple_of(2))
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The database of the last opening, and the number of that.
    ///
    /// # Panics
    ///
    /// Before the first one.
    pub(super) fn newest(&self) -> (u64, Database) {
        let life = self.life();
        let db = life.db.clone();
        (life.number, db.expect("invariant: callers come after the first opening"))
    }

    /// Calls of this database of the world may be told that it is closed.
    pub(super) fn closing(&self, number: u64) {
        let mut life = self.life();
        life.closed = life.closed.max(number);
    }

    /// Whether they may.
    pub(super) fn is_closing(&self, number: u64) -> bool {
        self.life().closed >= number
    }

    /// From now on this is the database.
    pub(super) fn has_opened(&self, db: Database) -> u64 {
        let mut life = self.life();
        (life.number, life.db, life.is_opening) = (life.number + 1, Some(db), false);
        life.number
    }

    /// The last handle goes here, in a task of the run.
    pub(super) fn forget(&self) {
        let last = self.life().db.take();
        drop(last);
    }

    /// Opens the database again that a caller has closed, unless another caller does so or has done
    /// so.
    pub(super) fn open_again(&self, closed: u64) -> Result<Option<(u64, Database)>> {
        {
            let mut life = self.life();
            if life.number != closed || life.is_opening {
                return Ok(None);
            }
            life.is_opening = true;
        }
        let db = self.options().open_existing(PATH)?;
        Ok(Some((self.has_opened(db.clone()), db)))
    }

    /// Whether a call of the machine has failed, or another one is the writer, and this may come of
    /// it.
    pub(super) fn excuses(&self, error: &Error) -> bool {
        match error.kind() {
            ErrorKind::Fenced => self.ledger.is_taken_over(),
            // A full disk stops no database, and leaves no commit in doubt.
            ErrorKind::Unavailable | ErrorKind::UnknownOutcome => self.has_failed_calls(),
            ErrorKind::Full => self.has_failed(),
            _ => false,
        }
    }

    /// What a call of a database must see that has lasted from one moment to the other: after a
    /// failure that has not stopped the database all that was acknowledged.
    pub(super) fn seen(&self, db: &Database, (from, to): (u64, u64)) -> Seen {
        if !self.has_failed() && !self.has_stopped() {
            return Seen::Read(from, to);
        }
        match self.synced(db) && !self.has_stopped() {
            true => Seen::Read(from, to),
            false => Seen::Stopped(from, to),
        }
    }

    /// A closing or a sync has failed.
    pub(super) fn stopped(&self) {
        self.life().has_stopped = true;
    }

    /// Whether a sync ends well. It does until a call has failed that was to change a file.
    fn synced(&self, db: &Database) -> bool {
        let Err(error) = db.sync() else { return true };
        if error.kind() != ErrorKind::Closed {
            self.stopped();
        }
        let failed = self.machine.failed_calls();
        let may_stop = failed.keys().any(|site| site.call.may_stop());
        if error.kind() == ErrorKind::Unavailable && !may_stop {
            let what = format!("it has stopped where {failed:?} failed: {error}");
            self.ledger.violate(Class::WrongError.violation(what));
        }
        false
    }

    /// Whether one has.
    pub(super) fn has_stopped(&self) -> bool {
        self.life().has_stopped
    }

    /// From now on nothing fails any more; whether the database goes on.
    pub(super) fn mend(&self, db: &Database) -> bool {
        let failed = self.failed_calls();
        self.machine.mend();
        self.ledger.mended();
        self.life().mended = failed;
        self.synced(db);
        !self.has_stopped()
    }

    /// Whether the error says that a call which had failed before the machine was mended has
    /// stopped the database since.
    pub(super) fn stopped_late(&self, error: &Error) -> bool {
        if self.life().mended == 0 || error.kind() != ErrorKind::Unavailable {
            return false;
        }
        let (_, db) = self.newest();
        self.synced(&db);
        self.has_stopped()
    }

    fn failed_calls(&self) -> u64 {
        self.machine.failed_calls().values().sum()
    }

    /// Does what cannot read a file. The other threads stand still meanwhile, unless the call waits
    /// for them: then their reads may fail too.
    pub(super) fn unread<T>(
        &self,
        faults: ReadFaults,
        call: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.ledger.cannot_read();
        self.stays.go_alone(schedule::number());
        self.machine.fault_reads(Some(faults));
        let done = call();
        let failed = self.machine.fault_reads(None);
        self.stays.go_together();
        let is_own = failed == 0 || failed == 1 && done.is_err();
        if !is_own {
            self.ledger.fails_for_good();
        }
        self.ledger.can_read();
        done
    }

    /// Whether a call of the machine has failed since it was mended, or another machine is about to
    /// be the writer.
    fn has_failed_calls(&self) -> bool {
        let has_failed = self.failed_calls() > self.life().mended;
        has_failed || self.ledger.has_faults() || self.ledger.is_taken_over()
    }

    /// Whether one has, or the disk is full.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed_calls() || self.machine.is_bounded()
    }
}
