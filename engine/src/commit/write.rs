//! The way of a commit to its place in the order: one loop over what has to happen next.
//!
//! Outline. (1) The request encodes its group; everything that can be wrong with it fails here.
//! With shared groups the thread brings it to a bucket, and leads or follows. (2) The group tries
//! to take its ticket. If it cannot, the attempt says what has to happen before the next one. (3)
//! The loop does that outside of the sequencer, and tries again. The committer itself waits for
//! the ring and links zones. The request waits for space, locks rows and follows tables, since
//! these are parts above commit.
//!
//! Thread safety: a [`Write`] belongs to one thread. It holds no lock while it waits.
//!
//! Invariants:
//!
//! 1. A write that leaves the loop with an error has no ticket: nothing was done.
//! 2. A group that waits for more than the ring and a zone leads no bucket, since all groups of the
//!    bucket would wait with it.
//! 3. A write tries to take a ticket with the group that it encoded last, and has at most one.

use super::bucket::{Lead, Outcome, Part};
use super::committer::{Committer, Pending, Ticket};
use super::group::{Few, Group};
use super::publisher::Goal;
use super::ring::ring_len;
use super::sequencer::InSequencer;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::options::Durability;
use crate::base::record::Lsn;
use crate::mvcc::pin;
use crate::pm::alloc::{Frees, ZONE_HEADER};
use crate::pm::{Purpose, SpentOn};

/// What the loop asks of a commit, and of the parts above commit.
pub(crate) trait CommitRequest {
    /// Encodes the group, whose parts each fit in a zone of `largest` bytes. The loop asks again
    /// after every wait but those for the ring and for a zone.
    fn group(&mut self, largest: u64) -> Result<Group>;

    /// The group takes its ticket. Runs in the sequencer and must be short.
    fn at_ticket(&mut self, _lsn: Lsn) {}

    /// What [`CommitRequest::wait_for_space`] compares with. Read before a zone is asked for, so
    /// that space that is made meanwhile ends the wait.
    fn space_mark(&self) -> u64 {
        0
    }

    /// Waits until space was made after `mark`.
    fn wait_for_space(&mut self, full: Error, _mark: u64) -> Result<()> {
        Err(full)
    }

    /// Locks the rows of the request, since transactions lock rows by now.
    fn lock_rows(&mut self) -> Result<()> {
        debug_assert!(false, "only plain writes commit without locks");
        Err(Error::invalid("transactions lock rows, and the commit holds no locks"))
    }

    /// A table of the request was dropped: finds those that stand in their places.
    fn follow_tables(&mut self, gone: Error) -> Result<()> {
        Err(gone)
    }
}

/// A group that is encoded already, and waits for nothing but the ring and a zone.
pub(crate) struct OneGroup(Option<Group>);

impl OneGroup {
    /// A request for this group.
    pub(crate) fn new(group: Group) -> OneGroup {
        OneGroup(Some(group))
    }
}

impl CommitRequest for OneGroup {
    fn group(&mut self, _largest: u64) -> Result<Group> {
        match self.0.take() {
            Some(group) => Ok(group),
            None => unreachable!("the request fails instead of asking for its group again"),
        }
    }
}

/// What a commit has to do next.
#[derive(Debug)]
pub(super) enum WriteStep {
    /// Encode the group, and share it if groups are shared.
    MakeGroup,
    /// Try to take the ticket; then store the group.
    TakeTicket,
    /// Wait until the publisher has taken the group that has the ring's slot.
    WaitForRing { oldest: Lsn },
    /// Link a standby zone with room for so many bytes to a stream.
    LinkZone { stream: u32, len: u64 },
    /// The zone is kept for commits that free space: look once more, then wait for space.
    WaitForReserve { full: Error },
    /// Wait until drains have made space.
    WaitForSpace { full: Error, mark: u64 },
    /// Lock the rows: transactions do so by now.
    LockRows,
    /// Find the tables that stand in the places of those that are gone.
    FollowTables { gone: Error },
    /// Give up.
    Fail(Error),
    /// Nothing: the group has its place.
    Done,
}

/// One commit on its way to its place in the order.
struct Write<'a, 'r> {
    committer: &'a Committer,
    request: &'r mut dyn CommitRequest,
    durability: Durability,
    /// Whether its group may be shared.
    shares: bool,
    /// Whether the next try is without a bucket: the group of several could not go.
    alone: bool,
    group: Option<Group>,
    /// What was read before the last look at a zone that is kept back.
    mark: Option<u64>,
    lead: Option<Lead<'a>>,
    /// The place, once it has one of its own.
    pending: Option<Pending<'a>>,
    /// What became of it in the group of another thread.
    followed: Option<Outcome>,
}

impl Committer {
    /// Commits a request, perhaps together with those of other threads, and waits until it is
    /// visible and as durable as this machine makes it: a caller with locks gives them back before
    /// it waits for a store. Durable and relaxed batches do not share a group.
    pub(crate) fn commit(
        &self,
        request: &mut dyn CommitRequest,
        durability: Durability,
    ) -> Result<Lsn> {
        self.check_durability(durability)?;
        let mut write = Write::new(self, request, durability.on_this_machine());
        write.shares = true;
        write.run()?;
        write.publish()
    }

    /// Gives a request its place in the order.
    pub(crate) fn enqueue(
        &self,
        request: &mut dyn CommitRequest,
        durability: Durability,
    ) -> Result<Pending<'_>> {
        self.check_durability(durability)?;
        let mut write = Write::new(self, request, durability);
        write.run()?;
        match write.pending.take() {
            Some(pending) => Ok(pending),
            None => unreachable!("a write that shares nothing ends with a place of its own"),
        }
    }

    /// Takes the ticket of a group, if nothing has to happen before. Nothing in the sequencer
    /// allocates, waits or does I/O.
    pub(super) fn take_ticket(
        &self,
        group: &Group,
        at_ticket: &mut dyn FnMut(Lsn),
    ) -> std::result::Result<Ticket<'_>, WriteStep> {
        self.poison.check().map_err(WriteStep::Fail)?;
        let mut ticket = Ticket {
            committer: self,
            lsn: 0,
            // Room for them is made here, so that the sequencer allocates nothing.
            places: Few::with_capacity(group.parts.len()),
            actives: Few::with_capacity(group.tables.len()),
            guard: None,
        };
        // To pin may run what others have deferred, with locks: not after the ticket.
        let guard = pin();
        let mut sequencer = self.sequencer.lock();
        let _inside = InSequencer::enter();
        if sequencer.is_shut {
            return Err(WriteStep::Fail(Error::closed()));
        }
        for table in &group.tables {
            table.check_alive().map_err(|gone| WriteStep::FollowTables { gone })?;
        }
        if let Some(table) = &group.drops {
            table.check_droppable().map_err(WriteStep::Fail)?;
        }
        if group.unlocked && self.locks_rows() {
            return Err(WriteStep::LockRows);
        }
        if sequencer.next > self.publisher.credit() {
            return Err(WriteStep::WaitForRing { oldest: sequencer.next - ring_len() });
        }
        if let Some((stream, len)) = sequencer.lacks_space(group) {
            return Err(WriteStep::LinkZone { stream, len });
        }
        if sequencer.is_kept_from(group, &self.zones) {
            return Err(WriteStep::WaitForReserve { full: self.zones.kept_back(group.frees) });
        }
        for table in &group.tables {
            ticket.actives.push(table.active());
        }
        ticket.guard = Some(guard);
        ticket.lsn = sequencer.pass(group, &self.zones, &mut ticket.places);
        at_ticket(ticket.lsn);
        Ok(ticket)
    }
}

impl<'a, 'r> Write<'a, 'r> {
    fn new(
        committer: &'a Committer,
        request: &'r mut dyn CommitRequest,
        durability: Durability,
    ) -> Write<'a, 'r> {
        Write {
            committer,
            request,
            durability,
            shares: false,
            alone: false,
            group: None,
            mark: None,
            lead: None,
            pending: None,
            followed: None,
        }
    }

    /// The loop: every retry of a commit is one more turn of it.
    fn run(&mut self) -> Result<()> {
        let mut step = WriteStep::MakeGroup;
        loop {
            step = match step {
                WriteStep::MakeGroup => self.make_group()?,
                WriteStep::TakeTicket => self.take_ticket(),
                WriteStep::WaitForRing { oldest } => self.wait_for_ring(oldest)?,
                WriteStep::LinkZone { stream, len } => self.link_zone(stream, len),
                WriteStep::WaitForReserve { full } => self.wait_for_reserve(full),
                WriteStep::WaitForSpace { full, mark } => {
                    self.wait_by(|request| request.wait_for_space(full, mark))?
                }
                WriteStep::LockRows => self.wait_by(|request| request.lock_rows())?,
                WriteStep::FollowTables { gone } => {
                    self.wait_by(|request| request.follow_tables(gone))?
                }
                WriteStep::Fail(error) => {
                    debug_assert!(self.pending.is_none(), "a failure has no ticket (invariant 1)");
                    return Err(error);
                }
                WriteStep::Done => return Ok(()),
            };
        }
    }

    /// Encodes the group. In a bucket it goes with others: the leader takes the group of all, a
    /// follower is done when the leader is.
    fn make_group(&mut self) -> Result<WriteStep> {
        debug_assert!(self.lead.is_none(), "a write leads one bucket at a time (invariant 2)");
        debug_assert!(
            self.pending.is_none() && self.followed.is_none(),
            "a write that has its place makes no group again (invariant 3)"
        );
        let (committer, geometry) = (self.committer, self.committer.zones.geometry());
        let group = self.request.group(geometry.largest_zone())?;
        let shares = self.shares && !std::mem::take(&mut self.alone);
        let relaxed = self.durability == Durability::Relaxed;
        let bucket = shares.then(|| committer.buckets.of_this_thread(relaxed)).flatten();
        let Some(bucket) = bucket else {
            self.group = Some(group);
            return Ok(WriteStep::TakeTicket);
        };
        match bucket.join(group) {
            Part::Leads(mut lead) => {
                let room = geometry.usual_zone() - ZONE_HEADER;
                self.group = Some(lead.gather(&committer.buckets.bounds, room as usize));
                self.lead = Some(lead);
                Ok(WriteStep::TakeTicket)
            }
            Part::Follows(Outcome::Alone) => {
                self.alone = true;
                Ok(WriteStep::MakeGroup)
            }
            Part::Follows(outcome) => {
                self.followed = Some(outcome);
                Ok(WriteStep::Done)
            }
        }
    }

    /// Tries to take the ticket; with one, stores the group.
    fn take_ticket(&mut self) -> WriteStep {
        let Some(group) = &mut self.group else { unreachable!("it was encoded (invariant 3)") };
        let _spent = SpentOn::purpose_if_none(Purpose::Commit);
        let (request, lead) = (&mut *self.request, &mut self.lead);
        let ticket = self.committer.take_ticket(group, &mut |lsn| {
            request.at_ticket(lsn);
            if let Some(lead) = lead {
                lead.note_ticket(lsn);
            }
        });
        match ticket {
            Ok(mut ticket) => {
                debug_assert!(self.pending.is_none(), "a write has one ticket (invariant 3)");
                self.pending = Some(self.committer.store(group, &mut ticket, self.durability));
                self.group = None;
                WriteStep::Done
            }
            Err(
                step @ (WriteStep::WaitForRing { .. }
                | WriteStep::LinkZone { .. }
                | WriteStep::WaitForReserve { .. }),
            ) => step,
            Err(step) => self.leave_bucket(step),
        }
    }

    fn wait_for_ring(&mut self, oldest: Lsn) -> Result<WriteStep> {
        self.committer.wait_before_ticket(oldest, Goal::Written)?;
        Ok(WriteStep::TakeTicket)
    }

    fn link_zone(&mut self, stream: u32, len: u64) -> WriteStep {
        let mark = self.request.space_mark();
        let frees = self.group.as_ref().map_or(Frees::Nothing, Group::frees);
        match self.committer.make_standby(stream, len, frees) {
            Ok(()) => WriteStep::TakeTicket,
            Err(full) if full.kind() == ErrorKind::Full => {
                self.leave_bucket(WriteStep::WaitForSpace { full, mark })
            }
            Err(error) => self.leave_bucket(WriteStep::Fail(error)),
        }
    }

    /// The mark is read before the look that counts, so that no space is missed.
    fn wait_for_reserve(&mut self, full: Error) -> WriteStep {
        match self.mark.take() {
            Some(mark) => self.leave_bucket(WriteStep::WaitForSpace { full, mark }),
            None => {
                self.mark = Some(self.request.space_mark());
                WriteStep::TakeTicket
            }
        }
    }

    /// Has the request wait, with its group to be made again.
    fn wait_by(
        &mut self,
        wait: impl FnOnce(&mut dyn CommitRequest) -> Result<()>,
    ) -> Result<WriteStep> {
        debug_assert!(self.lead.is_none(), "nothing waits with it (invariant 2)");
        wait(self.request)?;
        Ok(WriteStep::MakeGroup)
    }

    /// The group cannot go before `step`, which may take long or fail. The next thread gets the
    /// bucket (invariant 2). Batches that shared the group try alone, this one too, to find out
    /// which of them it was.
    fn leave_bucket(&mut self, step: WriteStep) -> WriteStep {
        self.group = None;
        let Some(mut lead) = self.lead.take() else { return step };
        lead.hand_on();
        if !lead.has_followers() {
            return step;
        }
        lead.tell(Outcome::Alone);
        self.alone = true;
        WriteStep::MakeGroup
    }

    /// Waits for the group that the write is in, and tells those that share it.
    fn publish(mut self) -> Result<Lsn> {
        let outcome = match (self.pending.take(), self.followed) {
            (Some(pending), None) => {
                if let Some(lead) = &mut self.lead {
                    lead.hand_on();
                }
                let lsn = pending.lsn;
                pending.wait().map_or(Outcome::Unknown(lsn), Outcome::Published)
            }
            (None, Some(outcome)) => outcome,
            _ => unreachable!("a write is done in its own group, or in another one"),
        };
        if let Some(lead) = &mut self.lead {
            lead.tell(outcome);
        }
        match outcome {
            Outcome::Published(lsn) => Ok(lsn),
            Outcome::Unknown(lsn) => Err(self.committer.poison.unknown_outcome(lsn)),
            Outcome::Alone => unreachable!("a batch that goes alone is not done"),
        }
    }
}

// The end of commits: the database is being closed.
//
// A thread may have found the database open just before it was closed, and commit just after. The
// sequencer refuses it: no group gets a ticket once the closing has begun to settle. Groups that
// have theirs are waited for, after a failure too, so nothing is written to the region after the
// closing.
impl Committer {
    /// Gives out no ticket any more, and waits until all commits that have one are durable. After a
    /// failure, which [`Committer::sync_floor`] reports, it waits until their threads have written
    /// what they write: another opening may use the region next.
    pub(crate) fn shut(&self) {
        let last = {
            // A zone that is being linked is linked before that, and none afterwards.
            let _linking = self.linking.lock();
            let mut sequencer = self.sequencer.lock();
            sequencer.is_shut = true;
            sequencer.next - 1
        };
        if self.publisher.wait(last, Goal::Durable).is_err() {
            self.publisher.wait_for_tickets(last);
        }
    }
}
