//! Zones ready for writers: a thread links the next one to each stream while the one before it
//! fills, so that no writer has to.
//!
//! The background does so too, between its jobs; but one of these may take longer than a zone
//! lasts, and where the region is a file a link is a sync, of what was written since the last one
//! as well.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use super::inner::Engine;
use crate::error::{ErrorKind, Result};

/// Writers ring; it looks around by itself this often.
const RESTING: Duration = Duration::from_secs(10);

impl Engine {
    /// Whether links take long enough for a thread of their own.
    pub(super) fn has_slow_links(&self) -> bool {
        self.shared.region.mode() == "file"
    }

    fn keep_zones_ready(&self) {
        while !self.stop.load(Ordering::Acquire) {
            let waited_for = match self.shared.poison.check().and_then(|()| self.link_spare()) {
                Ok(true) => continue,
                Ok(false) => RESTING,
                Err(e) => self.note_failure(&e),
            };
            self.shared.zone_bell.wait(waited_for);
        }
    }

    /// Links a spare zone to a stream that has none; whether there was one.
    pub(super) fn link_spare(&self) -> Result<bool> {
        let Some(stream) = self.shared.committer.lacks_spare() else { return Ok(false) };
        match self.shared.committer.make_spare(stream, 0) {
            Ok(()) => Ok(true),
            // The region is full: drains make space.
            Err(e) if e.kind() == ErrorKind::Full => Ok(false),
            Err(e) => Err(e),
        }
    }
}

/// Starts the thread.
pub(super) fn spawn_zone_keeper(engine: &Arc<Engine>) -> std::io::Result<JoinHandle<()>> {
    let engine = Arc::clone(engine);
    std::thread::Builder::new().name("terrace-zones".to_string()).spawn(move || {
        let run = std::panic::AssertUnwindSafe(|| engine.keep_zones_ready());
        if std::panic::catch_unwind(run).is_err() {
            engine.stop_because("the thread that keeps zones ready panicked");
        }
    })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::options::Options;

    /// The background is stopped where it would take the table's change, and so links nothing.
    #[test]
    fn zones_are_ready_whatever_the_background_is_at() {
        let directory = tempfile::tempdir().unwrap();
        let db = Options::new().pm_size(16 << 20).create(directory.path().join("db")).unwrap();
        let table = db.table("t").unwrap();
        let engine: &Engine = &db.inner;
        assert!(engine.has_slow_links());
        let core = engine.tables().pop().unwrap();
        let change = core.change();
        let (free, mut key) = (engine.shared.zones.free(), 0u32);
        while free - engine.shared.zones.free() < 16 {
            table.put(key.to_be_bytes(), [1; 4000]).unwrap();
            key += 1;
        }
        let deadline = Instant::now() + Duration::from_secs(20);
        while engine.shared.committer.lacks_spare().is_some() {
            assert!(Instant::now() < deadline, "nobody links a zone but who needs one");
            std::thread::yield_now();
        }
        drop(change);
        db.close().unwrap();
    }
}
