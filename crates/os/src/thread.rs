//! Threads. A thread that a task of the scheduler spawns is a task too.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(not(any(test, feature = "testing")))]
pub use std::thread::{Builder, JoinHandle, scope, yield_now};

#[cfg(any(test, feature = "testing"))]
pub use scheduled::{JoinHandle, spawn, yield_now};
#[cfg(any(test, feature = "testing"))]
pub use scheduled::{ThreadBuilder as Builder, scope};

/// A number of this thread; neighbours in time have neighbours. In a run it is that of the task.
#[inline]
pub fn number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    #[cfg(any(test, feature = "testing"))]
    if super::schedule::is_task() {
        return super::schedule::number();
    }
    if NUMBER.get() == usize::MAX {
        NUMBER.set(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    NUMBER.get()
}

#[cfg(any(test, feature = "testing"))]
mod scheduled {
    #![allow(missing_docs, reason = "the interface of the standard library")]

    use std::cell::RefCell;
    use std::io;
    use std::thread;

    use crate::schedule::{self, PointKind, TaskHandle};

    /// How a thread is made.
    #[derive(Debug)]
    pub struct ThreadBuilder {
        inner: thread::Builder,
        name: String,
    }

    /// A thread that may be joined.
    #[derive(Debug)]
    pub struct JoinHandle<T> {
        inner: thread::JoinHandle<T>,
        task: Option<usize>,
    }

    fn new_task(name: &str) -> Option<TaskHandle> {
        schedule::point(PointKind::Spawn);
        schedule::spawn_task(name.into())
    }

    /// What the thread of `task` runs.
    fn as_task<T>(task: Option<TaskHandle>, f: impl FnOnce() -> T) -> impl FnOnce() -> T {
        move || {
            if let Some(task) = task {
                schedule::adopt(task);
            }
            schedule::noting_panics(f)
        }
    }

    #[allow(dead_code, reason = "the interface of the standard library's")]
    impl ThreadBuilder {
        pub fn new() -> ThreadBuilder {
            ThreadBuilder { inner: thread::Builder::new(), name: String::new() }
        }

        pub fn name(self, name: String) -> ThreadBuilder {
            ThreadBuilder { inner: self.inner.name(name.clone()), name }
        }

        #[track_caller]
        pub fn spawn<T: Send + 'static>(
            self,
            f: impl FnOnce() -> T + Send + 'static,
        ) -> io::Result<JoinHandle<T>> {
            let handle = new_task(&self.name);
            let task = handle.as_ref().map(TaskHandle::number);
            let spawned = self.inner.spawn(as_task(handle, f));
            let inner =
                spawned.inspect_err(|_| task.into_iter().for_each(schedule::register_failed))?;
            Ok(JoinHandle { inner, task })
        }
    }

    impl ThreadBuilder {
        #[track_caller]
        pub fn spawn_scoped<'scope, T: Send + 'scope>(
            self,
            scope: &Scope<'scope, '_>,
            f: impl FnOnce() -> T + Send + 'scope,
        ) -> io::Result<ScopedJoinHandle<'scope, T>> {
            let handle = new_task(&self.name);
            let task = handle.as_ref().map(TaskHandle::number);
            let spawned = self.inner.spawn_scoped(scope.inner, as_task(handle, f));
            let inner =
                spawned.inspect_err(|_| task.into_iter().for_each(schedule::register_failed))?;
            scope.tasks.borrow_mut().extend(task);
            Ok(ScopedJoinHandle { inner, task })
        }
    }

    #[allow(dead_code, reason = "the interface of the standard library's")]
    impl<T> JoinHandle<T> {
        /// Waits for its end.
        ///
        /// # Errors
        ///
        /// Its panic.
        #[track_caller]
        pub fn join(self) -> thread::Result<T> {
            if let Some(task) = self.task.filter(|_| schedule::is_task()) {
                schedule::wait_ended(task);
            }
            self.inner.join()
        }

        pub fn is_finished(&self) -> bool {
            schedule::point(PointKind::Load);
            self.inner.is_finished()
        }

        pub fn thread(&self) -> &thread::Thread {
            self.inner.thread()
        }
    }

    /// A thread of this name.
    ///
    /// # Panics
    ///
    /// When the system has no thread to give.
    #[track_caller]
    pub fn spawn<T: Send + 'static>(
        name: &str,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        ThreadBuilder::new()
            .name(name.into())
            .spawn(f)
            .expect("invariant: a test has a thread to spawn")
    }

    /// Threads that end before their scope does.
    pub struct Scope<'scope, 'env: 'scope> {
        inner: &'scope thread::Scope<'scope, 'env>,
        tasks: RefCell<Vec<usize>>,
    }

    /// A thread of a scope that may be joined.
    pub struct ScopedJoinHandle<'scope, T> {
        inner: thread::ScopedJoinHandle<'scope, T>,
        task: Option<usize>,
    }

    impl<T> ScopedJoinHandle<'_, T> {
        #[track_caller]
        pub fn join(self) -> thread::Result<T> {
            self.task.into_iter().for_each(schedule::wait_ended);
            self.inner.join()
        }
    }

    impl<'scope> Scope<'scope, '_> {
        #[track_caller]
        pub fn spawn<T: Send + 'scope>(
            &self,
            f: impl FnOnce() -> T + Send + 'scope,
        ) -> ScopedJoinHandle<'scope, T> {
            let spawned = ThreadBuilder::new().name("scoped".into()).spawn_scoped(self, f);
            spawned.expect("invariant: as the standard library's, it panics without a thread")
        }
    }

    /// The standard library's scope waits for the threads outside of the scheduler.
    impl Drop for Scope<'_, '_> {
        fn drop(&mut self) {
            self.tasks.borrow_mut().drain(..).for_each(schedule::wait_ended);
        }
    }

    /// Runs `f` with a scope for threads.
    pub fn scope<'env, T>(f: impl for<'scope> FnOnce(&Scope<'scope, 'env>) -> T) -> T {
        thread::scope(|inner| f(&Scope { inner, tasks: RefCell::default() }))
    }

    /// Gives the processor to another thread.
    #[track_caller]
    pub fn yield_now() {
        if schedule::is_task() {
            schedule::point(PointKind::Yield);
        } else {
            thread::yield_now();
        }
    }
}
