//! An allocator with a redo log, for the figure `alloc`: what pools are held against.
//!
//! The way general allocators take: the change is logged durably, then made durably in a bitmap,
//! then the log is emptied durably. Three lines and three fences for an allocation.

use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::os::sync::locks::Mutex;
use crate::pm::{LINE, Region};
use crate::record::checksum;

/// Objects of one size behind a bitmap and a log of one entry.
#[derive(Debug)]
pub(crate) struct LoggedPool {
    region: Arc<Region>,
    /// Offset of the log; the bitmap follows, then the objects.
    start: u64,
    object: u64,
    count: u64,
    /// The next word of the bitmap to look at.
    hand: Mutex<u64>,
}

impl LoggedPool {
    /// The pool at `start` with `count` objects (a multiple of 64) of `object` bytes. A change
    /// that was logged and not made is made.
    ///
    /// # Errors
    ///
    /// As [`Region::persist`].
    pub(crate) fn open(
        region: &Arc<Region>,
        start: u64,
        object: u64,
        count: u64,
    ) -> Result<LoggedPool> {
        debug_assert!(count.is_multiple_of(64), "whole words of the bitmap");
        let region = Arc::clone(region);
        let pool = LoggedPool { region, start, object, count, hand: Mutex::new(0) };
        let (word, bits, sum) = (pool.log(0), pool.log(1), pool.log(2));
        if sum != 0 && sum == seal(word, bits) {
            pool.change(word, bits)?;
        }
        Ok(pool)
    }

    /// Bytes that such a pool takes.
    pub(crate) fn len(object: u64, count: u64) -> u64 {
        LINE + (count / 8).next_multiple_of(LINE) + count * object
    }

    /// Takes an object.
    ///
    /// # Errors
    ///
    /// `Full`, and as [`Region::persist`].
    pub(crate) fn allocate(&self) -> Result<u64> {
        let mut hand = self.hand.lock();
        for _ in 0..self.count / 64 {
            let bits = self.bitmap(*hand);
            if bits != u64::MAX {
                let bit = u64::from((!bits).trailing_zeros());
                self.logged(*hand, bits | 1 << bit)?;
                return Ok(self.objects() + (*hand * 64 + bit) * self.object);
            }
            *hand = (*hand + 1) % (self.count / 64);
        }
        Err(Error::new(ErrorKind::Full, format!("all {} objects are taken", self.count)))
    }

    /// Gives an object back.
    ///
    /// # Errors
    ///
    /// As [`Region::persist`].
    pub(crate) fn release(&self, object: u64) -> Result<()> {
        let mut hand = self.hand.lock();
        let index = (object - self.objects()) / self.object;
        *hand = index / 64;
        self.logged(*hand, self.bitmap(*hand) & !(1 << (index % 64)))
    }

    /// How many objects are taken.
    #[cfg(test)]
    pub(crate) fn used(&self) -> u64 {
        (0..self.count / 64).map(|word| u64::from(self.bitmap(word).count_ones())).sum()
    }

    fn logged(&self, word: u64, bits: u64) -> Result<()> {
        let entry = [word, bits, seal(word, bits)].map(u64::to_le_bytes).concat();
        self.region.persist([self.region.write(self.start, &entry)])?;
        self.change(word, bits)
    }

    /// What was logged is done, and the log emptied.
    fn change(&self, word: u64, bits: u64) -> Result<()> {
        self.region.persist([self.region.store_word(self.start + LINE + word * 8, bits)])?;
        self.region.persist([self.region.store_word(self.start + 16, 0)])?;
        Ok(())
    }

    fn log(&self, word: u64) -> u64 {
        self.region.word(self.start + word * 8)
    }

    fn bitmap(&self, word: u64) -> u64 {
        self.region.word(self.start + LINE + word * 8)
    }

    fn objects(&self) -> u64 {
        self.start + LINE + (self.count / 8).next_multiple_of(LINE)
    }
}

/// Never zero.
fn seal(word: u64, bits: u64) -> u64 {
    1 << 32 | u64::from(checksum(&[word, bits], &[]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_testkit::{Explorer, Machine};

    fn open(machine: &Machine) -> (Arc<Region>, LoggedPool) {
        let region = Region::of_machine(machine, LoggedPool::len(64, 64)).unwrap();
        let pool = LoggedPool::open(&region, 0, 64, 64).unwrap();
        (region, pool)
    }

    #[test]
    fn three_lines_and_three_fences_and_no_cut_changes_more_than_one_object() {
        let machine = Machine::with_memory();
        let (region, pool) = open(&machine);
        machine.record();
        let first = pool.allocate().unwrap();
        machine.mark();
        let second = pool.allocate().unwrap();
        machine.mark();
        assert_eq!(region.counts().total(|c| &c.flushes), 6);
        assert_eq!(region.counts().total(|c| &c.fences), 6);
        pool.release(first).unwrap();
        assert_eq!((pool.used(), second - first), (1, 64));
        let used = [[0, 1], [1, 2], [2, 1]];
        let explorer = Explorer::new("logged allocation", 1).arm();
        let explored = explorer.explore(&machine.recorded().unwrap(), |found, moment| {
            let used_now = open(found).1.used();
            match used[moment.acknowledged].contains(&used_now) {
                true => Ok(()),
                false => Err(format!("{used_now} are taken")),
            }
        });
        assert!(explored.unwrap().checked > 10);
    }
}
