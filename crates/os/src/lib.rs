//! The operating system behind small interfaces: files (real and simulated), the lock that keeps
//! a second process out, the guard that catches forked children, the heap, and what threads share.

#![allow(clippy::len_without_is_empty, reason = "a file's length; none asks whether it is empty")]
#![allow(clippy::new_without_default, reason = "a guard is made by name")]
#![allow(unreachable_pub, reason = "what is reachable depends on the features")]

mod calls;
mod chance;
mod cores;
mod deadline;
mod device_read;
mod direct;
mod directory;
mod files;
mod fork;
mod gate;
mod handle;
mod heap;
mod held;
mod lock;
mod memory_files;
mod new_file;
pub mod pages;
mod prefetch;
mod read_past;
mod readers;
mod real;
#[cfg(any(test, feature = "testing"))]
pub mod schedule;
pub mod sync;
pub mod thread;
pub mod time;
mod usable_memory;

pub use calls::{
    allowed_cores, bytes_of_path, device_at, free_space, host_name, is_on_tmpfs, path_of_bytes,
    pin_thread, read_exact_at,
};
pub use chance::{HashMap, HashSet, RandomKeys, draw_random};
pub use cores::{at_once, cores};
pub use deadline::{arrival, earlier};
pub use deadline::{with_arrival, with_deadline, without_deadline};
pub use device_read::before_device_read;
pub use device_read::reads_device;
pub use directory::{Directory, create_directory, parent_of, sync_name};
pub use files::{Files, OpenHow};
pub use files::{RawFile, Sealed};
pub use fork::{ForkGuard, NotOpen};
pub use gate::{Gate, Inside};
pub use handle::File;
pub use heap::give_back_freed;
pub use held::HeldDirectory;
pub use lock::{Access, DirectoryLock, FileLock, LockError, PRIVATE, has_stopped, say_stopped};
pub use memory_files::MemoryFiles;
pub use new_file::NewFile;
pub use prefetch::{LINE, prefetch_lines};
pub use read_past::{Unread, read_past};
pub use readers::{BesideReader, ReaderRegistration, Readers, is_reader_name};
pub use real::{RealFiles, reserve_mapped};
pub use usable_memory::{Pressure, memory_pressure, usable_memory};
