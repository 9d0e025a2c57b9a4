//! Takeover: a reader of the log applies all of it, claims it, and is the writer.
//!
//! Until the claim the writer before goes on, also where a step here fails.

use std::path::Path;
use std::sync::Arc;

use super::apply::{Applier, EntryApplied};
use super::checkpoint::{DataPlace, FoundCheckpoint, SentCheckpoint};
use super::log::{
    CLAIM_TRIES, EntryReads, FollowerPlace, Identity, LogEnd, LogWriter, NextEntry, SharedLog,
};
use super::registration::Registration;
use super::shipper::{Beginning, GoesOn};
use super::{OpenedLog, begin, checkpoint, open_log, tell_role};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::options::{Failpoint, Making, Options};
use crate::engine::open::{files_of, look_for, remove_marker, remove_unfinished};
use crate::engine::{Database, OpenHow};

/// How often a takeover starts from a newer checkpoint.
const TRIES: u32 = 8;

/// A writer keeps the data of so many checkpoints without a registration.
const ALWAYS_KEPT: u32 = 2;

/// A sign of life counts until so many checkpoints later. A collector takes a reader for dead after
/// twice as many.
const SIGN_COUNTS: u32 = 8;

/// A log that was claimed, and is not written to yet.
pub(super) struct Claimed {
    log: Arc<SharedLog>,
    writer: LogWriter,
    end: LogEnd,
    nonce: [u8; 16],
}

/// What became of the entries up to the end of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RestApplied {
    All,
    /// The reader cannot go on from where it is: it starts from the newest checkpoint.
    Restart,
}

/// Opens the shared database of a store in an empty directory, to write. What fails leaves no
/// registration in the store, and the directory as it was.
pub(super) fn open_shared(url: &str, to: &Path, options: &Options) -> Result<Database> {
    let mut options = options.clone().object_store(url).share(false);
    options.making = Some(Making::Takeover);
    options.check()?;
    let files = &files_of(&options);
    look_for(files, to, &options, (OpenHow::Create, options.making))?;
    let claiming = open_log(url, &options, files, 0)?;
    let registration = Registration::of_takeover(&claiming.log, claiming.nonce, options.stepped);
    let opened = registration.beating(|| {
        let mut tries = 0;
        loop {
            tries += 1;
            let opened = open_once((&claiming, &registration), to, &options, tries == TRIES);
            match opened.inspect_err(|_| remove_unfinished(to, &options).unwrap_or(())) {
                Ok(Some(opened)) => return Ok(opened),
                Ok(None) => {
                    remove_unfinished(to, &options)?;
                    if tries == TRIES {
                        return Err(claiming.log.overtaken());
                    }
                }
                // It stood still for so long that the writer has deleted what it reads.
                Err(error)
                    if tries < TRIES && registration.is_deleted(&error, registration.base())? => {}
                Err(error) => return Err(error),
            }
        }
    });
    if opened.is_err() {
        registration.end();
    }
    opened
}

/// As [`open_shared`], from the newest checkpoint; `None` if it has to start from a newer one.
fn open_once(
    (claiming, registration): (&OpenedLog, &Registration),
    to: &Path,
    options: &Options,
    is_last: bool,
) -> Result<Option<Database>> {
    let log = &claiming.log;
    let found = registration.start(|base, next| FollowerPlace {
        entry: next.saturating_sub(1),
        base,
        beat: 0,
    })?;
    let found = found.ok_or_else(|| log.empty(ErrorKind::Invalid))?;
    let made = checkpoint::restore(log, &found.manifest, (to, DataPlace::Store), options)?;
    let db = Database::open_made(to, options, made)?;
    let mut applier = Applier::restored(db, (&found, DataPlace::Store), log)?;
    let Some(claimed) = claim(claiming, &mut applier, registration, is_last)? else {
        applier.db.inner.close()?;
        return Ok(None);
    };
    let since = applier.checkpoints_since;
    // The writer before leaves the data of its last two checkpoints, whenever it collects. It
    // leaves that of an earlier one as long as this registration is there.
    let ends = since < ALWAYS_KEPT;
    let finish = || finish(claimed, applier, to, options);
    let db = if ends { registration.ending(finish) } else { finish() }?;
    Ok(Some(db))
}

/// Brings a reader to the end of the log, and claims the log right there. It has applied all of the
/// log by then and has prepared what is prepared, so nothing that the log has can fail a takeover
/// after the claim. An entry that comes between the last look and the claim takes the number of the
/// claim: the reader applies that, prepares what it brings, and claims the next number. What is
/// prepared already stays so. From the claim on no other opening appends anything. `None` if the
/// reader has to start from the newest checkpoint: one leaps, the next entry is damaged and there
/// is a newer one, or the reader stood still for so long that the next entry is deleted, or data
/// that it reads in the store. In the last try damage is told.
///
/// # Errors
///
/// As [`Applier::apply`], and [`Applier::prepare_all`]: the log is not claimed. `Unavailable` if
/// the store does not answer, or if others are always faster: the log may be claimed if the request
/// is lost.
pub(super) fn claim(
    claiming: &OpenedLog,
    applier: &mut Applier,
    registration: &Registration,
    is_last: bool,
) -> Result<Option<Claimed>> {
    match claim_from(claiming, applier, registration) {
        Err(error)
            if !is_last
                && error.kind() == ErrorKind::Corrupt
                && error.is_of_store()
                && is_mended(&claiming.log, applier.base, applier.expected(), &error)? =>
        {
            Ok(None)
        }
        claimed => claimed,
    }
}

/// Whether a reader that has failed would fail again: the store has lost the entry, or what the
/// reader reads there; or the reader's database refuses what it is to commit.
pub(super) fn is_lasting(error: &Error) -> bool {
    error.kind() == ErrorKind::Corrupt && error.is_of_store() || error.kind().is_refusal()
}

/// Whether a start from the newest checkpoint goes round what a reader has failed with at entry
/// `number`: an entry that it does not read, data of which it has newer one, or a commit that the
/// reader's database refuses. Of the last a start makes several.
pub(super) fn is_mended(log: &SharedLog, base: u64, number: u64, error: &Error) -> Result<bool> {
    let Some(newest) = log.header(log.end()?.checkpoint)? else { return Ok(false) };
    let Some(damage) = error.damage() else { return Ok(newest.number > number) };
    let entries = format!("{}/shared/log", log.address());
    let is_data = !damage.file.to_string_lossy().starts_with(&entries);
    Ok(if is_data {
        newest.number > base && newest.number >= number
    } else {
        newest.first > number && newest.number > number
    })
}

/// As [`claim`], from where the reader is.
fn claim_from(
    claiming: &OpenedLog,
    applier: &mut Applier,
    registration: &Registration,
) -> Result<Option<Claimed>> {
    let OpenedLog { log, nonce } = claiming;
    let mut end = log.end()?;
    if end.checkpoint == 0 {
        return Err(log.empty(ErrorKind::Invalid));
    }
    let number = applier.next()?;
    if number > end.next {
        return Err(log.other(&format!("it ends with entry {}", end.next - 1)));
    }
    if apply_rest(log, end, applier, Some(registration))? == RestApplied::Restart {
        return Ok(None);
    }
    // In a bucket that was put back to an older state the claims before are the same.
    let position = applier.position;
    if end.last != position.lsn || ![position.claim, end.next - 1].contains(&end.claim) {
        return Err(log.other(&format!("its entry {} is another one", end.next - 1)));
    }
    let mut confirmed = None;
    for _ in 0..CLAIM_TRIES {
        // Up to the first number without an entry, and then the claim: a busy writer is soon there
        // again. If the log has left that number behind, the claim shows it.
        loop {
            match log.next_entry(end.next, false)? {
                NextEntry::There(entry) => {
                    if applier.apply(&entry, log)? == EntryApplied::Leaps {
                        return Ok(None);
                    }
                    end = LogEnd::behind(&entry);
                    registration.tell_news(applier.place(entry.number))?;
                }
                NextEntry::Absent => break,
                NextEntry::Deleted => return Ok(None),
            }
        }
        debug_assert_eq!(applier.expected(), end.next, "the reader has all of the log");
        applier.prepare_all()?;
        // What was kept when the reader began may be gone by now, if it stood still.
        let since = applier.checkpoints_since;
        let is_kept = confirmed.map_or(since < ALWAYS_KEPT, |at| since < at + SIGN_COUNTS);
        if applier.base > 0 && !is_kept {
            if registration.confirm(applier.place(end.next - 1))? > applier.base {
                return Ok(None);
            }
            confirmed = Some(since);
            continue;
        }
        if let Some(writer) = LogWriter::claim_at(log, (*nonce, 0), end)? {
            applier.end_at(end.next - 1);
            return Ok(Some(Claimed { log: Arc::clone(log), writer, end, nonce: *nonce }));
        }
    }
    Err(log.overtaken())
}

/// Applies what the log has up to an end of it.
fn apply_rest(
    log: &SharedLog,
    end: LogEnd,
    applier: &mut Applier,
    registration: Option<&Registration>,
) -> Result<RestApplied> {
    let store = Arc::clone(applier.db.inner.set.store());
    let within = store.memory().job_sends();
    let mut entries = EntryReads::new(log, (applier.next()?, end.next), within);
    loop {
        let number = applier.next()?;
        if number >= end.next {
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
        registration.map_or(Ok(0), |it| it.tell_news(applier.place(number)))?;
    }
}

/// Brings a reader from a checkpoint's data to its entry: up to there an earlier database of it may
/// have shown more.
///
/// # Errors
///
/// `Unavailable` if the log has left an entry before it behind; those of [`Applier::apply`].
pub(super) fn apply_to(
    log: &SharedLog,
    found: &FoundCheckpoint,
    applier: &mut Applier,
) -> Result<()> {
    let end = LogEnd { next: found.manifest.number + 1, ..LogEnd::default() };
    if apply_rest(log, end, applier, None)? == RestApplied::Restart {
        return Err(Error::new(
            ErrorKind::Unavailable,
            format!(
                "the entries between the data of checkpoint {} and its own are gone: the copy of \
                 the data took too long; try again",
                found.manifest.number
            ),
        ));
    }
    // What replaces an earlier database is durable before that goes.
    applier.db.inner.shared.committer.sync()
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
    applier.into_database()?.inner.close()?;
    let options =
        Options { lsn_after: Some(end.last), follows: None, ..options.clone().share(true) };
    let db = Database::open_unshared(path, &options, OpenHow::Existing)?;
    writer.check_claims(!options.has(Failpoint::IgnoreClaims));
    let identity = Identity::new(db.inner.set.store().files(), path);
    let own = (nonce, writer.number());
    identity.store_claimed(own, db.inner.shared.committer.visible())?;
    if options.making.is_some() {
        // It has all that the log has, and is known as the log's writer.
        remove_marker(&**db.inner.set.store().files(), path)?;
    }
    // Behind the claim no answer of the store may fail it: what is not known is sent again.
    let newest = checkpoint::read(&log, end.checkpoint).unwrap_or(None).map(SentCheckpoint::from);
    let goes_on = Some(GoesOn::behind_all(&db.inner));
    begin(&db.inner, &log, Beginning { writer, end, goes_on, newest, is_own: false })?;
    tell_role(&db.inner, "promoted", end.last);
    db.inner.start_shipper()?;
    Ok(db)
}
