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
use crate::pm::Superblock;
use log::{Identity, LogEnd, LogWriter, SharedLog};

pub use api::{Follower, Standby};
use checkpoint::SentCheckpoint;
pub use digest::{Digest, TableDigest};
use shipper::{Beginning, GoesOn, Shipper};
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
    let goes_on = if is_sound { GoesOn::find(engine, end.last)? } else { None };
    let is_own =
        own.as_ref().is_some_and(|found| found.manifest.database_id == engine.set.database_id());
    let newest = own.map(SentCheckpoint::from);
    begin(engine, &log, Beginning { writer, end, goes_on, newest, is_own })
}

/// Tells who listens of another role, and of the last commit.
fn tell_role(engine: &Engine, role: &'static str, lsn: Lsn) {
    engine.options.events.send(|| RoleChangeInfo { role, lsn, ..<_>::default() });
}

/// Starts to ship. The superblock says first that the store has no commit that the directory lacks:
/// with the first commit that is sent the log gets beyond what was compared. It also says first if
/// zones go that have commits which the store lacks, since a checkpoint takes their place.
fn begin(engine: &Engine, log: &Arc<SharedLog>, beginning: Beginning) -> Result<()> {
    let goes_on = beginning.goes_on.as_ref();
    let mut superblock = engine.ctx.superblock.lock();
    let kept = superblock.kept.filter(|_| goes_on.is_some());
    if superblock.shared_cut.is_some() || superblock.kept != kept {
        let next = Superblock { shared_cut: None, kept, ..superblock.clone() };
        engine.ctx.write(&mut superblock, next)?;
    }
    drop(superblock);
    if let Some(feed) = engine.shared.committer.feed() {
        let last = goes_on.map(|it| it.next - 1);
        last.into_iter().for_each(|last| feed.acknowledge(last));
        let visible = engine.shared.committer.visible();
        feed.begin(last.unwrap_or(visible), goes_on.map_or(0, |it| it.bytes));
    }
    let is_first = engine.shipper.set(Box::new(Shipper::new(log, beginning, engine))).is_ok();
    debug_assert!(is_first, "an opening has one shipper");
    Ok(())
}
