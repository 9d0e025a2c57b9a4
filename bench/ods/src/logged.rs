//! An allocator with a redo log, for the figure `alloc`: what pools are held against.
//!
//! The way general allocators take: the change is logged durably, then made durably in a bitmap,
//! then the log is emptied durably. Three lines and three fences for an allocation.

use std::cell::Cell;
use std::path::Path;

use terrace::bench::{Allocation, Ground, checksum};
use terrace::{Mode, Result};

use super::node::LINE;

/// Offset of the log of one entry; the bitmap follows, then the objects.
const LOG: u64 = Ground::PAGE;

const BITMAP: u64 = LOG + LINE;

/// Objects of one size behind a bitmap and a log.
#[derive(Debug)]
pub struct LoggedAllocator {
    ground: Ground,
    object: u64,
    count: u64,
    /// The next word of the bitmap to look at.
    hand: Cell<u64>,
}

impl LoggedAllocator {
    /// `count` objects (a multiple of 64) of `object` bytes in a new region.
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub fn create(path: &Path, mode: Mode, object: u64, count: u64) -> Result<LoggedAllocator> {
        let len = BITMAP + (count / 8).next_multiple_of(LINE) + count * object;
        let ground = Ground::create(path, len.next_multiple_of(1 << 16), mode, LINE as u32)?;
        Ok(LoggedAllocator::open(ground, object, count))
    }

    /// The pool that is there. A change that was logged and not made is made.
    fn open(ground: Ground, object: u64, count: u64) -> LoggedAllocator {
        let pool = LoggedAllocator { ground, object, count, hand: Cell::new(0) };
        let [word, bits, sum] = [0, 8, 16].map(|at| pool.ground.word(LOG + at));
        if sum != 0 && sum == seal(word, bits) {
            pool.change(word, bits);
        }
        pool
    }

    /// How many objects are taken.
    #[cfg(test)]
    fn used(&self) -> u64 {
        (0..self.count / 64).map(|word| u64::from(self.bitmap(word).count_ones())).sum()
    }

    fn log(&self, word: u64, bits: u64) {
        let mut writer = self.ground.writer();
        writer.set(LOG, word);
        writer.set(LOG + 8, bits);
        writer.set(LOG + 16, seal(word, bits));
        writer.fence();
        self.change(word, bits);
    }

    /// What was logged is done, and the log emptied.
    fn change(&self, word: u64, bits: u64) {
        let mut writer = self.ground.writer();
        writer.set(BITMAP + word * 8, bits);
        writer.fence();
        writer.set(LOG + 16, 0);
        writer.fence();
    }

    fn bitmap(&self, word: u64) -> u64 {
        self.ground.word(BITMAP + word * 8)
    }

    fn objects(&self) -> u64 {
        BITMAP + (self.count / 8).next_multiple_of(LINE)
    }
}

impl Allocation for LoggedAllocator {
    fn allocate(&self) -> Result<u64> {
        for _ in 0..self.count / 64 {
            let hand = self.hand.get();
            let bits = self.bitmap(hand);
            if bits != u64::MAX {
                let bit = u64::from((!bits).trailing_zeros());
                self.log(hand, bits | 1 << bit);
                return Ok(self.objects() + (hand * 64 + bit) * self.object);
            }
            self.hand.set((hand + 1) % (self.count / 64));
        }
        Err(self.ground.full(self.count))
    }

    fn release(&self, object: u64) -> Result<()> {
        let index = (object - self.objects()) / self.object;
        self.hand.set(index / 64);
        self.log(index / 64, self.bitmap(index / 64) & !(1 << (index % 64)));
        Ok(())
    }

    fn costs(&self) -> (u64, u64) {
        self.ground.costs()
    }
}

/// Never zero.
fn seal(word: u64, bits: u64) -> u64 {
    1 << 32 | u64::from(checksum(&[word.to_le_bytes(), bits.to_le_bytes()].concat()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests stop and tell")]
mod tests {
    use super::*;
    use terrace_testkit::{Explorer, Machine};

    fn open(machine: &Machine) -> LoggedAllocator {
        LoggedAllocator::open(Ground::of_machine(machine, (8192, 1), 64).unwrap(), 64, 64)
    }

    #[test]
    fn three_lines_and_three_fences_and_no_cut_changes_more_than_one_object() {
        let machine = Machine::with_memory();
        let pool = open(&machine);
        machine.record();
        let first = pool.allocate().unwrap();
        machine.mark();
        let second = pool.allocate().unwrap();
        machine.mark();
        assert_eq!(pool.costs(), (6, 6));
        pool.release(first).unwrap();
        assert_eq!((pool.used(), second - first), (1, 64));
        let used = [[0, 1], [1, 2], [2, 1]];
        let explorer = Explorer::new("logged allocation", 1).arm();
        let explored = explorer.explore(&machine.recorded().unwrap(), |found, moment| {
            let used_now = open(found).used();
            match used[moment.acknowledged].contains(&used_now) {
                true => Ok(()),
                false => Err(format!("{used_now} are taken")),
            }
        });
        assert!(explored.unwrap().checked > 10);
    }
}
