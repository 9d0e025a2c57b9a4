//! A count to sleep at until it moves.

use super::key;
use crate::schedule::{PointKind, block, is_task, point, wake};
use crate::sync::futex;

/// As in production; a task sleeps in the scheduler.
#[derive(Debug, Default)]
pub struct TaskFutex(futex::Futex);

impl TaskFutex {
    #[track_caller]
    pub fn count(&self) -> u32 {
        point(PointKind::Load);
        self.0.count()
    }

    #[track_caller]
    pub fn move_on(&self) {
        point(PointKind::Update);
        self.0.move_on();
    }

    #[track_caller]
    pub fn wake(&self, most: u32) -> usize {
        if is_task() {
            point(PointKind::Wake);
            return wake(key(self), most as usize);
        }
        self.0.wake(most)
    }

    #[track_caller]
    pub fn sleep_at(&self, seen: u32) {
        if !is_task() {
            return self.0.sleep_at(seen);
        }
        point(PointKind::Wait);
        if self.0.count() == seen {
            block(key(self), None);
        }
    }
}
