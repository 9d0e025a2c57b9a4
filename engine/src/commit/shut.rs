//! The end of commits: the database is being closed.
//!
//! A thread may have found the database open just before it was closed, and commit just after. The
//! turnstile refuses it: no group gets a ticket once the closing has begun to settle. Groups that
//! have theirs are waited for, after a failure too, so nothing is written to the region after the
//! closing.

use super::committer::Committer;
use super::publisher::Goal;

impl Committer {
    /// Gives out no ticket any more, and waits until all commits that have one are durable. After a
    /// failure, which [`Committer::sync_floor`] reports, it waits until their threads have written
    /// what they write: another opening may use the region next.
    pub(crate) fn shut(&self) {
        let last = {
            // A zone that is being linked is linked before that, and none afterwards.
            let _linking = self.linking.lock();
            let mut turnstile = self.turnstile.lock();
            turnstile.is_shut = true;
            turnstile.next - 1
        };
        if self.publisher.wait(last, Goal::Durable).is_err() {
            self.publisher.wait_for_tickets(last);
        }
    }
}
