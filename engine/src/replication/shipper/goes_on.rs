//! Where the log goes on with an opening. If the directory has commits that the log lacks, and they
//! all lie in zones, segments bring them. Else a checkpoint does.

use crate::base::error::{ErrorKind, Result};
use crate::base::record::{Kind, Lsn};
use crate::commit::{StoredGroup, StreamPlaces};
use crate::engine::Engine;
use crate::engine::table_events::TableEvent;
use crate::pm::Superblock;
use crate::replication::log::SharedTable;

/// What segments go on with.
pub(in crate::replication) struct GoesOn {
    /// The first LSN that the log lacks, and bytes of groups that were there before the opening.
    pub(in crate::replication) next: Lsn,
    pub(in crate::replication) bytes: u64,
    /// The tables as of the commit before.
    pub(super) tables: Vec<SharedTable>,
}

impl GoesOn {
    /// Behind all commits of the directory: the log has them.
    pub(in crate::replication) fn behind_all(engine: &Engine) -> GoesOn {
        let tables = engine.tables().into_iter();
        let tables = tables.map(|table| SharedTable { id: table.id(), name: table.name() });
        let next = engine.shared.committer.visible() + 1;
        GoesOn { next, bytes: 0, tables: tables.collect() }
    }

    /// Behind the commit `last`, which is the log's; `None` if zones lack a commit behind it, or if
    /// the names of tables as of it are not known.
    pub(in crate::replication) fn find(engine: &Engine, last: Lsn) -> Result<Option<GoesOn>> {
        let mut goes_on = GoesOn::behind_all(engine);
        if last >= engine.recovered {
            return Ok(Some(goes_on));
        }
        let superblock = engine.ctx.superblock.lock().clone();
        // In a bucket that was put back to an older state the log may lack what it had.
        if superblock.kept.is_none_or(|kept| kept > last) {
            return Ok(None);
        }
        goes_on.next = last + 1;
        match goes_on.has_all(engine, &superblock) {
            // A checkpoint has what the levels have of it.
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok(None),
            found => Ok(found?.then_some(goes_on)),
        }
    }

    /// Looks at all groups: whether each LSN has one, but for those that an opening left out.
    fn has_all(&mut self, engine: &Engine, superblock: &Superblock) -> Result<bool> {
        let began_above = engine.shared.committer.feed().map_or(0, |feed| feed.before);
        let follows = |before: Lsn, lsn: Lsn| {
            let is_last = superblock.incarnations.earlier.iter().any(|it| it.cut == before);
            lsn == before + 1 || is_last && lsn == began_above + 1
        };
        let (mut before, mut events) = (self.next - 1, Vec::new());
        let mut places = StreamPlaces::default();
        let groups = engine.shared.committer.stored_groups(&mut places, self.next)?;
        // What comes behind is of this opening: the cleaner may have begun.
        let is_earlier = |group: &Result<StoredGroup<'_>>| {
            group.as_ref().map_or(true, |group| group.lsn <= engine.recovered)
        };
        for group in groups.take_while(is_earlier) {
            let group = group?;
            if !follows(before, group.lsn) {
                return Ok(false);
            }
            let own = group.records_beside_plain().filter(|it| it.kind == Kind::TableEvent);
            events.extend(own.map(|it| TableEvent::decode(it.key, it.value)));
            (before, self.bytes) = (group.lsn, self.bytes + group.bytes());
        }
        let is_whole = before == engine.recovered || follows(before, engine.recovered + 1);
        let tables = std::mem::take(&mut self.tables).into_iter();
        let mut names = tables.map(|it| (it.id, it.name)).collect();
        let mut undone = events.into_iter().rev();
        let says_enough = undone.all(|event| event.is_some_and(|it| it.undo(&mut names)));
        self.tables = names.into_iter().map(|(id, name)| SharedTable { id, name }).collect();
        Ok(is_whole && says_enough)
    }
}
