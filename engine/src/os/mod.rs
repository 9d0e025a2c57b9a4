//! The operating system behind small interfaces: files (real and simulated), the lock that keeps
//! a second process out, the guard that catches forked children, the heap, and what threads share.

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
pub(crate) mod pages;
mod prefetch;
mod read_past;
mod real;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod schedule;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod sim;
pub(crate) mod sync;
pub(crate) mod thread;
pub(crate) mod time;
mod usable_memory;

pub(crate) use calls::{
    allowed_cores, bytes_of_path, device_at, free_space, host_name, is_on_tmpfs, path_of_bytes,
    pin_thread, read_exact_at,
};
pub(crate) use chance::{HashMap, HashSet, RandomKeys, draw_random};
pub(crate) use cores::{at_once, cores};
pub(crate) use deadline::{arrival, earlier};
pub use deadline::{with_arrival, with_deadline};
pub use device_read::before_device_read;
pub(crate) use device_read::reads_device;
pub(crate) use directory::{Directory, create_directory, parent_of, sync_name};
pub(crate) use files::{Files, OpenHow};
#[cfg(test)]
pub(crate) use files::{RawFile, Sealed};
pub(crate) use fork::ForkGuard;
pub(crate) use gate::{Gate, Inside};
pub(crate) use handle::File;
pub(crate) use heap::give_back_freed;
pub(crate) use held::HeldDirectory;
pub(crate) use lock::{Access, DirectoryLock, FileLock, PRIVATE};
pub(crate) use prefetch::{LINE, prefetch_lines};
pub(crate) use read_past::{Unread, read_past};
pub(crate) use real::{RealFiles, reserve_mapped};
pub(crate) use usable_memory::{Pressure, memory_pressure, usable_memory};
