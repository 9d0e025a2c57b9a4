//! Takeover: a reader of the log claims it, applies what is left, and is the writer.

use std::path::Path;
use std::sync::Arc;

use super::apply::{Applier, EntryApplied};
use super::restore::DataPlace;
use super::shipper::Beginning;
use super::{begin, open_log, restore};
use crate::db::maintenance::find_room;
use crate::db::open::files_of;
use crate::db::{Database, OpenHow};
use crate::error::Result;
use crate::options::{Failpoint, Options};
use crate::replica::{EntryReads, Expects, Identity, LogEnd, LogWriter, NextEntry, SharedLog};

/// A log that was claimed, and is not written to yet.
pub(super) struct Claimed {
    log: Arc<SharedLog>,
    writer: LogWriter,
    end: LogEnd,
    nonce: [u8; 16],
}

/// What became of the entries before a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RestApplied {
    All,
    /// The reader cannot go on from where it is: it starts from the newest checkpoint.
    Restart,
}

/// Claims a log, whichever opening writes to it. From now on that one appends nothing.
///
/// # Errors
///
/// `Invalid` if there is no shared database; `Unavailable` if the store does not answer.
pub(super) fn claim(url: &str, options: &Options) -> Result<Claimed> {
    let (log, nonce) = open_log(url, options, &files_of(options), 0)?;
    let (writer, end) = LogWriter::claim(&log, None, (nonce, 0), Expects::Any)?;
    Ok(Claimed { log, writer, end, nonce })
}

/// Opens the shared database of a store in an empty directory, to write.
pub(super) fn open_shared(url: &str, to: &Path, options: &Options) -> Result<Database> {
    let options = options.clone().object_store(url).share(false);
    options.check()?;
    // Before another machine is stopped.
    find_room(&files_of(&options), to, &options)?;
    let claimed = claim(url, &options)?;
    let checkpoint = claimed.end.checkpoint;
    let Some(found) = restore::checkpoint(&claimed.log, checkpoint)? else {
        return Err(claimed
            .log
            .damage("shared/log", format!("a checkpoint as entry {checkpoint}")));
    };
    restore::restore(&claimed.log, &found.manifest, (to, DataPlace::Store), &options)?;
    let db = Database::open_with(to, &options, OpenHow::Existing)?;
    let mut applier = Applier::restored(db, (&found, DataPlace::Store), &claimed.log)?;
    apply_all(&claimed, &mut applier)?;
    finish(claimed, applier, to, &options)
}

/// Applies what the log has before the claim. The caller starts from the newest checkpoint where a
/// checkpoint leaps, or where the reader was away for so long that the next entry is deleted.
///
/// # Errors
///
/// As [`Applier::apply`]; those of the store.
pub(super) fn apply_rest(claimed: &Claimed, applier: &mut Applier) -> Result<RestApplied> {
    let Claimed { log, writer, .. } = claimed;
    let mut entries = EntryReads::new(log, applier.next()?, writer.number());
    loop {
        let number = applier.next()?;
        if number >= writer.number() {
            applier.end_at(writer.number() - 1);
            return Ok(RestApplied::All);
        }
        let entry = match entries.next(number)? {
            NextEntry::There(entry) => entry,
            NextEntry::Absent => {
                return Err(log.damage("shared/log", format!("entry {number}")));
            }
            NextEntry::Deleted => return Ok(RestApplied::Restart),
        };
        if applier.apply(&entry, log)? == EntryApplied::Leaps {
            return Ok(RestApplied::Restart);
        }
    }
}

/// Applies what the log has behind its newest checkpoint before the claim. Nothing leaps there, and
/// no collector deletes there.
///
/// # Errors
///
/// As [`apply_rest`]; `Corrupt` if there is a leap.
pub(super) fn apply_all(claimed: &Claimed, applier: &mut Applier) -> Result<()> {
    match apply_rest(claimed, applier)? {
        RestApplied::All => Ok(()),
        RestApplied::Restart => {
            let expected = "the newest checkpoint in the last entry".to_string();
            Err(claimed.log.damage("shared/log", expected))
        }
    }
}

/// Opens a database that has all of the log as the writer.
pub(super) fn finish(
    claimed: Claimed,
    applier: Applier,
    path: &Path,
    options: &Options,
) -> Result<Database> {
    let Claimed { log, mut writer, end, nonce } = claimed;
    debug_assert_eq!(applier.position.entry + 1, writer.number(), "all of it is applied");
    debug_assert!(applier.position.lsn <= end.last, "the claim has the log's last commit");
    applier.into_database()?.close()?;
    let options = Options { lsn_after: end.last, ..options.clone().share(true) };
    let db = Database::open_unshared(path, &options, OpenHow::Existing)?;
    writer.check_claims(!options.has(Failpoint::IgnoreClaims));
    let identity = Identity::new(db.inner.set.store().files(), path);
    identity.store_claimed(nonce)?;
    begin(&db.inner, &log, Beginning { writer, end, shipped: true, own: None });
    db.inner.start_shipper()?;
    Ok(db)
}
