//! Reads past what a device cannot read.

use std::fmt::Display;
use std::ops::Range;

/// The least that a device reads, or fails to.
const SECTOR: u64 = 4096;

/// What could not be read of a file, and why.
#[derive(Clone, Debug)]
pub struct Unread {
    /// Which bytes.
    pub place: Range<u64>,
    /// What the read said.
    pub error: String,
}

/// Fills `bytes` from the offset `at` of a file on, by `read`. Where that fails, halves are read,
/// down to a sector. Sectors that cannot be read are filled with ones, which fit no checksum, and
/// are added to `unread`.
pub fn read_past<E: Display>(
    at: u64,
    bytes: &mut [u8],
    read: &mut impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    unread: &mut Vec<Unread>,
) {
    let Err(error) = read(at, bytes) else { return };
    let end = at + bytes.len() as u64;
    let middle = (at + bytes.len() as u64 / 2).next_multiple_of(SECTOR);
    if middle < end {
        let (first, second) = bytes.split_at_mut((middle - at) as usize);
        read_past(at, first, read, unread);
        read_past(middle, second, read, unread);
        return;
    }
    bytes.fill(u8::MAX);
    match unread.last_mut().filter(|last| (last.place.start..=last.place.end).contains(&at)) {
        Some(last) => last.place.end = last.place.end.max(end),
        None => unread.push(Unread { place: at..end, error: error.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_read_but_the_sectors_that_cannot_be() {
        const LEN: u64 = 5 * SECTOR + 100;
        for from in [0, 100, SECTOR] {
            for bad in [0..1, 9000..9001, 4000..13_000, LEN - 1..LEN, 0..LEN] {
                let (mut bytes, mut unread) = (vec![0; (LEN - from) as usize], Vec::new());
                let mut read = |at: u64, part: &mut [u8]| {
                    if at < bad.end && bad.start < at + part.len() as u64 {
                        return Err("bad");
                    }
                    part.fill(7);
                    Ok(())
                };
                read_past(from, &mut bytes, &mut read, &mut unread);
                let is_unread = |at: u64| {
                    let sector = at / SECTOR * SECTOR;
                    (sector..sector + SECTOR).any(|at| bad.contains(&at) && at >= from)
                };
                for (at, byte) in (from..).zip(&bytes) {
                    assert_eq!(*byte, if is_unread(at) { 255 } else { 7 }, "{from} {bad:?} {at}");
                    let is_told = unread.iter().any(|one| one.place.contains(&at));
                    assert_eq!(is_told, is_unread(at), "{from} {bad:?} {at}");
                }
                assert!(unread.len() <= 1, "{unread:?}");
            }
        }
    }
}
