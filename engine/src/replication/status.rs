//! How far the shared database of a store is, as every machine sees it.

use super::log::{EntryBody, FollowerPlace};
use super::open_log;
use crate::engine::open::files_of;
use crate::error::{Error, Result};
use crate::options::Options;

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
    /// Followers and standbys that are registered by [`Options::follower_name`].
    pub followers: Vec<RegisteredFollower>,
}

/// A follower or standby that is registered at a shared store.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RegisteredFollower {
    /// Its name.
    pub name: String,
    /// The last entry of the log that it is known to have.
    pub entry: u64,
    /// The oldest checkpoint of which it reads data in the store, where it does
    /// ([`Options::object_cache`]).
    pub base: Option<u64>,
}

/// Forgets a registered follower.
pub(super) fn forget(url: &str, name: &str, options: &Options) -> Result<()> {
    let options = options.clone().object_store(url).share(false);
    options.check()?;
    let (log, _) = open_log(url, &options, &files_of(&options), 0)?;
    log.unregister(name)
}

/// That of a URL.
pub(super) fn of(url: &str, options: &Options) -> Result<SharedStatus> {
    let options = options.clone().object_store(url).share(false);
    options.check()?;
    let (log, _) = open_log(url, &options, &files_of(&options), 0)?;
    let (end, head) = (log.end()?, log.head()?.0);
    if end.claim == 0 {
        let message = format!("the store {} has no shared database", log.address());
        return Err(Error::invalid(message));
    }
    let writer = match log.entry(end.claim)?.map(|entry| entry.body) {
        Some(EntryBody::Claim(claim)) => claim.to_string(),
        _ => "an opening of which the claim is lost".to_string(),
    };
    let followers = log.registered(&log.read_register()?.0)?.into_iter();
    let followers = followers.map(|(name, FollowerPlace { entry, base, .. })| RegisteredFollower {
        name,
        entry,
        base: (base > 0).then_some(base),
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
