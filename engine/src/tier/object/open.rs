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
use crate::error::{Error, Result};
use crate::os::{Files, draw_random};

/// The file of the ends of objects, in the database's directory.
const TAILS: &str = "object-tails";

/// The most bytes of that file.
const TAILS_BYTES: u64 = 256 << 20;

/// What an opening says of its objects.
#[derive(Debug)]
pub(crate) struct Settings<'a> {
    /// Where the store is.
    pub(crate) url: &'a str,
    /// The machine's files.
    pub(crate) files: &'a Arc<dyn Files>,
    /// Whether these are a simulation.
    pub(crate) simulated: bool,
    /// The database's directory.
    pub(crate) directory: &'a Path,
    pub(crate) database_id: [u8; 16],
    pub(crate) incarnation: u64,
    pub(crate) read_only: bool,
    /// What the journal names.
    pub(crate) named: BTreeSet<ObjectId>,
    pub(crate) planted: Planted,
}

/// The way to a store, with what else depends on the kind of it.
struct StoreWay {
    store: Arc<dyn ObjectStore>,
    timer: Arc<dyn Timer>,
    nonce: [u8; 16],
}

impl Settings<'_> {
    /// The objects of the database. Asks the store for nothing; a directory is made where it is
    /// missing.
    ///
    /// # Errors
    ///
    /// `Invalid` if the environment is not understood; or an I/O error.
    pub(crate) fn open(self) -> Result<ObjectTier> {
        let StoreWay { store, timer, nonce } = self.way()?;
        let client = Arc::new(Client::new(store, timer, Patience::default()));
        let names = ObjectNames::of(self.database_id);
        let claim = WriterClaim { incarnation: self.incarnation, nonce, owner: owner() };
        let tier = ObjectTier::open(client, names, claim, self.named);
        let tier = tier.with_planted(self.planted);
        if self.read_only {
            return Ok(tier.read_only());
        }
        let tails = self.directory.join(TAILS);
        let tails = TailCache::open(&**self.files, &tails, TAILS_BYTES)
            .map_err(|e| Error::io("open", &tails, e))?;
        let known = KnownFence::new(Arc::clone(self.files), self.directory);
        Ok(tier.with_tails(tails).with_known_fence(known))
    }

    fn way(&self) -> Result<StoreWay> {
        let (scheme, rest) = self.url.split_once("://").unwrap_or_default();
        let machine = || Arc::new(MachineTimer::default()) as Arc<dyn Timer>;
        match scheme {
            "file" => {
                let path = PathBuf::from(rest);
                if self.simulated {
                    let store = DirectoryStore::open_in(Arc::clone(self.files), &path, false)?;
                    let mut nonce = [0; 16];
                    nonce[..8].copy_from_slice(&self.incarnation.to_le_bytes());
                    return Ok(StoreWay { store: Arc::new(store), timer: machine(), nonce });
                }
                let store = Arc::new(DirectoryStore::open(&path)?);
                Ok(StoreWay { store, timer: machine(), nonce: draw()? })
            }
            #[cfg(any(test, feature = "testing"))]
            "memory" => {
                let client = super::testing::client_of(self.url)?;
                let mut nonce = [0; 16];
                nonce[..8].copy_from_slice(&client.number().to_le_bytes());
                let timer = Arc::new(super::clock::StepTimer::default());
                Ok(StoreWay { store: Arc::new(client), timer, nonce })
            }
            _ => Ok(StoreWay { store: remote(self.url)?, timer: machine(), nonce: draw()? }),
        }
    }
}

#[cfg(feature = "object")]
fn remote(url: &str) -> Result<Arc<dyn ObjectStore>> {
    Ok(Arc::new(super::remote::RemoteStore::open(url)?))
}

#[cfg(not(feature = "object"))]
fn remote(url: &str) -> Result<Arc<dyn ObjectStore>> {
    Err(Error::invalid(format!(
        "this build has no way to the object store {url}: build it with the cargo feature \
         `object`, or use a directory, file:///…"
    )))
}

fn draw() -> Result<[u8; 16]> {
    let mut drawn = [0; 16];
    draw_random(&mut drawn)
        .map_err(|e| Error::io("draw random bytes from", Path::new("the system"), e))?;
    Ok(drawn)
}

/// Who this is, for the messages of others.
fn owner() -> String {
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(Path::file_name).unwrap_or_default();
    let host = rustix::system::uname();
    format!(
        "process {} ({}) on {}",
        std::process::id(),
        program.to_string_lossy(),
        host.nodename().to_string_lossy()
    )
}
