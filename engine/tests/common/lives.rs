//! Databases that work, end, and go on with what was found, several times over.

use terrace::Durability;
use terrace::testing::{Failpoint, Machine, Survive};

use super::content::{Content, Effect, read_all};
use super::cuts::{
    Account, End, Kind, PATH, Rig, Violation, copy, cut_the_opening, options, reopen,
};
use super::workload::{Action, Taste};

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct Lives {
    pub kind: Kind,
    pub seed: u64,
    pub taste: Taste,
    /// Some ends are kills of the process.
    pub kills: bool,
    pub failpoint: Option<Failpoint>,
}

/// What happened in runs, to see that there was something to find.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub ends: u64,
    pub drains: u64,
    pub compactions: u64,
    pub zones_released: u64,
}

impl Tally {
    fn add(&mut self, rig: &Rig) {
        let stats = rig.db.stats().background;
        self.ends += 1;
        self.drains += stats.drains;
        self.compactions += stats.compactions + stats.moves;
        self.zones_released += stats.zones_released;
    }
}

impl Lives {
    /// Works, ends, checks, goes on with what was found.
    pub fn run(&self, tally: &mut Tally) -> Result<(), Violation> {
        let _together = super::together();
        let mut rig = Rig::new(self.kind, self.seed, self.failpoint);
        for life in 0..6 {
            for _ in 0..rig.chance.below(120) {
                rig.act(&self.taste);
            }
            let Some((found, account, end)) = self.end(&mut rig) else { continue };
            tally.add(&rig);
            let (db, content) = self.after(&found, &account, end, &mut rig).map_err(|what| {
                format!("{:?}, seed {}, life {life}: {what}", self.kind, self.seed)
            })?;
            rig.go_on(found, db, content);
        }
        Ok(())
    }

    fn end(&self, rig: &mut Rig) -> Option<(Machine, Account, End)> {
        let planned = rig.chance.percent(50);
        let kill = self.kills && rig.chance.percent(50);
        let end = if kill { End::Kill } else { End::Cut(rig.survive()) };
        if planned {
            let n = 1 + rig.chance.below(40);
            match end {
                End::Cut(survive) => rig.machine.cut_before(n, survive),
                End::Kill => rig.machine.kill_before(n),
            }
            let (found, account) = rig.work_until_found(&self.taste, 400)?;
            return Some((found, account, end));
        }
        let found = match end {
            End::Cut(survive) => rig.machine.crash(survive),
            End::Kill => rig.machine.kill(),
        };
        Some((found, rig.account(), end))
    }

    /// Checks what was found, and that a second end during or after the opening finds the same.
    fn after(
        &self,
        found: &Machine,
        account: &Account,
        end: End,
        rig: &mut Rig,
    ) -> Result<(terrace::Database, Content), Violation> {
        let (before, failpoint) = (copy(found), self.failpoint);
        let (db, content) = reopen(found, failpoint, account, end)?;
        let second = rig.survive();
        match end {
            End::Cut(_) => {
                cut_the_opening(&before, failpoint, &content, second, 1 + rig.chance.below(5))?;
            }
            End::Kill => {
                // What had not been synced may still be lost while the opening is under way; once
                // it is done, nothing may.
                before.cut_before(1 + rig.chance.below(6), second);
                drop(options(&before, failpoint).open(PATH).map_err(|e| e.to_string())?);
                if let Some(lost) = before.found() {
                    reopen(&lost, failpoint, account, End::Cut(second))?;
                }
            }
        }
        let cut = found.crash(Survive::Nothing);
        let again = options(&cut, failpoint).open(PATH).map_err(|e| e.to_string())?;
        let reread = read_all(&again).map_err(|e| e.to_string())?;
        match reread.differs_from(&content) {
            Some(what) => Err(format!("a cut right after the opening after {end:?}: {what}")),
            None => Ok((db, content)),
        }
    }
}

/// A put and, in a later zone, the tombstone that deletes it; the drain takes both and drops the
/// tombstone, whose zone is released before that of the put. After a cut the key must not be back.
pub fn dead_stay_dead(kind: Kind, failpoint: Option<Failpoint>) -> Result<(), Violation> {
    let _alone = super::alone();
    let mut rig = Rig::new(kind, 1, failpoint);
    rig.perform(&Action::Table(Effect::Create("t".into())));
    put(&mut rig, "a victim", 10);
    for n in 0..10 {
        put(&mut rig, &format!("zone one {n}"), 10_000);
    }
    // Two zones of low keys, the deletion first: the first column of the drain.
    let delete = Effect::Delete("t".into(), b"a victim".to_vec());
    for n in 0..6 {
        put(&mut rig, &format!("low filler {n:02}"), 10_000);
    }
    rig.perform(&Action::Write(vec![delete], Durability::Durable));
    for n in 6..40 {
        put(&mut rig, &format!("low filler {n:02}"), 10_000);
    }
    let mut n = 0;
    while rig.db.stats().background.zones_released == 0 {
        let stats = rig.db.stats();
        if stats.background.drains == 0 && stats.pm.zones_used * 2 < stats.pm.zones {
            put(&mut rig, &format!("zone one, later {n}"), 10_000);
        }
        rig.steps(1);
        n += 1;
        assert!(n < 1000, "no zone was released: {:?}", rig.db.stats());
    }
    assert_eq!(rig.db.stats().background.drains, 1, "the first column alone was drained");
    let (found, end) = (rig.machine.crash(Survive::Nothing), End::Cut(Survive::Nothing));
    reopen(&found, failpoint, &rig.account(), end).map(|_| ())
}

fn put(rig: &mut Rig, key: &str, len: usize) {
    let value = rig.chance.bytes(len);
    let put = Effect::Put("t".into(), key.as_bytes().to_vec(), value);
    rig.perform(&Action::Write(vec![put], Durability::Relaxed));
}
