//! Writes of batches: what a commit asks of the database around it before it has its place.
//!
//! The loop of a commit is `engine/src/commit/write.rs`. A [`BatchRequest`] is what it runs for: it
//! charges the pace once, encodes the batch, makes runs of one that does not fit in a zone, locks
//! rows, waits for space, and follows truncated tables.
//!
//! Thread safety: a request belongs to one thread. Order: row locks, the gate, `ddl`; a request
//! that waits for row locks or for `ddl` is not inside of the gate.
//!
//! Invariants:
//!
//! 1. A write is charged to the pace once, however often it is tried.
//! 2. Runs of a request that has no ticket are withdrawn before it waits for locks or tables, and
//!    when it fails.
//! 3. Runs are written once the write was charged and the region had room for their numbers. From
//!    then on the write has no deadline, as others may have taken the room meanwhile. So a call
//!    that is told to try later has written nothing, and the next one does not write it all again.
//! 4. Of a batch from outside of a transaction either the group says that its rows are not locked,
//!    or the request has the locker.

use std::sync::Arc;

use super::core::TableBatch;
use super::pending::PendingCommit;
use super::runs::{Joined, NewRun};
use super::shared::Applying;
use super::shared::{Keep, Shared};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::operations::{self, OperationKind};
use crate::base::options::{Durability, Failpoint};
use crate::base::record::Lsn;
use crate::commit::{CommitRequest, Group, Pending};
use crate::locks::{Locker, Mode, Patience};
use crate::mvcc::is_waited_for;
use crate::os::Inside;
use crate::os::without_deadline;
use crate::pm::LINE;
use crate::pm::alloc::Frees;
use crate::read::KeyRange;
use crate::version::EditReservation;

impl Shared {
    /// Commits a batch from outside of a transaction. Until the first transaction locks a row that
    /// takes no locks; from then on it locks its rows, as a transaction of one step would, for as
    /// long as it takes. A thread that applies the writer's commits locks nothing: a reader's
    /// transactions must not hold them up.
    pub(crate) fn write(&self, batch: &TableBatch, durability: Durability) -> Result<()> {
        self.events.time(
            OperationKind::Commit,
            || None,
            || {
                let mut request = BatchRequest::new(self, batch);
                request.takes_locks = !Applying::is_inside();
                let lsn = request.commit(durability)?;
                drop(request);
                self.committer.wait_for_store(lsn, durability, None)
            },
        )
    }

    /// As [`Shared::write`], but does not wait once the batch has its place in the order.
    pub(crate) fn enqueue_write(
        self: &Arc<Shared>,
        keep: Keep,
        batch: &TableBatch,
        durability: Durability,
    ) -> Result<PendingCommit> {
        let enqueue = || {
            let mut request = BatchRequest::new(self, batch);
            request.takes_locks = true;
            let lsn = request.enqueue(durability)?;
            Ok((lsn, request.locker.take()))
        };
        let (lsn, locks) = self.events.time(OperationKind::Enqueue, || None, enqueue)?;
        Ok(PendingCommit::new(self, keep, (lsn, durability), locks))
    }

    /// Commits the batch of a caller that has locked its rows: its LSN, or 0 for an empty one. It
    /// is visible, and as durable as this machine makes it. The caller waits for a store once it
    /// has given its locks back. The whole of that is the caller's operation.
    pub(crate) fn commit(&self, batch: &TableBatch, durability: Durability) -> Result<Lsn> {
        BatchRequest::new(self, batch).commit(durability)
    }

    /// Gives such a batch its place in the order of commits, and does not wait for more; `None` if
    /// there is nothing in it.
    pub(crate) fn enqueue(
        &self,
        batch: &TableBatch,
        durability: Durability,
    ) -> Result<Option<Lsn>> {
        BatchRequest::new(self, batch).enqueue(durability)
    }

    /// Commits runs, and with them a batch of other tables, all of it or nothing, durably: the LSN,
    /// which was waited for. A thread that waits for it again learns how that ended.
    pub(crate) fn commit_runs(&self, batch: &TableBatch, runs: Vec<NewRun>) -> Result<Lsn> {
        let mut request = BatchRequest::new(self, batch);
        request.given = Some(runs);
        request.enqueue_runs()
    }

    /// Gives a group its place in the order of commits; `make` makes it, again once there is space,
    /// and `at_ticket` runs with its ticket. `charged` is what the pace was charged for it.
    pub(crate) fn enqueue_group(
        &self,
        make: &dyn Fn() -> Result<Group>,
        (durability, charged): (Durability, Option<u64>),
        at_ticket: &dyn Fn(Lsn),
    ) -> Result<Pending<'_>> {
        let mut request = GroupRequest { shared: self, make, at_ticket, charged };
        let pending = self.committer.enqueue(&mut request, durability)?;
        debug_assert!(
            request.charged.is_some(),
            "a group that has its ticket was charged to the pace (invariant 1)"
        );
        self.wrote(request.charged.unwrap_or(0));
        Ok(pending)
    }

    /// Charges a write to the pace, once (invariant 1).
    fn charge(&self, charged: &mut Option<u64>, (bytes, frees): (u64, Frees)) -> Result<()> {
        if is_waited_for() {
            return Err(Error::invalid(
                "a write inside of a closure that a value is lent to would wait for itself: \
                 write once the read has returned",
            ));
        }
        if charged.is_none() {
            // On a full disk no space comes free without what frees it.
            if frees == Frees::Nothing || !self.pace.is_stuck() {
                self.pace.slow_down(bytes)?;
            }
            *charged = Some(bytes);
        }
        Ok(())
    }

    /// Charges a group to the pace, and waits until the region has room for it, before its runs are
    /// written (invariant 3).
    pub(crate) fn ask_room(&self, group: &Group, charged: &mut Option<u64>) -> Result<()> {
        self.charge(charged, (group.zone_len(), group.frees()))?;
        loop {
            let mark = self.pace.rounds();
            match self.committer.make_room(group) {
                Err(full) if full.kind() == ErrorKind::Full => self.wait_for_space(&full, mark)?,
                done => return done,
            }
        }
    }

    /// The region is full: wakes the background, and waits until it has made space.
    fn wait_for_space(&self, full: &Error, mark: u64) -> Result<()> {
        self.wakeup.wake();
        let wait = || self.pace.wait_for_space(mark);
        let waited = operations::wait(|spent| &mut spent.pace, wait);
        // A failure that stops the database wakes who waits, too.
        self.poison.check()?;
        waited.map_err(|waited| waited.after(full))
    }

    /// Wakes the threads that make space for writers, now and then.
    fn wrote(&self, bytes: u64) {
        if self.wakeup.is_due(bytes) {
            self.wakeup.wake();
            self.zone_wakeup.wake();
        }
    }
}

/// A group that its caller makes: table events, prepares and verdicts.
struct GroupRequest<'a> {
    shared: &'a Shared,
    make: &'a dyn Fn() -> Result<Group>,
    at_ticket: &'a dyn Fn(Lsn),
    charged: Option<u64>,
}

impl CommitRequest for GroupRequest<'_> {
    fn group(&mut self, _largest: u64) -> Result<Group> {
        let group = (self.make)()?;
        self.shared.charge(&mut self.charged, (group.zone_len(), group.frees()))?;
        Ok(group)
    }

    fn at_ticket(&mut self, lsn: Lsn) {
        (self.at_ticket)(lsn);
    }

    fn space_mark(&self) -> u64 {
        self.shared.pace.rounds()
    }

    fn wait_for_space(&mut self, full: Error, mark: u64) -> Result<()> {
        self.shared.wait_for_space(&full, mark)
    }
}

/// Runs of a request, which stand in the views of their tables without an LSN.
struct PlacedRuns<'a> {
    /// A closing waits until the journal has its word on the runs.
    _inside: Inside,
    joined: Vec<Joined>,
    /// Room in the journal for its word; none where the runs could not all join.
    reservation: Option<EditReservation<'a>>,
    /// What the batch has beside them, if that is not all of it.
    rest: Option<TableBatch>,
}

/// A batch on its way to its place in the order.
struct BatchRequest<'a> {
    shared: &'a Shared,
    batch: &'a TableBatch,
    /// Whether its rows are to be locked here: no transaction has.
    takes_locks: bool,
    /// Its row locks; ends with the request unless the caller takes it.
    locker: Option<Locker>,
    /// Runs that the caller has written; they cannot be made again for another table.
    given: Option<Vec<NewRun>>,
    placed: Option<PlacedRuns<'a>>,
    /// What the pace was charged.
    charged: Option<u64>,
}

impl<'a> BatchRequest<'a> {
    fn new(shared: &'a Shared, batch: &'a TableBatch) -> BatchRequest<'a> {
        BatchRequest {
            shared,
            batch,
            takes_locks: false,
            locker: None,
            given: None,
            placed: None,
            charged: None,
        }
    }

    /// As [`Shared::commit`].
    fn commit(&mut self, durability: Durability) -> Result<Lsn> {
        if !self.begin(durability)? {
            return Ok(0);
        }
        let shared = self.shared;
        if self.is_large() {
            let lsn = self.enqueue_runs()?;
            return shared.committer.wait_on_this_machine(lsn, Durability::Durable).map(|()| lsn);
        }
        let relaxes = shared.region.has(Failpoint::RelaxAll);
        let durability = if relaxes { Durability::Relaxed } else { durability };
        let lsn = shared.committer.commit(self, durability)?;
        self.debug_assert_small_done();
        shared.wrote(self.charged.unwrap_or(0));
        Ok(lsn)
    }

    fn enqueue(&mut self, durability: Durability) -> Result<Option<Lsn>> {
        if !self.begin(durability)? {
            return Ok(None);
        }
        if self.is_large() {
            return self.enqueue_runs().map(Some);
        }
        let shared = self.shared;
        let lsn = shared.committer.enqueue(self, durability)?.lsn;
        self.debug_assert_small_done();
        shared.wrote(self.charged.unwrap_or(0));
        Ok(Some(lsn))
    }

    /// Asserts what holds after the commit of a batch that fits in a zone.
    fn debug_assert_small_done(&self) {
        debug_assert!(
            self.charged.is_some(),
            "a batch that has its ticket was charged to the pace (invariant 1)"
        );
        debug_assert!(
            self.placed.is_none(),
            "a batch that fits in a zone leaves no runs (invariant 2)"
        );
    }

    /// Checks the batch, with its rows locked if that is needed by now; whether there is something
    /// in it.
    fn begin(&mut self, durability: Durability) -> Result<bool> {
        self.shared.committer.check_durability(durability)?;
        if self.takes_locks && self.shared.committer.locks_rows() {
            self.lock_all()?;
        }
        self.shared.check_writable()?;
        // A batch of nothing but refused operations is empty, and yet an error.
        self.batch.check()?;
        Ok(!self.batch.is_empty())
    }

    /// Whether it goes to extents: it does not fit in a zone, or has runs already.
    fn is_large(&self) -> bool {
        self.given.is_some()
            || self.placed.is_some()
            || !self.shared.committer.fits(self.batch.stored_len())
    }

    /// Gives a large batch its place in the order, waits until it is durable, and tells the
    /// journal.
    fn enqueue_runs(&mut self) -> Result<Lsn> {
        let shared = self.shared;
        let pending = match shared.committer.enqueue(self, Durability::Durable) {
            Ok(pending) => pending,
            Err(e) => {
                self.withdraw();
                return Err(e);
            }
        };
        shared.wrote(self.charged.unwrap_or(0));
        let (zone, lsn) = (pending.zone, pending.lsn);
        let Some(placed) = self.placed.take() else { unreachable!("its group was of runs") };
        debug_assert!(
            placed.reservation.is_some(),
            "a commit of runs has its space in the journal before its ticket"
        );
        // If it fails the database is poisoned, and a thread that waits for it learns that.
        let is_durable = shared.region.has(Failpoint::RunBeforeRecord) || pending.wait().is_ok();
        if let Some(reservation) = placed.reservation.filter(|_| is_durable) {
            shared.conclude(&placed.joined, lsn, zone, reservation);
        }
        Ok(lsn)
    }

    /// Writes the runs of a large batch, and has them join their tables, unless they have.
    fn place_runs(&mut self, largest: u64) -> Result<()> {
        if self.placed.is_some() {
            return Ok(());
        }
        let shared = self.shared;
        let mut runs = self.given.as_mut().map(std::mem::take).unwrap_or_default();
        let rest = shared.rest_of(self.batch, &runs, 0);
        let beside = rest.as_ref().unwrap_or(self.batch);
        let to_come = NewRun::to_come(&runs, rest.as_ref().map(|_| self.batch));
        let group = Group::encode_beside(beside, to_come.into_iter(), largest)?;
        shared.ask_room(&group, &mut self.charged)?;
        let inside = shared.enter()?;
        if rest.is_some() {
            runs.extend(shared.runs_of(self.batch)?);
        }
        let loaded: Vec<bool> = runs.iter().map(|run| run.loaded).collect();
        let mut joined = Vec::with_capacity(runs.len());
        let done = shared.join(runs, &mut joined);
        if shared.committer.feed().is_some() {
            shared.keep_for_shipper(&joined, None, &loaded);
        }
        let reserved = done.and_then(|()| shared.reserve_conclusion(&joined));
        let (reservation, done) = match reserved {
            Ok(reservation) => (Some(reservation), Ok(())),
            Err(e) => (None, Err(e)),
        };
        self.placed = Some(PlacedRuns { _inside: inside, joined, reservation, rest });
        done
    }

    /// The group of a large batch: its runs by number, and what it has beside them.
    fn group_of_runs(&mut self, largest: u64) -> Result<Group> {
        self.place_runs(largest)?;
        self.shared.check_writable()?;
        let Some(placed) = &self.placed else { unreachable!("they were placed") };
        let beside = placed.rest.as_ref().unwrap_or(self.batch);
        Group::encode_beside(beside, placed.joined.iter().map(Joined::table), largest)
    }

    /// Undoes what was done for runs (invariant 2).
    fn withdraw(&mut self) {
        if let Some(placed) = self.placed.take() {
            self.shared.withdraw(&placed.joined);
        }
    }

    /// Rows and ranges in one order, that of their first keys, so that batches do not wait for each
    /// other in a circle. A range comes before a row at its first key, which needs no lock then.
    fn lock_all(&mut self) -> Result<()> {
        debug_assert!(self.placed.is_none(), "no lock is waited for with runs (invariant 2)");
        self.shared.check_writable()?;
        let mut locker = Locker::new(&self.shared.locks);
        let patience = Patience::usual();
        let ranges: Vec<_> = self.batch.ranges().collect();
        let rows = self.batch.rows().map(|(table, key)| (table, key, None));
        let mut locks: Vec<_> = rows
            .chain(ranges.iter().map(|(table, range)| (*table, &range.start[..], Some(range))))
            .collect();
        locks.sort_by_key(|(table, start, range)| (table.lock_space(), *start, range.is_none()));
        for (table, key, range) in locks {
            let (space, name) = (table.lock_space(), || table.label());
            match range.map(|interval| KeyRange::from(interval.clone())) {
                Some(range) => {
                    drop(locker.lock_range(space, &range, Mode::Exclusive, patience, &name)?);
                }
                None => drop(locker.lock_key(space, key, Mode::Exclusive, patience, &name)?),
            }
        }
        self.locker = Some(locker);
        Ok(())
    }
}

impl CommitRequest for BatchRequest<'_> {
    fn group(&mut self, largest: u64) -> Result<Group> {
        let group = if self.is_large() {
            self.group_of_runs(largest)?
        } else {
            // What it takes in a zone, but for what other batches of its group share with it.
            let bytes = (self.batch.stored_len() as u64 + LINE).next_multiple_of(LINE);
            self.shared.charge(&mut self.charged, (bytes, self.batch.frees()))?;
            Group::encode(self.batch, largest)?
        };
        debug_assert!(
            self.takes_locks || self.locker.is_none(),
            "the rows of a transaction's batch are locked by the transaction alone (invariant 4)"
        );
        // Invariant 4.
        Ok(if self.takes_locks && self.locker.is_none() { group.without_locks() } else { group })
    }

    fn at_ticket(&mut self, lsn: Lsn) {
        if let Some(placed) = &self.placed {
            Joined::at_ticket(&placed.joined, lsn);
        }
    }

    fn space_mark(&self) -> u64 {
        self.shared.pace.rounds()
    }

    fn wait_for_space(&mut self, full: Error, mark: u64) -> Result<()> {
        let wait = || self.shared.wait_for_space(&full, mark);
        // Invariant 3.
        if self.placed.is_some() { without_deadline(wait) } else { wait() }
    }

    fn lock_rows(&mut self) -> Result<()> {
        debug_assert!(self.takes_locks && self.locker.is_none(), "it had no locks (invariant 4)");
        self.withdraw();
        self.lock_all()
    }

    fn follow_tables(&mut self, gone: Error) -> Result<()> {
        if self.given.is_some() {
            return Err(gone);
        }
        self.withdraw();
        // The change that has taken the table away is over then, and no other one is under way.
        let _ddl = self.shared.ddl.lock();
        self.batch.tables().try_for_each(|table| table.check())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests stop and tell")]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::base::options::Options;
    use crate::os::sync::atomic::{AtomicBool, Ordering};
    use crate::os::thread::{scope, yield_now};
    use crate::os::with_deadline;
    use crate::table::{Table, WriteBatch};

    /// 3,000 rows, for which no zone of a region of 4 MiB has room.
    fn large_batch(table: &Table) -> WriteBatch {
        let mut batch = WriteBatch::new();
        for n in 0..3000u32 {
            batch.put(table, n.to_be_bytes(), [7; 1000]);
        }
        batch
    }

    /// Bug: a writer that waited for space was told that the disk is full when the database had
    /// been stopped by a failure. Cause: who stops the database wakes such writers with its reason,
    /// as the background does on a full disk. Fix: they look why they were woken.
    #[test]
    fn who_waits_for_space_hears_of_a_stopped_database() {
        let dir = tempfile::tempdir().unwrap();
        let db = Options::new().pm_size(4 << 20).stepped().open(dir.path().join("db")).unwrap();
        let table = db.table("t").unwrap();
        let shared = &table.shared;
        let (full, mark) = (Error::new(ErrorKind::Full, "no zone"), shared.pace.rounds());
        shared.stop_because("planned");
        let told = shared.wait_for_space(&full, mark).unwrap_err();
        assert_eq!(told.kind(), shared.poison.check().unwrap_err().kind(), "{told}");
    }

    /// Bug: a large batch with a deadline was written to extents again by each try, and never
    /// committed: writing took longer than the deadline. Cause: the pace was charged once the runs
    /// were written, and refused the batch then. Fix: it is charged before.
    #[test]
    fn a_large_write_that_has_to_wait_is_refused_before_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let db = Options::new().pm_size(4 << 20).stepped().open(dir.path().join("db")).unwrap();
        let table = db.table("t").unwrap();
        let mut batch = large_batch(&table);
        batch.delete_range(&table, "x".."y");
        let shared = &table.shared;
        let written = || (shared.set.store().bytes_written(), shared.set.floor().number);
        shared.pace.set_delay(1 << 30, "a test says so");
        let now = Instant::now();
        let before = written();
        for _ in 0..3 {
            let refused =
                crate::os::with_deadline(now, || db.write_with(&batch, Durability::Durable))
                    .unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Timeout, "{refused}");
        }
        assert_eq!(written(), before, "no run was written, and no edit of the journal");
        shared.pace.set_delay(0, "none");
        crate::os::with_deadline(now, || db.write_with(&batch, Durability::Durable)).unwrap();
        assert_eq!(table.iter().map(Result::unwrap).count(), 3000);
    }

    /// Bug: a large commit with a deadline was written to extents again by each try, and never
    /// committed. Cause: small writes took the zone that it had asked for while its runs were
    /// written, and it gave up at its deadline then. A bulk load that did so was lost. Fix: a
    /// commit whose runs are written waits for space without the deadline.
    #[test]
    fn a_write_whose_runs_are_written_waits_for_space_beyond_its_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let db = Options::new().pm_size(4 << 20).stepped().open(dir.path().join("db")).unwrap();
        let table = db.table("t").unwrap();
        let batch = large_batch(&table);
        let (shared, now) = (&table.shared, Instant::now());
        let mut request = BatchRequest::new(shared, &batch.batch);
        let largest = shared.zones.geometry().largest_zone();
        request.group(largest).unwrap();
        assert!(request.placed.is_some());
        for len in [10_000, 500, 1] {
            while with_deadline(now, || table.put("filler", vec![7; len])).is_ok() {}
        }
        let [begins, done] = [(); 2].map(|()| AtomicBool::new(false));
        scope(|scope| {
            scope.spawn(|| {
                while !begins.load(Ordering::Relaxed) {
                    yield_now();
                }
                while !done.load(Ordering::Relaxed) {
                    db.step().unwrap();
                    yield_now();
                }
            });
            begins.store(true, Ordering::Relaxed);
            let placed = with_deadline(now, || request.enqueue_runs());
            done.store(true, Ordering::Relaxed);
            placed.unwrap();
        });
        assert_eq!(table.iter().map(Result::unwrap).count(), 3001);
    }
}
