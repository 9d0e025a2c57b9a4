//! The mapped modes: `dax`, where stores reach persistent memory by flush and fence alone, and
//! `emulated`, the same instructions on a tmpfs file, for benchmarks and tests. What `emulated`
//! holds survives the process, not the machine.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

#[cfg(any(target_arch = "x86_64", test, feature = "testing"))]
use super::LINE;
use super::flush::{Flush, store_fence};
use super::mapping::Mapping;
use super::span::Span;
use crate::base::error::{Error, ErrorKind, Result};
use crate::os::time;
use crate::os::{Files, OpenHow, device_at, pages, read_exact_at, reserve_mapped};

#[cfg(test)]
mod tests;

/// The unit in which the media of persistent memory is written.
const BLOCK: u64 = 256;

/// From this size on, stores go past the cache: a fence completes them, and nothing is flushed.
#[cfg(any(target_arch = "x86_64", test, feature = "testing"))]
const STREAM_FROM: usize = 256;

/// A file that is mapped as the region.
#[derive(Debug)]
pub(crate) struct Mapped {
    file: File,
    dax: bool,
    flush: Flush,
    /// How long the media takes for a block, beyond what memory takes.
    delay: Duration,
}

impl Mapped {
    /// Opens the file of a region in `dax` mode.
    pub(crate) fn dax(files: &dyn Files, path: &Path) -> Result<Mapped> {
        let file = open(files, path)?;
        let is_flushed = flushed_at_power_failure(&file, Path::new("/sys"));
        let flush = flush_of_dax(path, Flush::asked_for(), is_flushed)?;
        Ok(Mapped { file, dax: true, flush, delay: Duration::ZERO })
    }

    /// Opens the file of a region in `emulated` mode.
    pub(crate) fn emulated(files: &dyn Files, path: &Path, delay: Duration) -> Result<Mapped> {
        Ok(Mapped { file: open(files, path)?, dax: false, flush: Flush::detect(), delay })
    }

    /// The mode's name.
    pub(super) fn name(&self) -> &'static str {
        if self.dax { "dax" } else { "emulated" }
    }

    /// The file's length.
    pub(crate) fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Gives a new file its length and its space, all zeros.
    pub(crate) fn reserve(&self, path: &Path, len: u64) -> Result<()> {
        reserve_mapped(&self.file, len).map_err(|e| Error::io("make the region", path, e))
    }

    /// The first `len` bytes.
    pub(super) fn read(&self, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        read_exact_at(&self.file, &mut bytes, 0)?;
        Ok(bytes)
    }

    /// Maps the file.
    pub(super) fn map(&self, path: &Path, len: usize, room: usize) -> Result<Mapping> {
        let refused = |e: io::Error| match e {
            e if self.dax && pages::is_refused_sync(&e) => Error::new(
                ErrorKind::Unavailable,
                format!(
                    "{} is not on a DAX file system (the kernel refused MAP_SYNC), so flushes \
                     would not make anything durable; put it on one mounted with dax=always, or \
                     use the mode `file`",
                    path.display()
                ),
            ),
            e => Error::io("map the region", path, e),
        };
        Mapping::shared(&self.file, len, room, self.dax).map_err(refused)
    }

    /// Lengthens the file and its mapping. The new bytes are zeros.
    ///
    /// # Errors
    ///
    /// `Full`, or another I/O error; the mapping is as before then.
    pub(super) fn grow(&self, path: &Path, image: &Mapping, len: u64) -> Result<()> {
        let extend = || {
            self.reserve(path, len)?;
            let extended = image.extend_shared(&self.file, len as usize, self.dax);
            extended.map_err(|e| Error::io("map the region", path, e))
        };
        // A full file system keeps what it found before there was no more. A closing takes the
        // file's length for the region's.
        extend().map_err(|e| match self.file.set_len(image.len() as u64) {
            Ok(()) => e,
            Err(e) => Error::io("cut the region", path, e),
        })
    }

    /// Flushes the lines of `bytes`; how many.
    pub(super) fn flush(&self, bytes: &[u8]) -> u64 {
        self.flush.lines(bytes)
    }

    /// Completes the flushes and streaming stores of this thread; how many media blocks the
    /// ranges touch.
    pub(super) fn fence(&self, spans: &[Span]) -> u64 {
        store_fence();
        let blocks = |span: &Span| span.end().div_ceil(BLOCK) - span.at / BLOCK;
        let blocks = spans.iter().map(blocks).sum::<u64>();
        if !self.delay.is_zero() {
            let until = time::now() + self.delay * u32::try_from(blocks).unwrap_or(u32::MAX);
            while time::now() < until {
                std::hint::spin_loop();
            }
        }
        blocks
    }
}

/// Whether a store of `len` bytes at `at` goes past the cache: whole lines, and enough.
#[cfg(any(target_arch = "x86_64", test, feature = "testing"))]
pub(super) fn streams(at: u64, len: usize) -> bool {
    len >= STREAM_FROM && at.is_multiple_of(LINE) && len.is_multiple_of(LINE as usize)
}

/// Fails if there is a device at the path: it has no length, and nothing that could be made anew.
pub(super) fn refuse_device(path: &Path) -> Result<()> {
    let Some(what) = device_at(path) else { return Ok(()) };
    Err(Error::invalid(format!(
        "{} is {what}, and a region is a file: give the persistent memory a namespace of mode \
         fsdax, a file system on it mounted with dax=always, and name a file there",
        path.display()
    )))
}

/// How lines are sent to persistent memory, given what the environment asks for and whether the
/// platform flushes its caches when the power fails.
fn flush_of_dax(path: &Path, asked_for: Option<Flush>, is_flushed: bool) -> Result<Flush> {
    match asked_for {
        _ if is_flushed => Ok(Flush::None),
        Some(Flush::None) => Err(Error::invalid(format!(
            "TERRACE_FLUSH=none would leave commits to {} in caches that this platform does not \
             flush when the power fails; unset it, or use the mode `emulated` to measure without \
             flushes",
            path.display()
        ))),
        asked_for => Ok(asked_for.unwrap_or_else(Flush::of_processor)),
    }
}

fn open(files: &dyn Files, path: &Path) -> Result<File> {
    refuse_device(path)?;
    let opened = match files.real() {
        Some(files) => files.open_system(path, OpenHow::Write),
        None => Err(io::ErrorKind::Unsupported.into()),
    };
    opened.map_err(|e| Error::io("open the region", path, e))
}

/// Whether the platform flushes its caches when the power fails (eADR), as the kernel tells in
/// `sys`.
#[cfg(target_os = "linux")]
fn flushed_at_power_failure(file: &File, sys: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let Ok(metadata) = file.metadata() else { return false };
    let (major, minor) = (libc::major(metadata.dev()), libc::minor(metadata.dev()));
    let device = sys.join(format!("dev/block/{major}:{minor}/device"));
    // The namespace's device; its region is one or two above.
    ["../persistence_domain", "../../persistence_domain"].iter().any(|domain| {
        std::fs::read_to_string(device.join(domain))
            .is_ok_and(|domain| domain.trim() == "cpu_cache")
    })
}

/// There is no such platform.
#[cfg(not(target_os = "linux"))]
fn flushed_at_power_failure(_: &File, _: &Path) -> bool {
    false
}
