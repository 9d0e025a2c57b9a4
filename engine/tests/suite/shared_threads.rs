//! The shipper as a thread of its own: what it asks of a store.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::time::{Duration, Instant};

use crate::common::wait_until;
use terrace::{Durability, ObjectServer, Options, StoreFault, WriteBatch};

/// The pause after a failure was skipped while a whole segment waited: millions of requests went to
/// a store that refused them. Each failure has its pause, which doubles, however much waits.
#[test]
fn a_store_that_refuses_is_asked_less_and_less_often() {
    for mib in [2, 6] {
        let dir = tempfile::tempdir().unwrap();
        let server = ObjectServer::new();
        let options = Options::new().pm_size(64 << 20).object_store(server.url()).share(true);
        let db = options.open(dir.path().join("db")).unwrap();
        let table = db.table("t").unwrap();
        table.put_with("a", "1", Durability::Remote).unwrap();
        server.always(Some(StoreFault::Refuse));
        for n in 0..mib {
            let mut batch = WriteBatch::new();
            batch.put(&table, format!("k{n}"), vec![n as u8; 1 << 20]);
            db.write_with(batch, Durability::Relaxed).unwrap();
        }
        let note = || db.stats().share.unwrap().note;
        wait_until("it is refused", || note().is_some());
        let (before, began) = (server.requests(), Instant::now());
        wait_until("it is asked again", || server.requests() >= before + 5);
        // Pauses of 200, 400, 800 and 1600 milliseconds lie between five requests.
        assert!(began.elapsed() >= Duration::from_secs(2), "{mib} MiB: {:?}", began.elapsed());
        server.always(None);
        table.put_with("b", "2", Durability::Remote).unwrap();
        assert_eq!(note(), None);
    }
}
