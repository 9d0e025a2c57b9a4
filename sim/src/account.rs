//! What a database owes for what it was asked for, and what is found of it after an end.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use terrace::Database;
use terrace::testing::{Failpoint, Machine, Survive};

use crate::backups::{Backups, Kept};
use crate::content::{Content, Differences, Effect, Keys, Rows, read_all, read_named};
use crate::cuts::{End, PATH, copy, options};
use crate::violation::{Class, Violation, of_panic};

/// One commit that was asked for.
#[derive(Clone, Debug)]
pub struct Commit {
    pub effects: Vec<Effect>,
    /// It told an error that says that it was not done.
    pub failed: bool,
}

/// What a database had been asked for, and had acknowledged, when its end came.
#[derive(Clone, Debug)]
pub struct Account {
    pub(crate) base: Arc<Content>,
    pub(crate) commits: Arc<Vec<Commit>>,
    pub(crate) durable: usize,
    pub(crate) acknowledged: usize,
    /// So many commits had told their outcome. Those of them that failed are not there.
    pub(crate) settled: usize,
    pub(crate) backups: Backups,
}

impl Account {
    /// With the commits that came since; one of them was under way. So may a backup be, or the
    /// deletion of one.
    pub fn with_last(mut self, rig: &crate::cuts::Rig) -> Account {
        self.commits = Arc::new(rig.commits().to_vec());
        let kept = self.backups.kept();
        self.backups.clone_from(rig.backups());
        self.backups.owe(kept);
        self
    }

    /// As it was when so much had been told.
    pub(crate) fn then(&self, durable: usize, settled: usize, kept: Kept) -> Account {
        let mut account = Account { durable, settled, ..self.clone() };
        account.backups.owe(kept);
        account
    }

    /// Each key that it names, of each table.
    fn keys(&self) -> Keys {
        let keys_of = |rows: &Rows| rows.keys().cloned().collect();
        let mut keys: Keys =
            self.base.0.iter().map(|(name, rows)| (name.clone(), keys_of(rows))).collect();
        for effect in self.commits.iter().flat_map(|commit| &commit.effects) {
            match effect {
                Effect::Put(table, key, _)
                | Effect::Merge(table, key, _)
                | Effect::Delete(table, key)
                | Effect::DeleteRange(table, key, _) => {
                    keys.entry(table.clone()).or_default().insert(key.clone());
                }
                Effect::Rename(from, to) => {
                    let moved = keys.get(from).cloned().unwrap_or_default();
                    keys.entry(to.clone()).or_default().extend(moved);
                }
                _ => {}
            }
        }
        keys
    }

    /// Holds `found` against the account.
    pub fn check(&self, end: End, found: &Content) -> Result<(), Violation> {
        let must = match end {
            End::Cut(_) => self.durable,
            End::Kill => self.acknowledged,
        };
        let mut content = Content::clone(&self.base);
        let mut matches = Vec::new();
        let mut differences = Differences::between(&content, found);
        for n in 0..=self.commits.len() {
            if differences.is_none(&content, found) {
                matches.push(n);
            }
            let Some(commit) = self.commits.get(n) else { break };
            if commit.failed && n < self.settled {
                continue;
            }
            for effect in &commit.effects {
                content.apply(effect);
                differences.after(effect, &content, found);
            }
            if commit.failed {
                // It was under way, so nothing came after it.
                if differences.is_none(&content, found) {
                    matches.push(n + 1);
                }
                break;
            }
        }
        if matches.iter().any(|n| *n >= must) {
            return Ok(());
        }
        let all = self.commits.len();
        if let Some(n) = matches.last() {
            let what = format!("found the first {n} of {all} commits, {must} must be there");
            return Err(Class::Lost.violation(what));
        }
        let first = found.differs_from(&content).unwrap_or_default();
        let what = format!("found no prefix of {all} commits, {must} must be there; {first}");
        Err(Class::NotAPrefix.violation(what))
    }
}

/// Opens what was found after an end, and holds it against the account; a panic is a violation.
pub fn reopen(
    machine: &Machine,
    failpoint: Option<Failpoint>,
    account: &Account,
    end: End,
) -> Result<(Database, Content), Violation> {
    let after = |what: Violation| format!("after {end:?}: {what}");
    let refused = |e: terrace::Error| Class::Refused.violation(e);
    let opened = std::panic::catch_unwind(AssertUnwindSafe(|| -> Result<_, Violation> {
        let db = options(machine, failpoint).open(PATH).map_err(refused)?;
        // Reads follow a persistent index without a check, so it is checked before them.
        if has_index(&db) {
            verified(&db)?;
        }
        let content = read_named(&db, &account.keys()).map_err(refused)?;
        Ok((db, content))
    }));
    let opened = opened.unwrap_or_else(|panic| Err(of_panic(&*panic, "in it")));
    let (db, content) = opened.map_err(after)?;
    account.check(end, &content).map_err(after)?;
    if let Some(note) = db.stats().pm.index_note {
        return Err(after(Class::Damaged.violation(format!("the index: {note}"))));
    }
    account.backups.check(machine).map_err(after)?;
    if !has_index(&db) {
        verified(&db).map_err(after)?;
    }
    Ok((db, content))
}

fn has_index(db: &Database) -> bool {
    db.stats().pm.index == "persistent"
}

pub(crate) fn verified(db: &Database) -> Result<(), Violation> {
    let report = db.verify().map_err(|e| Class::Refused.violation(e))?;
    match report.is_sound() {
        true => Ok(()),
        false => Err(Class::Damaged.violation(format!("{report:?}"))),
    }
}

/// Cuts the power again before each step of the opening of `machine`: every time the next opening
/// must find what an undisturbed one finds. Gives how many steps there were.
pub fn cut_the_opening(
    machine: &Machine,
    failpoint: Option<Failpoint>,
    want: &Content,
    survive: Survive,
    every: u64,
) -> Result<u64, Violation> {
    let mut n = 1;
    loop {
        let again = copy(machine);
        again.cut_before(n, survive);
        let db = options(&again, failpoint).open(PATH).map_err(|e| Class::Refused.violation(e))?;
        let Some(found) = again.found() else { return Ok(n) };
        drop(db);
        let db = options(&found, failpoint).open(PATH).map_err(|e| {
            let what = Class::Refused.violation(e);
            format!("cut before step {n} of the opening ({survive:?}), opened again: {what}")
        })?;
        let content = read_all(&db).map_err(|e| Class::Refused.violation(e))?;
        if let Some(what) = content.differs_from(want) {
            let what = Class::Changed.violation(what);
            return Err(format!("cut before step {n} of the opening ({survive:?}): {what}"));
        }
        n += every;
    }
}
