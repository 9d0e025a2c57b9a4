//! One for systems without futexes, made of a lock and a condition.
//!
//! Thread safety: a sleeper looks at the count under the lock, and a waker takes the lock after
//! the count has moved. So either the sleeper sees the new count, or the waker finds it asleep.

use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{Condvar, Mutex};

/// A count to sleep at until it moves.
#[derive(Debug, Default)]
pub struct Futex {
    count: AtomicU32,
    looking: Mutex<()>,
    woken: Condvar,
}

impl Futex {
    /// The count.
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }

    /// Moves it on; no sleeper wakes for that alone.
    pub fn move_on(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// Wakes so many sleepers; how many there were.
    pub fn wake(&self, most: u32) -> usize {
        let _looking = self.looking.lock();
        (0..most).take_while(|_| self.woken.notify_one()).count()
    }

    /// Sleeps until it is woken; not at all if the count is not `seen` any more. May also end for
    /// no reason.
    pub fn sleep_at(&self, seen: u32) {
        let mut looking = self.looking.lock();
        if self.count() == seen {
            self.woken.wait(&mut looking);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn sleepers_are_woken_by_number_and_none_sleeps_past_a_count_that_moved() {
        let futex = Arc::new(Futex::default());
        futex.sleep_at(1);
        let sleepers: Vec<_> = (0..3)
            .map(|_| {
                let futex = Arc::clone(&futex);
                thread::spawn(move || futex.sleep_at(0))
            })
            .collect();
        let mut woken = 0;
        while woken < 2 {
            let n = futex.wake(1);
            assert!(n <= 1);
            woken += n;
        }
        while woken < 3 {
            woken += futex.wake(u32::MAX);
        }
        sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
        assert_eq!(futex.wake(1), 0, "none is left");
        futex.move_on();
        futex.sleep_at(0);
        assert_eq!(futex.count(), 1);
    }

    #[test]
    fn every_move_is_seen() {
        const MOVES: u32 = 10_000;
        let (there, back) = (Arc::new(Futex::default()), Arc::new(Futex::default()));
        let (heard, answers) = (Arc::clone(&there), Arc::clone(&back));
        let other = thread::spawn(move || {
            for n in 0..MOVES {
                while heard.count() == n {
                    heard.sleep_at(n);
                }
                answers.move_on();
                answers.wake(1);
            }
        });
        for n in 0..MOVES {
            there.move_on();
            there.wake(1);
            while back.count() == n {
                back.sleep_at(n);
            }
        }
        other.join().unwrap();
    }
}
