//! Zeros on the media, which a region and its growth begin with.

use crate::os::File;

/// As [`zero`], with a sync for each piece: a commit's sync of the same file waits for one piece at
/// most. The space of all of them is found first. Whether all are written: `goes_on` is asked
/// before each. A full file system keeps no part of it.
pub(super) fn zero_in_pieces(
    file: &File,
    (from, to): (u64, u64),
    goes_on: &dyn Fn() -> bool,
) -> std::io::Result<bool> {
    const PIECE: u64 = 512 * 1024;
    if from < to {
        // What it found before there was no more would stay behind the end of the region.
        file.preallocate(from, to).or_else(|e| file.set_len(from).and(Err(e)))?;
    }
    let mut at = from;
    while at < to {
        if !goes_on() {
            return Ok(false);
        }
        let end = to.min(at + PIECE);
        zero(file, at, end)?;
        at = end;
    }
    Ok(true)
}

/// Writes zeros from `from` to `to`, and syncs. Reserved space alone would cost a commit's sync a
/// metadata commit when it is first written to.
pub(crate) fn zero(file: &File, from: u64, to: u64) -> std::io::Result<()> {
    // Larger pieces make for larger folios in the operating system's cache, and ext4 walks all
    // blocks of a folio at each small write to it, as relaxed commits are.
    const STEP: u64 = 16 * 1024;
    if from < to {
        file.preallocate(from, to)?;
    }
    let zeros = vec![0; STEP as usize];
    let mut at = from;
    while at < to {
        let n = STEP.min(to - at);
        // The region ends before them as long as this has not succeeded.
        file.try_write_all_at(&zeros[..n as usize], at)?;
        at += n;
    }
    file.sync()
}
