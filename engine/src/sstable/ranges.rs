//! The range tombstones of an extent, between its index and its footer. They are cut at the ends of
//! the extent, so they say all that there is to know of its keys.

use std::sync::Arc;

use super::frame::{set_checksum, unseal};
use crate::base::error::Mismatch;
use crate::base::record::{Reader, put_bytes, put_u32, put_u64};
use crate::mvcc::{KeyInterval, Tombstone, Tombstones};

/// The section's bytes; none at all without tombstones. Each has an end.
pub(super) fn encode(extent: u64, tombstones: &[Arc<Tombstone>]) -> Vec<u8> {
    if tombstones.is_empty() {
        return Vec::new();
    }
    let mut out = Vec::new();
    put_u32(&mut out, 0);
    put_u32(&mut out, tombstones.len() as u32);
    for Tombstone { interval, seq, .. } in tombstones.iter().map(|t| &**t) {
        debug_assert!(interval.end.is_some(), "extents end somewhere");
        put_bytes(&mut out, &interval.start);
        put_bytes(&mut out, interval.end.as_deref().unwrap_or_default());
        put_u64(&mut out, *seq);
    }
    set_checksum(&[extent, 4], &mut out);
    out
}

/// Checks and reads a section.
pub(super) fn decode(extent: u64, bytes: &[u8]) -> Result<Tombstones, Mismatch> {
    if bytes.is_empty() {
        return Ok(Tombstones::default());
    }
    let too_short = || Mismatch::new("8 bytes or more", format!("{}", bytes.len()));
    let mut reader = unseal(&[extent, 4], bytes)?;
    let count = reader.u32().ok_or_else(too_short)?;
    let mut all: Vec<Arc<Tombstone>> = Vec::new();
    for n in 0..count {
        let tombstone = decode_one(&mut reader)
            .filter(|next| all.last().is_none_or(|last| place(last) < place(next)))
            .ok_or_else(|| {
                Mismatch::new(format!("{count} ascending tombstones"), format!("{n}"))
            })?;
        all.push(Arc::new(tombstone));
    }
    if !reader.is_empty() || all.is_empty() {
        let got = "bytes left over, or no tombstone at all";
        return Err(Mismatch::new(format!("{count} tombstones"), got));
    }
    Ok(all.into_iter().collect())
}

fn decode_one(reader: &mut Reader<'_>) -> Option<Tombstone> {
    let (start, end) = (reader.bytes()?.to_vec(), reader.bytes()?.to_vec());
    let interval = KeyInterval { start, end: Some(end) };
    let seq = reader.u64()?;
    (!interval.is_empty()).then(|| Tombstone::new(interval, seq))
}

/// By start, of one start the newest first.
pub(super) fn place(tombstone: &Tombstone) -> (&[u8], std::cmp::Reverse<u64>) {
    (&tombstone.interval.start, std::cmp::Reverse(tombstone.seq))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tombstone(start: &str, end: &str, seq: u64) -> Arc<Tombstone> {
        let interval = KeyInterval { start: start.into(), end: Some(end.into()) };
        Arc::new(Tombstone::new(interval, seq))
    }

    #[test]
    fn round_trip_in_which_every_flipped_bit_is_found() {
        let list = [tombstone("", "c", 9), tombstone("", "c", 4), tombstone("b", "b\0", 7)];
        let bytes = encode(5, &list);
        let found = decode(5, &bytes).unwrap();
        let mut found: Vec<_> = found.iter().cloned().collect();
        found.sort_by(|a, b| place(a).cmp(&place(b)));
        let parts = |all: &[Arc<Tombstone>]| -> Vec<_> {
            all.iter().map(|t| (t.interval.clone(), t.seq)).collect()
        };
        assert_eq!(parts(&found), parts(&list));
        for i in 0..bytes.len() {
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[i] ^= 1 << bit;
                assert!(decode(5, &bad).is_err(), "byte {i}, bit {bit}");
            }
            assert_eq!(i == 0, decode(5, &bytes[..i]).is_ok(), "{i} bytes");
        }
        assert!(decode(6, &bytes).is_err(), "another extent");
        assert_eq!(encode(5, &[]), [0_u8; 0]);
    }

    #[test]
    fn empty_intervals_and_disorder_are_refused() {
        let lists = [
            vec![tombstone("b", "b", 1)],
            vec![tombstone("b", "a", 1)],
            vec![tombstone("b", "c", 1), tombstone("a", "c", 1)],
            vec![tombstone("a", "c", 1), tombstone("a", "d", 1)],
        ];
        for list in lists {
            assert!(decode(5, &encode(5, &list)).is_err(), "{list:?}");
        }
    }
}
