//! Databases with a long history, which many runs begin with.

use std::path::Path;

use terrace::Durability::Durable;
use terrace::testing::{Failpoint, LONG_LIST, Machine, Survive};

use super::{JOURNAL_EPOCH, put_any};
use crate::content::Effect;
use crate::cuts::{Kind, PATH, Rig, copy, options};
use crate::workload::Action;

/// A database one long table name away from a new epoch of its journal, closed.
pub fn long_journal(kind: Kind) -> Rig {
    let mut rig = Rig::new(kind, 5, None);
    rig.create("a");
    rig.put("a", "one", 100, Durable);
    let name = |n: u64| format!("{n:0>250}");
    rig.create(&name(0));
    let mut n = 0;
    while journal(&rig.machine).1 + 3000 < JOURNAL_EPOCH {
        rig.perform(&Action::Table(Effect::Rename(name(n), name(n + 1))));
        n += 1;
    }
    rig.db.clone().close().unwrap();
    rig
}

/// A database two openings away from one that joins its list of incarnations, closed.
pub fn many_openings(kind: Kind) -> Rig {
    let mut rig = Rig::new(kind, 7, None);
    rig.create("a");
    rig.create("b");
    for _ in 0..LONG_LIST - 2 {
        // A list has those that left records.
        put_any(&mut rig, Durable);
        let machine = rig.machine.crash(Survive::Nothing);
        let db = options(&machine, None).open(PATH).unwrap();
        let content = rig.content.clone();
        rig.go_on(machine, db, content);
    }
    put_any(&mut rig, Durable);
    rig.db.clone().close().unwrap();
    rig
}

/// The journal's name, and its length without the space that is allocated ahead.
pub fn journal(machine: &Machine) -> (String, u64) {
    let directory = Path::new(PATH);
    let mut names = machine.list(directory).into_iter().map(|(name, _)| name);
    let name = names.rfind(|name| name.starts_with("journal-")).unwrap_or_default();
    let len = machine.len_without_zeros(&directory.join(&name));
    (name, len)
}

/// A rig on a copy of a closed one.
pub fn again(prepared: &Rig, kind: Kind, seed: u64, bug: Option<Failpoint>) -> Rig {
    let machine = copy(&prepared.machine);
    let db = options(&machine, bug).open(PATH).unwrap();
    Rig::over((machine, db, prepared.content.clone()), kind, seed, bug)
}
