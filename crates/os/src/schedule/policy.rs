//! How schedules are drawn: by chance, or by priorities that change a few times (PCT: Burckhardt,
//! Kothari, Musuvathi, Nagarakatte, "A Randomized Scheduler with Probabilistic Guarantees of
//! Finding Bugs", 2010).

use super::chance::SplitMix;
use super::scheduler::{Point, PointKind, SchedulePolicy};

/// Once in so many points the task that passes gives way. Tasks that rest and come back by turns,
/// or wait for another in a loop, would keep those below them from ever going on.
const LONGEST_TURN: u64 = 20_000;

/// A policy that follows from one seed.
#[derive(Debug)]
pub struct SeededPolicy {
    chance: SplitMix,
    how: How,
    /// Points since a task gave way for this.
    turn: u64,
}

#[derive(Debug)]
enum How {
    /// A switch at so many of a thousand points.
    Chance { switches: u64 },
    /// The task of the highest priority goes on. At some points that of the current one falls.
    Priorities { of_tasks: Vec<u64>, falls: Vec<u64>, lowest: u64 },
}

impl SeededPolicy {
    /// For runs of about `len` points.
    pub fn new(seed: u64, len: u64) -> SeededPolicy {
        let mut chance = SplitMix::new(seed);
        let how = if chance.below(2) == 0 {
            How::Chance { switches: chance.pick(&[5, 20, 100, 500]) }
        } else {
            let falls = 1 + chance.below(5);
            let mut falls: Vec<u64> = (0..falls).map(|_| chance.below(len)).collect();
            falls.sort_unstable();
            How::Priorities { of_tasks: Vec::new(), falls, lowest: 1 << 32 }
        };
        SeededPolicy { chance, how, turn: 0 }
    }
}

impl SchedulePolicy for SeededPolicy {
    fn next(&mut self, current: usize, runnable: &[usize], point: &Point) -> usize {
        self.turn = if self.turn > LONGEST_TURN { 0 } else { self.turn + 1 };
        let gives_way = point.kind == PointKind::Yield || self.turn == 0;
        let (chance, can_stay) = (&mut self.chance, runnable.contains(&current));
        match &mut self.how {
            How::Chance { switches } => {
                if can_stay && !gives_way && chance.below(1000) >= *switches {
                    return current;
                }
                chance.pick(runnable)
            }
            How::Priorities { of_tasks, falls, lowest } => {
                let most = runnable.iter().copied().max().unwrap_or(0).max(current);
                while of_tasks.len() <= most {
                    of_tasks.push((1 << 33) + chance.below(1 << 32));
                }
                let falls_now = falls.first().is_some_and(|at| *at <= point.step);
                if falls_now {
                    falls.remove(0);
                }
                if falls_now || gives_way {
                    *lowest -= 1;
                    of_tasks[current] = *lowest;
                }
                let highest = runnable.iter().max_by_key(|&&task| of_tasks[task]);
                *highest.unwrap_or(&current)
            }
        }
    }

    fn draw(&mut self, n: u64) -> u64 {
        self.chance.below(n)
    }
}
