//! The bodies of blocks, made smaller and back.

use std::cell::RefCell;

use zstd::bulk::{Compressor, Decompressor};

use crate::base::error::Mismatch;
use crate::base::options::Compression;

/// The longest body that is accepted: a largest key, a largest value, and what is stored with them.
const MAX_BODY: usize = 4 << 20;

/// Zstandard's level: the fastest that is worth it.
const LEVEL: i32 = 1;

// Making a context and clearing its tables takes as long as compressing a block.
thread_local! {
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// This thread's context, made when it is first asked for.
fn kept<C>(own: &mut Option<C>, make: impl FnOnce() -> std::io::Result<C>) -> Option<&mut C> {
    if own.is_none() {
        *own = make().ok();
    }
    own.as_mut()
}

/// After this many bodies in a row that did not get smaller, most are not tried,
const IN_VAIN: u32 = 4;

/// except one of this many.
const ONE_OF: u32 = 8;

/// Compresses bodies that follow each other. Bodies that do not compress lie together as a rule,
/// and each attempt is much of the work on a block. So most of them are not tried.
#[derive(Debug, Default)]
pub(super) struct Trial {
    /// Bodies in a row that did not get smaller, tried or not.
    in_vain: u32,
}

impl Trial {
    /// As [`compress`], or untried.
    pub(super) fn compress(
        &mut self,
        body: &[u8],
        compression: Compression,
    ) -> (u8, Option<Vec<u8>>) {
        let is_tried = self.in_vain < IN_VAIN || self.in_vain.is_multiple_of(ONE_OF);
        let compression = if is_tried { compression } else { Compression::None };
        let done = compress(body, compression);
        self.in_vain = if done.1.is_some() { 0 } else { self.in_vain.wrapping_add(1) };
        done
    }
}

/// A body as it is written: the number of its compression on the media, and the bytes if they are
/// not the body's own. A body that gets less than an eighth smaller stays as it is.
fn compress(body: &[u8], compression: Compression) -> (u8, Option<Vec<u8>>) {
    let smaller = match compression {
        Compression::None => None,
        Compression::Lz4 => Some(lz4_flex::block::compress(body)),
        // It fails for lack of memory only; then the block stays as it is.
        Compression::Zstd => COMPRESSOR
            .with_borrow_mut(|own| kept(own, || Compressor::new(LEVEL))?.compress(body).ok()),
    };
    match smaller.filter(|bytes| bytes.len() < body.len() - body.len() / 8) {
        Some(bytes) => (compression as u8, Some(bytes)),
        None => (Compression::None as u8, None),
    }
}

/// Appends the body that `bytes` are with the compression of this number. It has `len` bytes.
///
/// # Errors
///
/// What is wrong with it.
pub(super) fn decompress(
    number: u8,
    bytes: &[u8],
    len: usize,
    out: &mut Vec<u8>,
) -> Result<(), Mismatch> {
    if len > MAX_BODY {
        return Err(Mismatch::new(format!("at most {MAX_BODY} bytes"), format!("{len}")));
    }
    let start = out.len();
    out.resize(start + len, 0);
    let room = &mut out[start..];
    let got = match number {
        1 => lz4_flex::block::decompress_into(bytes, room).map_err(|e| e.to_string()),
        2 => DECOMPRESSOR.with_borrow_mut(|own| match kept(own, Decompressor::new) {
            Some(own) => own.decompress_to_buffer(bytes, room).map_err(|e| e.to_string()),
            None => Err("there is no memory for it".to_string()),
        }),
        _ => Err(format!("compression {number}")),
    };
    match got {
        Ok(n) if n == len => Ok(()),
        Ok(n) => Err(Mismatch::new(format!("{len} bytes"), format!("{n}"))),
        Err(e) => Err(Mismatch::new("a block that can be decompressed", e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_compressed_is_seldom_tried() {
        let noise = |n: u64| -> Vec<u8> {
            let word = |w: u64| (w ^ n << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17);
            (1..500).flat_map(|w| word(w).wrapping_mul(word(w * 7)).to_le_bytes()).collect()
        };
        for compression in [Compression::Lz4, Compression::Zstd] {
            let mut trial = Trial::default();
            for n in 0..100 {
                assert_eq!(trial.compress(&noise(n), compression), (0, None));
            }
            // The first that is tried again counts, and those behind it.
            let smaller = (0..20).map(|_| trial.compress(&[7; 4000], compression).1.is_some());
            let smaller: Vec<bool> = smaller.collect();
            let untried = smaller.iter().position(|smaller| *smaller);
            assert!(untried.is_some_and(|n| n > 0 && n < ONE_OF as usize), "{smaller:?}");
            assert!(smaller.iter().skip_while(|smaller| !**smaller).all(|smaller| *smaller));
            // And what alternates is tried each time.
            for n in 0..20 {
                assert_eq!(trial.compress(&noise(n), compression).1, None);
                assert!(trial.compress(&[8; 4000], compression).1.is_some());
            }
        }
    }
}
