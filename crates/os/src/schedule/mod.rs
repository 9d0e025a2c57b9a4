//! A deterministic scheduler of threads, for tests: of the threads of a run, its tasks, one runs at
//! a time. Each access to what threads share is a point, where a [`SchedulePolicy`] chooses who
//! goes on. So the seed of a policy decides the run, and the operating system does not.
//!
//! Tasks are real threads: thread-local values, epochs and stacks are those of production. Only
//! sequentially consistent orders are explored. What a library does inside (epochs, the swap of a
//! shared pointer) is one step.
//!
//! A thread is a task if a task has spawned it. All other threads pass every point with one look at
//! a flag of their own.
//!
//! Time is the scheduler's too: it moves with each point, by a microsecond or what the policy says,
//! and leaps to the next deadline when every task waits.
//!
//! Thread safety: the state is behind one mutex of the standard library. The running task takes it,
//! a thread that becomes a task, and the thread that waits for the end. The baton of a task is a
//! flag that the task parks for.

mod chance;
mod explore;
mod hash;
mod policy;
mod scheduler;
mod stays;
mod task;
#[cfg(test)]
mod tests;

pub use chance::SplitMix;
pub use explore::explore;
pub use policy::SeededPolicy;
pub use scheduler::{
    Blocked, End, Point, PointKind, Run, SchedulePolicy, Step, TaskScheduler, TimedOut,
};
pub use stays::Stays;
pub use task::{
    TaskHandle, adopt, block, noting_panics, now, number, point, register, register_failed, run,
    spawn_task, wait_ended, wake, without_switch,
};
pub use task::{draw, is_task, others};
