//! Checkpoints of openings that are short.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use super::*;
use crate::base::options::Options;
use crate::os::Files;
use crate::storage::object_testing::ObjectServer;
use terrace_testkit::SimFiles;

/// Bug: the log of a writer that ships little in each of its openings grew for ever, and a takeover
/// applied all of it. Cause: each opening counted its own bytes alone, and a closing begins no
/// checkpoint that is due. Fix: an opening counts what the log has, and makes at its closing what
/// an earlier one has left.
#[test]
fn openings_that_are_short_make_checkpoints() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let files = SimFiles::new() as Arc<dyn Files>;
    let (client, _) = crate::storage::open_client((server.url(), true), &files, 0, None).unwrap();
    let log = SharedLog::new(client, false);
    let options = Options::new().pm_size(4 << 20).stepped().object_store(server.url()).share(true);
    let (mut checkpoints, mut random) = (BTreeSet::new(), 1u64);
    for round in 0..30u32 {
        let db = options.clone().open(dir.path()).unwrap();
        let mut value = Vec::new();
        while value.len() < 40 << 10 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            value.push((random >> 56) as u8);
        }
        db.table("t").unwrap().put(round.to_be_bytes(), value).unwrap();
        db.close().unwrap();
        let behind = log.bytes_behind(log.end().unwrap().checkpoint).unwrap();
        assert!(behind < 2 * STEPPED_CHECKPOINT_BYTES, "{behind} bytes after {round} openings");
        checkpoints.insert(log.end().unwrap().checkpoint);
    }
    let first = *checkpoints.first().unwrap();
    assert!(checkpoints.len() >= 3, "{checkpoints:?}");
    assert!(log.head().unwrap().0.oldest > first, "entries are deleted too");
}
