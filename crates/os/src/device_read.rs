//! Tells a caller before one of its reads waits for a device.
//!
//! Thread safety: what one thread has asked for concerns its own reads alone.

use std::cell::Cell;

thread_local! {
    /// What this thread wants to be called before its next read of a device.
    static HOOK: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// Runs `f`. Before the first read of this thread in it that goes to a device, or to an object
/// store, `hook` is called, once. Reads that find all they need in memory do not call it.
///
/// It is for bindings to languages whose interpreter has a lock. They keep the lock over reads of
/// memory, which is cheaper than to give it back, and give it back where a read waits.
///
/// `hook` runs inside of the read. It must not call the database, and should be short.
pub fn before_device_read<T>(hook: fn(), f: impl FnOnce() -> T) -> T {
    /// Gives the hook back that was there, whatever `f` does.
    struct Outer(Option<fn()>);

    impl Drop for Outer {
        fn drop(&mut self) {
            HOOK.set(self.0);
        }
    }

    let _outer = Outer(HOOK.replace(Some(hook)));
    f()
}

/// A read of this thread is about to go to a device.
pub fn reads_device() {
    if let Some(hook) = HOOK.take() {
        hook();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static CALLS: Cell<u32> = const { Cell::new(0) };
    }

    fn count() {
        CALLS.set(CALLS.get() + 1);
    }

    #[test]
    fn the_hook_is_called_once_and_by_this_thread_alone() {
        reads_device();
        before_device_read(count, || {
            std::thread::scope(|scope| scope.spawn(reads_device).join().unwrap());
            assert_eq!(CALLS.get(), 0, "that was another thread");
            reads_device();
            reads_device();
        });
        assert_eq!(CALLS.get(), 1);
        reads_device();
        assert_eq!(CALLS.get(), 1, "it is over");
    }

    #[test]
    fn an_inner_hook_takes_the_place_of_the_outer_one_for_as_long() {
        before_device_read(count, || {
            before_device_read(|| {}, reads_device);
            assert_eq!(CALLS.get(), 0);
            let ended = std::panic::catch_unwind(|| before_device_read(|| {}, || panic!("ends")));
            assert!(ended.is_err());
            reads_device();
        });
        assert_eq!(CALLS.get(), 1);
    }
}
