//! What a table is created with.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::mvcc::micros;

/// Shorter than records are dated by, it would mean nothing.
const SHORTEST_TTL: Duration = Duration::from_secs(1);
const LONGEST_TTL: Duration = Duration::from_secs(1000 * 366 * 86_400);

/// What a table is created with, and keeps: see
/// [`Database::create_table`](crate::Database::create_table).
///
/// # Examples
///
/// ```
/// let options = terrace::TableOptions::new().block_size(4096).filter_bits(14);
/// assert_ne!(options, terrace::TableOptions::default());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableOptions {
    pub(crate) block_size: u32,
    pub(crate) filter_bits: u8,
    pub(crate) ttl: Option<Duration>,
}

impl Default for TableOptions {
    fn default() -> TableOptions {
        TableOptions::new()
    }
}

impl TableOptions {
    /// Blocks of 16 KiB, filters of 10 bits a key, records that do not expire.
    pub const fn new() -> TableOptions {
        TableOptions { block_size: 16 * 1024, filter_bits: 10, ttl: None }
    }

    /// Bytes of records in a block before compression, from 1 KiB to 1 MiB; 16 KiB by default. A
    /// look-up that is not cached reads one block; larger ones compress better and take a smaller
    /// index.
    #[must_use]
    pub const fn block_size(mut self, bytes: u32) -> TableOptions {
        self.block_size = bytes;
        self
    }

    /// Bits of an extent's filter for each key, at most 30; 10 by default, with which one look-up
    /// of a hundred reads a block for nothing. 0 for no filter: where every key that is asked for
    /// is there, or only ranges are read.
    #[must_use]
    pub const fn filter_bits(mut self, bits: u8) -> TableOptions {
        self.filter_bits = bits;
        self
    }

    /// How long records live: a second to a thousand years. From its expiry on a record is not
    /// seen by reads, and whatever moves it next drops it. [`Database::set_ttl`] changes it.
    ///
    /// A record counts as written within about a second after it was, and at a great age up to a
    /// 64th of that later; what was committed in the last second before a crash, at the next
    /// opening; what was there before any table of the database had a time to live, when one got
    /// it. Never earlier: nothing lives shorter. Writing a key again is a new record. A snapshot,
    /// an iterator, or a transaction that reads as of one goes by the time at which it was made.
    /// The clock is the machine's, but it does not go back: one that was set ahead stays ahead, and
    /// what it has taken for old is gone. What has expired in extents is off the disk after as long
    /// again at the latest, mostly sooner.
    ///
    /// [`Database::set_ttl`]: crate::Database::set_ttl
    #[must_use]
    pub const fn ttl(mut self, ttl: Duration) -> TableOptions {
        self.ttl = Some(ttl);
        self
    }

    /// The time to live, in the clock's unit.
    pub(crate) fn ttl_micros(&self) -> Option<u64> {
        self.ttl.map(micros)
    }

    pub(crate) fn check(&self) -> Result<()> {
        let TableOptions { block_size, filter_bits, ttl } = self;
        if !(1 << 10..=1 << 20).contains(block_size) {
            let message = format!("a block size of {block_size} bytes: it takes 1024 to 1048576");
            return Err(Error::invalid(message));
        }
        if *filter_bits > 30 {
            return Err(Error::invalid(format!("{filter_bits} bits of filter: it takes 0 to 30")));
        }
        if let Some(ttl) = ttl.filter(|ttl| !(SHORTEST_TTL..=LONGEST_TTL).contains(ttl)) {
            let message = format!("a time to live of {ttl:?}: it takes a second to 1000 years");
            return Err(Error::invalid(message));
        }
        Ok(())
    }

    /// Appends the fields of `docs/format.md`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.block_size.to_le_bytes());
        out.push(self.filter_bits);
        out.extend(self.ttl_micros().map(u64::to_le_bytes).into_iter().flatten());
    }

    /// Reads the fields; `None` if there are too few bytes or they say what cannot be.
    pub(crate) fn decode(bytes: &[u8]) -> Option<TableOptions> {
        let (block_size, rest) = bytes.split_first_chunk()?;
        let (filter_bits, ttl) = match rest {
            [filter_bits] => (*filter_bits, None),
            [filter_bits, ttl @ ..] => {
                (*filter_bits, Some(u64::from_le_bytes(ttl.try_into().ok()?)))
            }
            [] => return None,
        };
        let ttl = ttl.map(Duration::from_micros);
        let options =
            TableOptions { block_size: u32::from_le_bytes(*block_size), filter_bits, ttl };
        options.check().ok().map(|()| options)
    }
}
