//! What a rig does with the object store that its machine reaches, if it reaches one.

use terrace::Tier;

use super::Rig;
use crate::violation::Class;

impl Rig {
    /// Whether there is an object store.
    pub(crate) fn has_store(&self) -> bool {
        self.machine.store_url().is_some()
    }

    /// Where the cold levels of new tables lie.
    pub(super) fn cold_tier(&self) -> Tier {
        if self.has_store() { Tier::Object } else { Tier::Ssd }
    }

    /// Brings all of a table down.
    pub fn compact(&mut self, name: &str) {
        if !self.goes_on() {
            return;
        }
        self.note(|_| format!("a compaction of {name}"));
        let Some(table) = self.table(name) else { return };
        let compacted = self.db.compact_range(&table, ..);
        self.tolerate("compact", compacted);
        self.mark();
    }

    /// Has the cold levels of a table lie elsewhere.
    pub fn change_tier(&mut self, name: &str) {
        let Some(table) = self.table(name).filter(|_| self.goes_on()) else { return };
        let to = match table.options().cold_tier() {
            Tier::Object => Tier::Ssd,
            _ => Tier::Object,
        };
        self.note(|_| format!("{name} changes its tier to {to:?}"));
        let changed = self.db.set_cold_tier(name, to);
        self.tolerate("change the tier", changed);
        self.mark();
    }

    /// Deletes objects that the database does not need. None that it needs is lost.
    pub fn collect_objects(&mut self) {
        if !self.goes_on() || !self.has_store() {
            return;
        }
        self.note(|_| "a collection of objects".into());
        let collected = self.db.collect_objects();
        if let Some(found) = self.tolerate("collect objects", collected)
            && !found.lost.is_empty()
        {
            self.complain(Class::Damaged, &format!("lost objects: {:?}", found.lost));
            assert!(self.disturbed.is_some(), "lost objects: {:?}", found.lost);
        }
        self.mark();
    }
}
