//! Work that all cores do at once.

use crate::sync::shared::OnceLock;

/// The processors of this process when it was first asked: to ask takes several system calls.
pub fn cores() -> usize {
    #[cfg(any(test, feature = "testing"))]
    if super::schedule::is_task() {
        return 2;
    }
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}

/// Runs `work` on so many threads at once, this one among them, until all have done it.
pub fn at_once(threads: usize, work: impl Fn() + Sync) {
    super::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(&work);
        }
        work();
    });
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::{Barrier, Mutex};

    use super::*;

    #[test]
    fn work_is_done_on_threads_at_once_and_this_one_is_among_them() {
        for threads in [1, 3] {
            // No thread gets past it alone.
            let (barrier, seen) = (Barrier::new(threads), Mutex::new(HashSet::new()));
            at_once(threads, || {
                barrier.wait();
                seen.lock().unwrap().insert(std::thread::current().id());
            });
            let seen = seen.into_inner().unwrap();
            assert_eq!(seen.len(), threads);
            assert!(seen.contains(&std::thread::current().id()));
        }
    }
}
