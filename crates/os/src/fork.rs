//! Catches a forked child that uses its parent's database. Threads and locks do not survive a
//! fork, and two processes must never write one region.

use std::fmt;
#[cfg(unix)]
use std::sync::Once;

use std::sync::atomic::{AtomicU64, Ordering};

/// How many forks lie between this process and the one that first opened a database.
static GENERATION: AtomicU64 = AtomicU64::new(0);
#[cfg(unix)]
static INSTALL: Once = Once::new();

#[cfg(unix)]
extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Why a database takes no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOpen {
    /// A closing has begun.
    Closed,
    /// This process was forked from the one that opened it.
    Forked,
}

impl fmt::Display for NotOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotOpen::Closed => f.write_str("the database was closed; open it again"),
            NotOpen::Forked => write!(
                f,
                "process {} was forked from the one that opened this database; open it anew here \
                 after the parent has closed it",
                std::process::id()
            ),
        }
    }
}

impl std::error::Error for NotOpen {}

/// Remembers the process that opened a database. Checking it costs one load.
#[derive(Clone, Copy, Debug)]
pub struct ForkGuard {
    generation: u64,
}

impl ForkGuard {
    /// A guard for this process. Windows has no fork, and there it guards nothing.
    pub fn new() -> ForkGuard {
        #[cfg(unix)]
        INSTALL.call_once(|| {
            // SAFETY: the handler only adds to an atomic, which is async-signal-safe.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        ForkGuard { generation: GENERATION.load(Ordering::Relaxed) }
    }

    /// How many forks lie between the guard's process and the one that first opened a database.
    pub fn generation(self) -> u64 {
        self.generation
    }

    /// As a forked child has it from its parent.
    #[cfg(feature = "testing")]
    pub fn of_parent() -> ForkGuard {
        ForkGuard { generation: ForkGuard::new().generation.wrapping_sub(1) }
    }

    /// Whether this is a child forked after the guard was made.
    pub fn is_forked(self) -> bool {
        GENERATION.load(Ordering::Relaxed) != self.generation
    }

    /// Fails in a forked child.
    ///
    /// # Errors
    ///
    /// `Forked`.
    pub fn check(self) -> Result<(), NotOpen> {
        if self.is_forked() { Err(NotOpen::Forked) } else { Ok(()) }
    }
}
