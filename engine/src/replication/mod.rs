//! A database that other machines can take over, follow, and stand by for, through an object store
//! alone. `docs/internals/shared-store.md` has the design.
//!
//! The writer: `shipper.rs` appends commits (`segment.rs`) and checkpoints (`checkpoint.rs`) to the
//! log, `collect.rs` deletes what is not needed. A reader: a database is made of a checkpoint
//! (`checkpoint.rs`), `apply.rs` applies entries to it, `node.rs` does so all the time, for the
//! handles of `api.rs`. `registration.rs` has the store keep what a reader needs. `takeover.rs`
//! makes a reader the writer. `unshipped.rs` tells what the one before had alone.

mod api;
mod apply;
mod checkpoint;
mod collect;
mod digest;
pub(crate) mod log;
mod node;
mod places;
mod prepares;
mod registration;
mod segment;
mod shipper;
mod status;
mod takeover;
mod unshipped;

use std::sync::Arc;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::events::RoleChangeInfo;
use crate::base::options::{Failpoint, Options};
use crate::base::record::Lsn;
use crate::engine::Engine;
use crate::engine::catalog::READER_TABLE;
use crate::engine::open::object_client;
use crate::os::Files;
use log::{Identity, LogEnd, LogWriter, SharedLog};

pub use api::{Follower, Standby};
use checkpoint::SentCheckpoint;
pub use digest::{Digest, TableDigest};
use shipper::{Beginning, Shipper};
pub use status::{NodeStatus, RegisteredFollower, SharedStatus};
pub use unshipped::{UnshippedChange, UnshippedReport};

/// The log of a URL.
struct OpenedLog {
    log: Arc<SharedLog>,
    /// A number that no other opening has.
    nonce: [u8; 16],
}

/// Opens the log of a URL. Asks the store for nothing.
fn open_log(
    url: &str,
    options: &Options,
    files: &Arc<dyn Files>,
    number: u64,
) -> Result<OpenedLog> {
    let (client, nonce) = object_client(url, options, files, number)?;
    let log = Arc::new(SharedLog::new(client, options.has(Failpoint::TrustSearches)));
    Ok(OpenedLog { log, nonce })
}

/// Becomes the writer of the shared store with the commits of a directory, and gets the shipper.
///
/// # Errors
///
/// `Fenced` if the store is another directory's; `Invalid` if it has commits that this one lost;
/// `Unavailable` if it does not answer.
pub(crate) fn share(engine: &Engine, files: &Arc<dyn Files>) -> Result<()> {
    if engine.tables().iter().any(|table| table.name() == READER_TABLE) {
        return Err(Error::invalid(format!(
            "{} has the table {READER_TABLE:?}, in which a follower or a standby keeps its state: \
             open it as that, or rename the table before the database is shared",
            engine.path.display()
        )));
    }
    let url = engine.options.object_store.as_deref().unwrap_or_default();
    let incarnation = engine.shared.committer.incarnation;
    let OpenedLog { log, nonce } = open_log(url, &engine.options, files, incarnation)?;
    let identity = Identity::new(files, &engine.path);
    let claimed = (nonce, incarnation);
    // Not the next LSN, nor what this opening found: an opening before it may have lost commits,
    // and has raised the floor above them.
    let own = engine.ctx.superblock.lock().shared_cut.unwrap_or(engine.recovered);
    let fits = |end: LogEnd| match end.last > own {
        true => Err(Error::invalid(format!(
            "the directory {} lost commits {} to {} of the shared store {}; make a new directory \
             with open_shared, and keep this one until you have looked: it may have later commits, \
             which the store lacks",
            engine.path.display(),
            own + 1,
            end.last,
            log.address(),
        ))),
        false => Ok(()),
    };
    let (mut writer, end) = LogWriter::claim(&log, &identity, claimed, fits)?;
    writer.check_claims(!engine.options.has(Failpoint::IgnoreClaims));
    agree(engine)?;
    let own = match end.checkpoint {
        0 => Ok(None),
        number => checkpoint::read(&log, number),
    };
    // A log without a checkpoint is begun with one. One that is damaged gets another one: no reader
    // can start from it.
    let (own, is_sound) = match own {
        Err(error) if error.kind() == ErrorKind::Corrupt => (None, false),
        own => (own?, end.checkpoint > 0),
    };
    tell_role(engine, "writer", engine.recovered);
    let shipped = is_sound && end.last >= engine.recovered;
    let is_own =
        own.as_ref().is_some_and(|found| found.manifest.database_id == engine.set.database_id());
    let newest = own.map(SentCheckpoint::from);
    begin(engine, &log, Beginning { writer, end, shipped, newest, is_own });
    Ok(())
}

/// Notes that the store has no commit that the directory lacks. It is durable before the first
/// commit is sent, with which the log gets beyond what was compared.
fn agree(engine: &Engine) -> Result<()> {
    let mut superblock = engine.ctx.superblock.lock();
    if superblock.shared_cut.take().is_some() {
        superblock.write(&engine.shared.region)?;
    }
    Ok(())
}

/// Tells who listens of another role, and of the last commit.
fn tell_role(engine: &Engine, role: &'static str, lsn: Lsn) {
    engine.options.events.send(|| RoleChangeInfo { role, lsn, ..<_>::default() });
}

/// Starts to ship.
fn begin(engine: &Engine, log: &Arc<SharedLog>, beginning: Beginning) {
    if let Some(feed) = engine.shared.committer.feed()
        && beginning.shipped
    {
        feed.acknowledge(engine.shared.committer.visible());
    }
    let is_first = engine.shipper.set(Box::new(Shipper::new(log, beginning, engine))).is_ok();
    debug_assert!(is_first, "an opening has one shipper");
}
