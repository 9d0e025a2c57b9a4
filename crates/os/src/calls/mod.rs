//! Calls that each operating system has in its own way. A module for each has the same functions;
//! `unix` has those in which Linux and macOS do not differ.

use std::path::Path;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(target_os = "linux")]
pub use linux::*;
#[cfg(target_os = "macos")]
pub use macos::*;
#[cfg(unix)]
pub use unix::*;
#[cfg(windows)]
pub use windows::*;

/// A directory that is open. On Windows the path that it had then, without links.
#[derive(Debug)]
pub(crate) struct DirectoryHandle(#[cfg(unix)] std::fs::File, #[cfg(windows)] std::path::PathBuf);

/// What tells a file from all others of this machine; zeros where that is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    number: u64,
}

impl FileId {
    /// The number by which the kernel's table of locks names the file.
    pub(crate) fn number(self) -> Option<u64> {
        (self != FileId::default()).then_some(self.number)
    }
}

/// Where a name is looked up: a path in a directory that is open, or in the working directory. A
/// path that is empty is the directory itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) directory: Option<&'a DirectoryHandle>,
    pub(crate) path: &'a Path,
}
