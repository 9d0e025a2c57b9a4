//! How far the shared database of a store is, as every machine sees it, and how far shipping and
//! nodes are.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use super::log::{FollowerPlace, RegisteredReader, SharedLog};
use super::open_log;
use crate::base::error::{Error, Result};
use crate::base::options::Options;
use crate::engine::Engine;
use crate::engine::ShareStats;
use crate::engine::open::files_of;
use crate::os::sync::atomic::{AtomicU64, Ordering};
use crate::os::sync::locks::Mutex;
use crate::os::time;

/// How far a follower or a standby is.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct NodeStatus {
    /// Where the store is.
    pub store: String,
    /// The directory of its database, also of one that was closed or promoted.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::base::error::path_as_text"))]
    pub directory: PathBuf,
    /// Its last commit, by the numbers of the writer. It only grows.
    pub commit: u64,
    /// The last entry of the log that it has applied.
    pub entry: u64,
    /// Milliseconds since it last knew that there is no more; at most the interval of the writer
    /// and its own in addition is what it lags. `u64::MAX` until it has come to the end once.
    pub lag_ms: u64,
    /// How often it has started from a checkpoint.
    pub restarts: u64,
    /// How often it was away for too long: the writer had deleted what it had not yet applied, or
    /// what it reads, and it started from the newest checkpoint. [`Options::share_retention`] and
    /// [`Options::follower_name`] keep more.
    pub missed: u64,
    /// Reads of the store.
    pub gets: u64,
    /// Why it does not go on, if so: it tries again.
    pub note: Option<String>,
}

/// The shared database of a store.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SharedStatus {
    /// Where the store is.
    pub store: String,
    /// The last commit that it has.
    pub commit: u64,
    /// The last entry of its log.
    pub entry: u64,
    /// The entry with the newest checkpoint; 0 if there is none yet.
    pub checkpoint: u64,
    /// Entries are kept from here on.
    pub oldest: u64,
    /// Which process writes, or did last.
    pub writer: String,
    /// Followers and standbys that are registered: by [`Options::follower_name`], and those that
    /// start.
    pub followers: Vec<RegisteredFollower>,
}

/// A follower or standby that is registered at a shared store.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RegisteredFollower {
    /// Its name, or while it starts one that the engine gives: `starting-…`, of a takeover
    /// `takeover-…`.
    pub name: String,
    /// Whether it starts, or died while it did: it has not come to the end of the log. As long as
    /// it gives signs, all is kept for it. Once sixteen checkpoints came without one, it is bounded
    /// as others are; a name of the engine's is forgotten.
    pub starts: bool,
    /// The last entry of the log that it is known to have.
    pub entry: u64,
    /// The oldest checkpoint of which it reads data in the store, where it does
    /// ([`Options::object_cache`]).
    pub base: Option<u64>,
}

/// Forgets a registered follower.
pub(super) fn forget_follower(url: &str, name: &str, options: &Options) -> Result<()> {
    log_of(url, options)?.unregister(name)
}

fn log_of(url: &str, options: &Options) -> Result<Arc<SharedLog>> {
    let options = options.clone().object_store(url).share(false);
    options.check()?;
    Ok(open_log(url, &options, &files_of(&options), 0)?.log)
}

/// That of a URL.
pub(super) fn shared_status(url: &str, options: &Options) -> Result<SharedStatus> {
    let log = log_of(url, options)?;
    let (end, head) = (log.end()?, log.head()?.0);
    if end.claim == 0 {
        let message = format!("the store {} has no shared database", log.address());
        return Err(Error::invalid(message));
    }
    let lost = || "an opening of which the claim is lost".to_string();
    let writer = log.claim(end.claim)?.map_or_else(lost, |claim| claim.to_string());
    let registered = log.registered(&log.read_register()?.0)?.into_iter();
    let followers = registered.filter_map(|RegisteredReader { name, place }| {
        let FollowerPlace { entry, base, beat } = place?;
        let base = (base > 0).then_some(base);
        Some(RegisteredFollower { name, starts: beat > 0, entry, base })
    });
    let followers = followers.collect();
    Ok(SharedStatus {
        followers,
        store: log.address(),
        commit: end.last,
        entry: end.next - 1,
        checkpoint: end.checkpoint,
        oldest: head.oldest,
        writer,
    })
}

/// What was shipped since the opening.
#[derive(Debug, Default)]
pub(super) struct ShipCounts {
    pub(super) segments: AtomicU64,
    pub(super) segment_bytes: AtomicU64,
    pub(super) checkpoints: AtomicU64,
    pub(super) checkpoint_bytes: AtomicU64,
    /// When the oldest commit that waits was handed over; `None` if none was seen to wait.
    pub(super) waiting_since: Mutex<Option<Instant>>,
    /// When the last step began: no later one has looked at the feed.
    pub(super) looked_at: Mutex<Option<Instant>>,
    pub(super) failure: Mutex<Option<String>>,
    /// Why nothing is deleted, if so. Shipping goes on.
    pub(super) collect_failure: Mutex<Option<String>>,
}

impl ShipCounts {
    /// How far it is, where the database is shared.
    pub(super) fn stats(&self, log: &SharedLog, claim: u64, engine: &Engine) -> Option<ShareStats> {
        let feed = engine.shared.committer.feed()?;
        let asked = log.client.counts();
        let shipped = feed.acknowledged();
        // What came since the shipper's last look is no older than that.
        let since = self.waiting_since.lock().or_else(|| {
            self.looked_at.lock().filter(|_| shipped < engine.shared.committer.visible())
        });
        let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Some(ShareStats {
            store: log.address(),
            claim,
            shipped,
            lag_commits: engine.shared.committer.visible().saturating_sub(shipped),
            lag_bytes: feed.queued(),
            lag_ms: since.map_or(0, |since| time::since(since).as_millis() as u64),
            segments: number(&self.segments),
            segment_bytes: number(&self.segment_bytes),
            checkpoints: number(&self.checkpoints),
            checkpoint_bytes: number(&self.checkpoint_bytes),
            gets: asked.gets + asked.heads,
            puts: asked.puts,
            others: asked.deletes + asked.lists,
            note: self.failure.lock().clone(),
            collect_note: self.collect_failure.lock().clone(),
        })
    }
}
