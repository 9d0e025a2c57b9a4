//! A rig reads and syncs its database, makes its region longer, closes it, and opens it again.

use terrace::testing::{Failpoint, Machine, Survive};
use terrace::{Database, Options};

use super::{End, Kind, PATH, Rig, lies_apart, options};
use crate::backups::Backups;
use crate::chance::Chance;
use crate::content::{Content, read_all};
use crate::disturbed::Disturbed;
use crate::mixes_level0;
use crate::violation::Class;

impl Rig {
    /// No call fails any more.
    pub(crate) fn mend(&mut self) {
        self.machine.mend();
        self.disturbed.iter_mut().for_each(Disturbed::mended);
    }

    /// Whether work goes on: it does until so many calls in a row failed that only another opening
    /// helps.
    pub fn goes_on(&self) -> bool {
        self.disturbed.as_ref().is_none_or(Disturbed::goes_on)
    }

    /// A rig that goes on with what is open on a machine, and holds `content`.
    pub fn over(
        (machine, db, content): (Machine, Database, Content),
        kind: Kind,
        seed: u64,
        failpoint: Option<Failpoint>,
    ) -> Rig {
        Rig {
            machine,
            db,
            chance: Chance::new(seed),
            failpoint,
            base: content.clone(),
            commits: Vec::new(),
            durable: 0,
            acknowledged: 0,
            content,
            backups: Backups::default(),
            marks: None,
            disturbed: None,
            written: Vec::new(),
            apart: lies_apart,
            mixes_level0: kind == Kind::Mixed || mixes_level0(),
            is_closed: false,
        }
    }

    /// Reads everything: what is read is right, or a call that failed is told. A database that has
    /// stopped serves nothing that is not durable.
    pub fn read(&mut self) {
        if !self.goes_on() || self.is_closed || self.has_unknown() {
            return;
        }
        let read = read_all(&self.db);
        let Some(found) = self.tolerate("read", read) else { return };
        let has_stopped = || self.db.sync().is_err();
        let is_durable = || self.owed().check(End::Cut(Survive::Nothing), &found).is_ok();
        if let Some(what) = found.differs_from(&self.content)
            && !(is_durable() && has_stopped())
        {
            self.complain(Class::Changed, &format!("read: {what}"));
        }
    }

    /// Opens the database if it was closed.
    pub fn open_again(&mut self) {
        if self.is_closed {
            self.open();
        }
    }

    /// Closes the database: everything is durable.
    pub fn close(&mut self) {
        let closed = self.db.clone().close();
        if self.tolerate("close", closed).is_some() {
            self.is_closed = true;
            self.durable = self.commits.len();
        } else {
            self.disturbed.iter_mut().for_each(Disturbed::end);
        }
        self.mark();
    }

    /// Makes the region longer.
    pub fn grow(&mut self, by: u64) {
        let capacity = self.db.stats().pm.capacity;
        let grown = self.db.grow_pm(capacity + by);
        self.tolerate("grow the region", grown);
    }

    /// Makes durable what was acknowledged.
    pub(super) fn sync(&mut self) {
        let synced = self.db.sync();
        if self.tolerate("sync", synced).is_some() {
            self.durable = self.acknowledged;
        }
        self.mark();
    }

    /// Opens the database that was closed.
    pub fn open(&mut self) {
        self.open_with(&options(&self.machine, self.failpoint));
    }

    /// Opens the database that was closed, under a limit of memory.
    pub fn open_within(&mut self, memory: u64) {
        self.open_with(&options(&self.machine, self.failpoint).memory(memory));
    }

    /// Where calls fail, an opening is tried again; without faults it must not fail.
    fn open_with(&mut self, options: &Options) {
        let is_open = |rig: &mut Rig| {
            let opened = options.clone().open(PATH);
            let opened = rig.tolerate("open", opened).map(|db| rig.db = db).is_some();
            rig.is_closed = !opened;
            opened
        };
        if !self.goes_on() || is_open(self) || is_open(self) {
            return;
        }
        self.machine.mend();
        if !is_open(self) {
            self.complain(Class::Refused, "an opening without faults");
        }
    }
}
