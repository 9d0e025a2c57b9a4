//! The loop of a commit: what it asks of a request, and in which order.

use std::sync::atomic::Ordering;

use super::super::{Batch, CommitRequest, Group};
use super::{Fixture, Slot};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::options::Durability::Durable;

/// A request that writes down what it is asked, and does it.
struct Recording<'a> {
    fixture: &'a Fixture,
    batch: Batch<Slot>,
    /// What its group is once it has waited for space.
    smaller: Option<Batch<Slot>>,
    has_locks: bool,
    asked: Vec<&'static str>,
}

impl<'a> Recording<'a> {
    fn new(fixture: &'a Fixture, batch: Batch<Slot>) -> Recording<'a> {
        Recording { fixture, batch, smaller: None, has_locks: true, asked: Vec::new() }
    }

    /// Notes a question that takes long to answer: other groups are not to wait meanwhile.
    fn ask(&mut self, what: &'static str) {
        let bucket = self.fixture.committer.buckets.of_this_thread(false);
        assert!(bucket.is_none_or(|bucket| !bucket.is_led()), "{what}: it leads no bucket");
        self.asked.push(what);
    }
}

impl CommitRequest for Recording<'_> {
    fn group(&mut self, largest: u64) -> Result<Group> {
        self.asked.push("group");
        let group = Group::encode(&self.batch, largest)?;
        Ok(if self.has_locks { group } else { group.without_locks() })
    }

    fn space_mark(&self) -> u64 {
        7
    }

    fn wait_for_space(&mut self, full: Error, mark: u64) -> Result<()> {
        self.ask("space");
        assert_eq!((full.kind(), mark), (ErrorKind::Full, 7));
        self.batch = self.smaller.take().ok_or(full)?;
        Ok(())
    }

    fn lock_rows(&mut self) -> Result<()> {
        self.ask("locks");
        self.has_locks = true;
        Ok(())
    }

    fn follow_tables(&mut self, gone: Error) -> Result<()> {
        self.ask("tables");
        assert!(gone.is_table_gone());
        self.fixture.table.dropped.store(false, Ordering::Release);
        Ok(())
    }
}

/// Fills the region until no zone is left.
fn fill(fixture: &Fixture) -> Batch<Slot> {
    let zone = fixture.batch(&[("large", &"x".repeat(100 << 10))]);
    while fixture.committer.commit(&mut &zone, Durable).is_ok() {}
    zone
}

#[test]
fn a_commit_does_what_is_missing_and_encodes_its_group_again() {
    for batches in [1, 4] {
        let fixture = Fixture::new(false);
        fixture.committer.set_group_bounds(batches, 1 << 20);
        fixture.committer.lock_rows().unwrap();
        let large = fill(&fixture);
        let mut request = Recording::new(&fixture, large);
        request.smaller = Some(fixture.batch(&[("small", "1")]));
        request.has_locks = false;
        fixture.table.dropped.store(true, Ordering::Release);
        let before = fixture.committer.visible();
        let lsn = fixture.committer.commit(&mut request, Durable).unwrap();
        let asked = ["group", "tables", "group", "locks", "group", "space", "group"];
        assert_eq!((lsn, &request.asked[..]), (before + 1, &asked[..]), "{batches} batches");
        assert_eq!(fixture.get("small", lsn).as_deref(), Some("1"));
    }
}

#[test]
fn a_commit_that_gives_up_has_taken_no_lsn() {
    for batches in [1, 4] {
        let fixture = Fixture::new(false);
        fixture.committer.set_group_bounds(batches, 1 << 20);
        let large = fill(&fixture);
        let before = fixture.committer.visible();
        let mut request = Recording::new(&fixture, large);
        let error = fixture.committer.commit(&mut request, Durable).unwrap_err();
        assert_eq!((error.kind(), &request.asked[..]), (ErrorKind::Full, &["group", "space"][..]));
        let next = fixture.committer.commit(&mut &fixture.batch(&[("next", "1")]), Durable);
        assert_eq!(next.unwrap(), before + 1);
    }
}

/// The ring is shorter than the groups that are on their way: the loop waits for it by itself.
#[test]
fn a_commit_that_waits_for_the_ring_keeps_its_group() {
    let fixture = Fixture::of_units(false, 16);
    let mut request = Recording::new(&fixture, fixture.batch(&[("k", "1")]));
    for _ in 0..super::super::ring::ring_len() {
        fixture.committer.enqueue(&mut &request.batch, Durable).unwrap();
    }
    let last = fixture.committer.enqueue(&mut request, Durable).unwrap().wait().unwrap();
    assert_eq!((last, &request.asked[..]), (super::super::ring::ring_len() + 1, &["group"][..]));
}
