//! What the kernel counts: bytes that a device was sent, the memory of this process, and the blocks
//! that files take.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Bytes of a sector in the kernel's books, whatever the device's are.
const SECTOR: u64 = 512;

/// The block device that a directory lies on.
///
/// `/proc/self/io` would count by process, but with large folios it takes a folio of up to some MiB
/// for written when a block of it is: hundreds of times too much. The device's own counters are
/// right, and count all processes: so measure on a machine that does nothing else.
#[derive(Debug)]
pub(crate) struct Device {
    books: PathBuf,
    dir: File,
}

/// What a device has been sent and asked for, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traffic {
    pub(crate) written: u64,
    pub(crate) read: u64,
}

impl Device {
    /// Of a directory; none if there is no device, as on tmpfs.
    pub(crate) fn of(dir: &Path) -> Result<Option<Device>> {
        let file = File::open(dir).with_context(|| format!("cannot open {}", dir.display()))?;
        let number = file.metadata()?.dev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let books = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
        Ok(books.exists().then_some(Device { books, dir: file }))
    }

    /// All so far, once what files hold has been written.
    pub(crate) fn traffic(&self) -> Result<Traffic> {
        rustix::fs::syncfs(&self.dir).context("cannot sync the file system")?;
        let text = std::fs::read_to_string(&self.books);
        let text = text.with_context(|| format!("cannot read {}", self.books.display()))?;
        let fields: Vec<u64> = text.split_whitespace().flat_map(str::parse).collect();
        let sectors = |at: usize| fields.get(at).context("the device's books are too short");
        Ok(Traffic { written: sectors(6)? * SECTOR, read: sectors(2)? * SECTOR })
    }
}

impl Traffic {
    /// What there was since.
    pub(crate) fn since(self, before: Traffic) -> Traffic {
        Traffic { written: self.written - before.written, read: self.read - before.read }
    }
}

/// The most memory that this process has had, in bytes, files that it maps included.
pub(crate) fn peak_memory() -> Result<u64> {
    status("VmHWM:")
}

/// The memory that this process has now, in bytes, without pages that files are behind.
pub(crate) fn own_memory() -> Result<u64> {
    status("RssAnon:")
}

/// Bytes that the status of this process has under a name.
fn status(name: &str) -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status").context("cannot read the status")?;
    Ok(field(&text, name).with_context(|| format!("the status has no {name}"))? * 1024)
}

/// Bytes that the files below a directory take on their device: what `du` says.
pub(crate) fn disk_usage(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let path = entry?.path();
        match std::fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => bytes += disk_usage(&path)?,
            Ok(found) => bytes += found.blocks() * 512,
            // Stores remove files while they are counted.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(e).with_context(|| format!("cannot look at {}", path.display())),
        }
    }
    Ok(bytes)
}

/// The first number behind a name that begins a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_counted() {
        const LEN: u64 = 3 << 20;
        let dir = tempfile::tempdir().unwrap();
        let device = Device::of(dir.path()).unwrap();
        let before = device.as_ref().map(|device| device.traffic().unwrap());
        std::fs::write(dir.path().join("file"), vec![1; LEN as usize]).unwrap();
        if let (Some(device), Some(before)) = (device, before) {
            let written = device.traffic().unwrap().since(before).written;
            assert!(written >= LEN, "{written} bytes");
        }
        assert!(disk_usage(dir.path()).unwrap() >= LEN);
        assert!(peak_memory().unwrap() > 1 << 20);
    }
}
