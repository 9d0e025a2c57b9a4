//! Reads and writes that pass by the operating system's cache, at any place. They go
//! to the device in whole blocks, by way of a buffer that begins at a multiple of one. What is
//! around the bytes of a read is thrown away; what is around those of a write is read first.
//!
//! Not every file system takes that flag, and some take it and refuse the accesses. A file that
//! meets such a refusal reads and writes through the cache from then on, as without the option.

use std::fs;
use std::io;

use super::calls;
use crate::sync::locks::Mutex;

/// Offset, length and place in memory of each access are multiples of this: as large as the blocks
/// of any device in use.
const BLOCK: usize = 4096;

/// The most bytes that go to the device at once, and by way of memory: extents and pieces of them
/// are several times as long.
const MOST: usize = 512 * 1024;

/// From here on a buffer is used again: to allocate one takes as long as to fill it.
const LARGE: usize = 64 * 1024;

/// The most pieces of large memory that are kept for the next caller: as many as there are
/// threads that read or write much at a time.
const MOST_SPARE: usize = 4;

static SPARE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// Memory that begins at a multiple of a block.
struct Aligned {
    bytes: Vec<u8>,
    start: usize,
}

impl Aligned {
    /// Room for `len` bytes, [`MOST`] at most, with anything in it.
    fn new(len: usize) -> Aligned {
        debug_assert!(len <= MOST, "{len} bytes go to the device at once");
        let spare = if len < LARGE { None } else { SPARE.lock().pop() };
        let room = if len < LARGE { len } else { MOST };
        let bytes = spare.unwrap_or_else(|| vec![0; room + BLOCK - 1]);
        let start = bytes.as_ptr().align_offset(BLOCK);
        debug_assert!(start < BLOCK, "there is a multiple in every block of bytes");
        Aligned { bytes, start }
    }

    fn after(&mut self, at: usize) -> &mut [u8] {
        &mut self.bytes[self.start + at..]
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        if self.bytes.len() >= LARGE + BLOCK {
            let mut spare = SPARE.lock();
            if spare.len() < MOST_SPARE {
                spare.push(std::mem::take(&mut self.bytes));
            }
        }
    }
}

/// The blocks that `len` bytes at `offset` lie in: where they begin, and their bytes.
fn hull(offset: u64, len: usize) -> (u64, usize) {
    let start = offset / BLOCK as u64 * BLOCK as u64;
    (start, ((offset - start) as usize + len).next_multiple_of(BLOCK))
}

/// Turns direct access of an open file on or off; whether it is on then. A read tells whether it
/// works.
pub(super) fn set(file: &fs::File, on: bool) -> bool {
    let is_set = calls::pass_by_cache(file, on);
    if !on || !is_set {
        return false;
    }
    let works = read_at(file, &mut [0], 0).is_ok();
    works || set(file, false)
}

/// Whether the file system has refused an access because it was direct.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    calls::is_refused_access(error)
}

/// Reads at most `buffer.len()` bytes at `offset`; 0 means the end of the file.
pub(super) fn read_at(file: &fs::File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    read_at_once(file, buffer.len(), offset, |found| buffer[..found.len()].copy_from_slice(found))
}

/// Reads `len` bytes at `offset` into memory that is not initialised.
///
/// # Errors
///
/// `UnexpectedEof` where the file ends before them; or an I/O error.
pub(super) fn read_vec(file: &fs::File, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let (left, at) = (len - bytes.len(), offset + bytes.len() as u64);
        match read_at_once(file, left, at, |found| bytes.extend_from_slice(found)) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(bytes)
}

/// Gives `take` at most `len` bytes at `offset`: how many there were.
fn read_at_once(
    file: &fs::File,
    len: usize,
    offset: u64,
    take: impl FnOnce(&[u8]),
) -> io::Result<usize> {
    let wanted = up_to_border(offset, len);
    let (start, len) = hull(offset, wanted);
    let mut blocks = Aligned::new(len);
    let found = calls::read_at(file, &mut blocks.after(0)[..len], start)?;
    let before = (offset - start) as usize;
    let n = found.saturating_sub(before).min(wanted);
    take(&blocks.after(before)[..n]);
    Ok(n)
}

/// How many of `len` bytes at `offset` go at once. What comes next begins at a block of its own.
fn up_to_border(offset: u64, len: usize) -> usize {
    len.min(MOST - (offset % MOST as u64) as usize)
}

/// Writes all of `bytes` at `offset`. The caller makes sure that no other thread writes to their
/// first and last block meanwhile. What is behind them in the last block is kept, or becomes zeros.
pub(super) fn write_all_at(
    file: &fs::File,
    bytes: &[u8],
    offset: u64,
    keeps_rest: bool,
) -> io::Result<()> {
    let (mut rest, mut at) = (bytes, offset);
    while !rest.is_empty() {
        let (now, later) = rest.split_at(up_to_border(at, rest.len()));
        write_at_once(file, now, at, keeps_rest)?;
        (rest, at) = (later, at + now.len() as u64);
    }
    Ok(())
}

fn write_at_once(file: &fs::File, bytes: &[u8], offset: u64, keeps_rest: bool) -> io::Result<()> {
    let (start, len) = hull(offset, bytes.len());
    let before = (offset - start) as usize;
    let mut blocks = Aligned::new(len);
    let last = len - BLOCK;
    if before > 0 {
        fill(file, &mut blocks.after(0)[..BLOCK], start)?;
    }
    if !keeps_rest {
        blocks.after(before + bytes.len())[..len - before - bytes.len()].fill(0);
    } else if before + bytes.len() < len && (last > 0 || before == 0) {
        fill(file, &mut blocks.after(last)[..BLOCK], start + last as u64)?;
    }
    blocks.after(before)[..bytes.len()].copy_from_slice(bytes);
    calls::write_all_at(file, &blocks.after(0)[..len], start)
}

/// Reads what there is of a block; zeros where the file has ended.
fn fill(file: &fs::File, block: &mut [u8], offset: u64) -> io::Result<()> {
    block.fill(0);
    loop {
        match calls::read_at(file, block, offset) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => return done.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::super::files::{Files, OpenHow};
    use super::super::real::RealFiles;
    use super::*;

    /// A directory on disk and one that is memory, where there is one: the flag is known to be
    /// refused by some file systems, and never to be an error here.
    fn directories() -> Vec<tempfile::TempDir> {
        let in_memory = tempfile::tempdir_in("/dev/shm").ok();
        std::iter::once(tempfile::tempdir().unwrap()).chain(in_memory).collect()
    }

    /// Whether direct access works there.
    fn works(path: &Path) -> bool {
        let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        set(&file, true)
    }

    #[test]
    fn long_ones_go_in_pieces() {
        for directory in directories() {
            let path = directory.path().join("f");
            let file = RealFiles::default().open(&path, OpenHow::CreateNew).unwrap();
            file.set_len(4 * MOST as u64).unwrap();
            file.set_direct(true);
            let bytes: Vec<u8> = (0..2 * MOST + 5000).map(|i| (i * 7 + i / 1000) as u8).collect();
            for offset in [0, 100, BLOCK as u64, MOST as u64 - 100] {
                file.write_all_at(&bytes, offset).unwrap();
                let mut found = vec![0; bytes.len()];
                file.read_exact_at(&mut found, offset).unwrap();
                assert!(found == bytes, "at {offset}");
                assert!(file.read_vec(offset, bytes.len()).unwrap() == bytes, "at {offset}");
                let mut first = [0; 100];
                file.read_exact_at(&mut first, 0).unwrap();
                assert_eq!(first[..], bytes[..100], "what was before stays");
                let end = offset + bytes.len() as u64;
                let behind = end.next_multiple_of(BLOCK as u64);
                file.write_all_at(&[7], behind).unwrap();
                file.try_write_last_at(&bytes[5..], offset + 5).unwrap();
                assert!(file.read_vec(offset, bytes.len()).unwrap() == bytes, "at {offset}");
                assert_eq!(file.read_vec(behind, 1).unwrap(), [7], "a block further on");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn any_place_is_written_and_read(
            writes in prop::collection::vec((0usize..40_000, 1usize..20_000), 1..6),
            reads in prop::collection::vec((0usize..70_000, 1usize..70_000), 1..6),
        ) {
            for directory in directories() {
                let path = directory.path().join("f");
                let file = RealFiles::default().open(&path, OpenHow::CreateNew).unwrap();
                file.set_len(65_536).unwrap();
                prop_assert_eq!(file.set_direct(true), works(&path));
                let mut want = vec![0; 65_536];
                for (n, (offset, len)) in (1..).zip(&writes) {
                    let bytes: Vec<u8> = (0..*len).map(|i| (i * 7) as u8 ^ n).collect();
                    file.write_all_at(&bytes, *offset as u64).unwrap();
                    want[*offset..offset + len].copy_from_slice(&bytes);
                }
                for (offset, len) in &reads {
                    let mut found = vec![0; *len];
                    let n = file.read_at(&mut found, *offset as u64).unwrap();
                    let there = want.get(*offset..).unwrap_or_default();
                    prop_assert_eq!(n, there.len().min(*len));
                    prop_assert_eq!(&found[..n], &there[..n]);
                    match file.read_vec(*offset as u64, *len) {
                        Ok(found) => prop_assert_eq!(&found[..], &there[..*len]),
                        Err(e) => {
                            prop_assert_eq!(e.kind(), io::ErrorKind::UnexpectedEof);
                            prop_assert!(there.len() < *len);
                        }
                    }
                }
                prop_assert_eq!(&fs::read(&path).unwrap(), &want, "others see the same");
                prop_assert!(!file.set_direct(false) && !file.is_direct());
                let mut whole = vec![0; want.len()];
                file.read_exact_at(&mut whole, 0).unwrap();
                prop_assert_eq!(&whole, &want);
            }
        }
    }
}
