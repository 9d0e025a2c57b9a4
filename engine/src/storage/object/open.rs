//! Which object store an opening has, and how it comes to it: by a URL.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::client::{Client, Patience};
use super::clock::{MachineTimer, Timer};
use super::directory::DirectoryStore;
use super::fence::WriterClaim;
use super::known::KnownFence;
use super::name::{ObjectId, ObjectNames};
use super::store::ObjectStore;
use super::tails::TailCache;
use super::tier::{ObjectTier, Planted};
use crate::base::error::{Error, Result};
use crate::base::events::Events;
use crate::os::{Files, Gate, draw_random, host_name};

/// The file of the ends of objects, in the database's directory.
const TAILS: &str = "object-tails";

/// The files in the database's directory that are of its objects.
pub(crate) const OBJECT_FILES: [&str; 2] = [TAILS, super::known::NAME];

/// The most bytes of that file.
const TAILS_BYTES: u64 = 256 << 20;

/// What an opening says of its objects.
#[derive(Debug)]
pub(crate) struct Settings<'a> {
    /// Where the store is.
    pub(crate) url: &'a str,
    /// The machine's files.
    pub(crate) files: &'a Arc<dyn Files>,
    /// The gate of the database.
    pub(crate) gate: &'a Arc<Gate>,
    /// Whether these are a simulation.
    pub(crate) simulated: bool,
    /// The database's directory.
    pub(crate) directory: &'a Path,
    pub(crate) database_id: [u8; 16],
    pub(crate) incarnation: u64,
    pub(crate) read_only: bool,
    /// Who is told of requests that are made again.
    pub(crate) events: &'a Events,
    /// What the journal names.
    pub(crate) named: BTreeSet<ObjectId>,
    pub(crate) planted: Planted,
    /// Whether it is a follower's that reads pieces of the shared store.
    pub(crate) follows: bool,
    /// How far away a test or a benchmark has the store be.
    #[cfg(any(test, feature = "testing", feature = "bench"))]
    pub(crate) distance: Option<super::slow::Distance>,
}

/// The way to a store, with what else depends on the kind of it.
struct StoreWay {
    store: Arc<dyn ObjectStore>,
    timer: Arc<dyn Timer>,
    nonce: [u8; 16],
}

/// The way to the store of a URL for a node that shares it, and a number that no other way has.
/// Asks the store for nothing.
///
/// # Errors
///
/// As [`Settings::open`].
pub(crate) fn open_client(
    (url, simulated): (&str, bool),
    files: &Arc<dyn Files>,
    (number, events): (u64, &Events),
    #[cfg(any(test, feature = "testing", feature = "bench"))] distance: Option<
        super::slow::Distance,
    >,
) -> Result<(Arc<Client>, [u8; 16])> {
    let StoreWay { store, timer, nonce } = way(url, simulated, files, number)?;
    #[cfg(any(test, feature = "testing", feature = "bench"))]
    let store = far_away(store, distance)?;
    let client = Client::new(store, timer, Patience::default()).telling(events);
    Ok((Arc::new(client), nonce))
}

/// Objects that are only read, under names that no opening of a database gives.
pub(crate) fn open_reader(client: Arc<Client>, names: ObjectNames) -> ObjectTier {
    let claim = WriterClaim { incarnation: 0, nonce: [0; 16], owner: String::new() };
    ObjectTier::open(client, names, claim, BTreeSet::new()).read_only()
}

impl Settings<'_> {
    /// The objects of the database. Asks the store for nothing; a directory is made where it is
    /// missing.
    ///
    /// # Errors
    ///
    /// `Invalid` if the environment is not understood; or an I/O error.
    pub(crate) fn open(self) -> Result<ObjectTier> {
        let way = way(self.url, self.simulated, self.files, self.incarnation)?;
        let StoreWay { store, timer, nonce } = way;
        #[cfg(any(test, feature = "testing", feature = "bench"))]
        let store = far_away(store, self.distance)?;
        let client = Client::new(store, timer, Patience::default()).telling(self.events);
        let client = Arc::new(client);
        let names = ObjectNames::of(self.database_id);
        // What a simulated machine writes is the same in every run.
        let owner = if self.simulated { "process 1, simulated".to_string() } else { owner() };
        let claim = WriterClaim { incarnation: self.incarnation, nonce, owner };
        let tier = ObjectTier::open(client, names, claim, self.named);
        let tier = tier.with_planted(self.planted);
        let tier = if self.follows { tier.follows() } else { tier };
        if self.read_only {
            return Ok(tier.read_only());
        }
        let tails = self.directory.join(TAILS);
        let tails = TailCache::open(&**self.files, self.gate, &tails, TAILS_BYTES)
            .map_err(|e| Error::io("open", &tails, e))?;
        let known = KnownFence::new(Arc::clone(self.files), Arc::clone(self.gate), self.directory);
        Ok(tier.with_tails(tails).with_known_fence(known))
    }
}

#[cfg(any(test, feature = "testing", feature = "bench"))]
fn far_away(
    store: Arc<dyn ObjectStore>,
    distance: Option<super::slow::Distance>,
) -> Result<Arc<dyn ObjectStore>> {
    Ok(match distance {
        Some(distance) => Arc::new(super::slow::SlowStore::new(store, distance)?),
        None => store,
    })
}

/// The way to the store of a URL. On a simulated machine `number` stands for what is drawn.
fn way(url: &str, simulated: bool, files: &Arc<dyn Files>, number: u64) -> Result<StoreWay> {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let machine = || Arc::new(MachineTimer::default()) as Arc<dyn Timer>;
    match scheme {
        "file" => {
            let path = directory_of(rest);
            let store = match files.real() {
                Some(_) => DirectoryStore::open(&path)?,
                None => DirectoryStore::open_in(Arc::clone(files), &path)?,
            };
            let mut nonce = [0; 16];
            match simulated {
                true => nonce[..8].copy_from_slice(&number.to_le_bytes()),
                false => nonce = draw()?,
            }
            Ok(StoreWay { store: Arc::new(store), timer: machine(), nonce })
        }
        #[cfg(any(test, feature = "testing"))]
        "memory" => {
            let client = super::testing::client_of(url)?;
            let mut nonce = [0; 16];
            nonce[..8].copy_from_slice(&client.number().to_le_bytes());
            // The time of a scheduler costs nothing either.
            let timer = match crate::os::schedule::is_task() {
                true => machine(),
                false => Arc::new(super::clock::StepTimer::default()),
            };
            Ok(StoreWay { store: Arc::new(client), timer, nonce })
        }
        _ => Ok(StoreWay { store: remote(url)?, timer: machine(), nonce: draw()? }),
    }
}

/// The directory of a URL. On Windows a drive comes behind a slash, as in `file:///C:/objects`.
fn directory_of(rest: &str) -> PathBuf {
    match rest.strip_prefix('/') {
        Some(drive) if cfg!(windows) && drive.as_bytes().get(1) == Some(&b':') => drive.into(),
        _ => rest.into(),
    }
}

#[cfg(feature = "object")]
fn remote(url: &str) -> Result<Arc<dyn ObjectStore>> {
    Ok(Arc::new(super::remote::RemoteStore::open(url)?))
}

#[cfg(not(feature = "object"))]
fn remote(url: &str) -> Result<Arc<dyn ObjectStore>> {
    Err(Error::invalid(format!(
        "this build has no way to the object store {url}, because it lacks the cargo feature \
         `object`: use one that has it (`cargo build --release -p terrace-cli --features object`, \
         the Python package, the installed C library), or a directory, file:///…"
    )))
}

fn draw() -> Result<[u8; 16]> {
    let mut drawn = [0; 16];
    draw_random(&mut drawn)
        .map_err(|e| Error::io("draw random bytes from", Path::new("the system"), e))?;
    Ok(drawn)
}

/// Who this is, for the messages of others.
pub(crate) fn owner() -> String {
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(Path::file_name).unwrap_or_default();
    format!("process {} ({}) on {}", std::process::id(), program.to_string_lossy(), host_name())
}
