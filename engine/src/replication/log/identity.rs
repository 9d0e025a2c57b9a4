//! By which a directory knows its own claims: a small file in it, synced before a claim is put into
//! the store. A claim of which the answer was lost is known by it too.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::error::{Error, Mismatch, Result};
use crate::base::record::{Reader, checksum, put_u32};
use crate::engine::open::CLAIMS_FILE;
use crate::os::{Directory, Files, NewFile, OpenHow};

const MAGIC: &[u8; 8] = b"TERRNODE";
const LEN: usize = 44;

/// The random numbers of the last claim that is known to be there, and of one that may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nonces {
    pub(crate) claimed: [u8; 16],
    pub(crate) intended: [u8; 16],
}

impl Nonces {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let body = [self.claimed, self.intended].concat();
        let mut out = MAGIC.to_vec();
        put_u32(&mut out, checksum(&[], &body));
        out.extend_from_slice(&body);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Nonces> {
        let mut reader = Reader::new(bytes.strip_prefix(MAGIC)?);
        let sum = reader.u32()?;
        let claimed = reader.take(16)?.try_into().ok()?;
        let intended = reader.take(16)?.try_into().ok()?;
        let is_sound = bytes.len() == LEN && sum == checksum(&[], &bytes[12..]);
        is_sound.then_some(Nonces { claimed, intended })
    }

    /// Whether a claim with this number is the directory's own.
    pub(crate) fn has(&self, nonce: [u8; 16]) -> bool {
        nonce != [0; 16] && (self.claimed == nonce || self.intended == nonce)
    }
}

/// The file.
#[derive(Debug)]
pub(crate) struct Identity {
    files: Arc<dyn Files>,
    directory: PathBuf,
}

impl Identity {
    /// That of a database's directory.
    pub(crate) fn new(files: &Arc<dyn Files>, directory: &Path) -> Identity {
        Identity { files: Arc::clone(files), directory: directory.to_path_buf() }
    }

    fn path(&self) -> PathBuf {
        self.directory.join(CLAIMS_FILE)
    }

    /// What it has; nothing if the directory never claimed.
    pub(crate) fn load(&self) -> Result<Nonces> {
        let path = self.path();
        let file = match self.files.open(&path, OpenHow::Read) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Nonces::default()),
            opened => opened.map_err(|e| Error::io("open", &path, e))?,
        };
        let bytes = file.read_vec(0, LEN).map_err(|e| Error::io("read", &path, e))?;
        Nonces::decode(&bytes).ok_or_else(|| {
            let found = Mismatch::new("two numbers with their checksum", "other bytes");
            Error::corrupt(found.at("claims of this directory", "ssd", path, 0))
        })
    }

    /// Remembers the claim with this number as the directory's own.
    pub(crate) fn store_claimed(&self, nonce: [u8; 16]) -> Result<()> {
        self.store(&Nonces { claimed: nonce, intended: nonce })
    }

    /// Writes it, durably and whole or not at all.
    ///
    /// # Errors
    ///
    /// `Full`, or another I/O error.
    pub(crate) fn store(&self, nonces: &Nonces) -> Result<()> {
        let path = self.path();
        let write = || {
            let new = NewFile::create(&*self.files, &path)?;
            new.file().try_write_all_at(&nonces.encode(), 0)?;
            new.file().sync()?;
            new.rename(&path)?;
            Directory::at(&self.directory).sync(&*self.files)
        };
        write().map_err(|e| Error::io("write", &path, e))
    }
}
