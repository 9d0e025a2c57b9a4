//! Takeover: a reader of the log claims it, applies what is left, and is the writer.

use std::path::Path;
use std::sync::Arc;

use super::apply::{Applier, EntryApplied};
use super::shipper::Beginning;
use super::{begin, open_log, restore};
use crate::db::maintenance::find_room;
use crate::db::open::files_of;
use crate::db::{Database, OpenHow};
use crate::error::Result;
use crate::options::{Failpoint, Options};
use crate::replica::{Expects, Identity, LogEnd, LogWriter, SharedLog};

/// A log that was claimed, and is not written to yet.
pub(super) struct Claimed {
    log: Arc<SharedLog>,
    writer: LogWriter,
    end: LogEnd,
    nonce: [u8; 16],
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
    restore::restore(&claimed.log, &found.manifest, to, &options)?;
    let db = Database::open_with(to, &options, OpenHow::Existing)?;
    let mut applier = Applier::restored(db, &found, &claimed.log)?;
    if apply_rest(&claimed, &mut applier)? == EntryApplied::Leaps {
        let expected = "the newest checkpoint in the last entry".to_string();
        return Err(claimed.log.damage("shared/log", expected));
    }
    finish(claimed, applier, to, &options)
}

/// Applies what the log has before the claim. A leap is left to the caller: it starts from the
/// newest checkpoint, behind which there is none.
pub(super) fn apply_rest(claimed: &Claimed, applier: &mut Applier) -> Result<EntryApplied> {
    let Claimed { log, writer, .. } = claimed;
    loop {
        let number = applier.next()?;
        if number >= writer.number() {
            return Ok(EntryApplied::Done);
        }
        let entry = log.entry(number)?;
        let entry = entry.ok_or_else(|| log.damage("shared/log", format!("entry {number}")))?;
        if applier.apply(&entry, log)? == EntryApplied::Leaps {
            return Ok(EntryApplied::Leaps);
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
    let identity = Identity::new(&files_of(&options), path);
    identity.store_claimed(nonce)?;
    begin(&db.inner, &log, Beginning { writer, end, shipped: true, own: None });
    db.inner.start_shipper()?;
    Ok(db)
}
