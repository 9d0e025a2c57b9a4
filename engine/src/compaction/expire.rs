//! What has expired as a whole goes as a whole, unread: choosing it is a pure function of a
//! version.

use super::claimed::{ClaimedKeys, is_claimed};
use crate::extent::Described;
use crate::levels::Version;
use crate::record::Lsn;

/// The most extents that one edit removes.
const MOST: usize = 256;

/// Extents, with their levels, whose newest record is at or below `expired`: for every reader they
/// hold nothing. What they hide below is older still. None of those that other jobs have claimed.
pub(crate) fn expired<E: Described>(
    version: &Version<E>,
    expired: Lsn,
    busy: &[ClaimedKeys],
) -> Vec<(u8, E)> {
    let is_gone = |(n, extent): &(u8, &E)| {
        let meta = extent.meta();
        meta.greatest_seq <= expired && !is_claimed(busy, *n, &meta.interval())
    };
    let gone = version.extents().filter(is_gone).take(MOST);
    let gone: Vec<(u8, E)> = gone.map(|(level, extent)| (level, extent.clone())).collect();
    debug_assert!(gone.iter().all(|(n, _)| *n > 0), "levels count from 1");
    gone
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::extent::ExtentMeta;
    use crate::levels::Level;
    use crate::mvcc::KeyInterval;
    use crate::tier::Location;

    fn extent(id: u64, from: &str, to: &str, greatest_seq: Lsn) -> Arc<ExtentMeta> {
        Arc::new(ExtentMeta {
            id,
            location: Location { file: 1, offset: id << 21, len: 1 << 20 },
            records: 100,
            deletes: 0,
            tombstones: 0,
            smallest_seq: 1,
            greatest_seq,
            raw_bytes: 1000,
            smallest_key: from.into(),
            greatest_key: to.into(),
            footer_checksum: 0,
            one_seq: false,
            kept: 0,
            values: [].into(),
        })
    }

    #[test]
    fn extents_go_once_their_newest_record_has_expired() {
        let first = vec![extent(1, "a", "c", 20), extent(2, "d", "f", 10)];
        let second = vec![extent(3, "a", "b", 9), extent(4, "e", "x", 10), extent(5, "y", "z", 11)];
        let levels = vec![Level::new(first), Level::default(), Level::new(second)];
        let version = Version { levels, ..Version::empty(1) };
        let gone = |at: Lsn, busy: &[ClaimedKeys]| -> Vec<(u8, u64)> {
            expired(&version, at, busy).into_iter().map(|(n, extent)| (n, extent.id)).collect()
        };
        assert_eq!(gone(8, &[]), []);
        assert_eq!(gone(10, &[]), [(1, 2), (3, 3), (3, 4)]);
        let busy = |levels| [ClaimedKeys::new(KeyInterval::closed(b"f", b"g"), levels)];
        assert_eq!(gone(10, &busy((1, 3))), [(3, 3)]);
        assert_eq!(gone(10, &busy((2, 3))), [(1, 2), (3, 3)], "a job works below 2");
    }
}
