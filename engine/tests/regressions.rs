//! Bugs that the suite found, each with the shortest way to it that is known.

mod common;

use common::content::{Effect, read_all};
use common::cuts::{End, KINDS, Kind, PATH, Rig, options, reopen};
use common::workload::Action;
use terrace::Durability::{self, Durable, Relaxed};
use terrace::testing::{Machine, Survive};

fn put(rig: &mut Rig, table: &str, key: &str, len: usize, durability: Durability) {
    let value = rig.chance.bytes(len);
    let put = Effect::Put(table.into(), key.as_bytes().to_vec(), value);
    rig.perform(&Action::Write(vec![put], durability));
}

fn create(rig: &mut Rig, name: &str) {
    rig.perform(&Action::Table(Effect::Create(name.into())));
}

/// Bug: a process killed between the write and the sync of a drain's edit, an opening that read
/// the edit from the operating system's cache and released the drained zones, a power cut: the
/// edit was gone and so were the records. Cause: opening made the region durable again, not the
/// journal. Fix: opening syncs the journal and its directory before anything builds on them.
#[test]
fn an_unsynced_edit_is_made_durable_before_zones_are_released_for_it() {
    let mut rig = Rig::new(Kind::Files, 1, None);
    create(&mut rig, "t");
    for n in 0..120 {
        put(&mut rig, "t", &format!("{n:03}"), 9000, Durable);
    }
    for n in 1..200 {
        let drains = rig.db.stats().background.drains;
        rig.machine.kill_before(n % 8 + 1);
        rig.steps(1);
        let Some(found) = rig.machine.found() else { continue };
        if rig.db.stats().background.drains == drains {
            continue;
        }
        let (db, content) = reopen(&found, None, &rig.account(), End::Kill).unwrap();
        while db.step().unwrap() {}
        let cut = found.crash(Survive::Nothing);
        let again = options(&cut, None).open(PATH).unwrap();
        assert_eq!(read_all(&again).unwrap().differs_from(&content), None, "killed at {n}");
    }
    assert!(rig.db.stats().background.drains > 0);
}
