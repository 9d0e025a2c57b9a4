//! The bodies of blocks, made smaller and back.

use super::Malformed;
use crate::options::Compression;

/// The longest body that is believed: a key, a value, and what goes with them, of the largest.
const MAX_BODY: usize = 4 << 20;

/// The number of a compression on the media (`docs/format.md`, section 3).
pub(super) fn number(compression: Compression) -> u8 {
    match compression {
        Compression::None => 0,
        Compression::Lz4 => 1,
        Compression::Zstd => 2,
    }
}

/// A body as it is written: the number of its compression, and the bytes if they are not the
/// body's own. What gets less than an eighth smaller is not worth the way back.
pub(super) fn compress(body: &[u8], compression: Compression) -> (u8, Option<Vec<u8>>) {
    let smaller = match compression {
        Compression::None => None,
        Compression::Lz4 => Some(lz4_flex::block::compress(body)),
        // It fails for lack of memory only; then the block stays as it is.
        Compression::Zstd => zstd::bulk::compress(body, 1).ok(),
    };
    match smaller.filter(|bytes| bytes.len() < body.len() - body.len() / 8) {
        Some(bytes) => (number(compression), Some(bytes)),
        None => (number(Compression::None), None),
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
) -> Result<(), Malformed> {
    if len > MAX_BODY {
        return Err(Malformed::new(format!("at most {MAX_BODY} bytes"), format!("{len}")));
    }
    let start = out.len();
    out.resize(start + len, 0);
    let room = &mut out[start..];
    let got = match number {
        1 => lz4_flex::block::decompress_into(bytes, room).map_err(|e| e.to_string()),
        2 => zstd::bulk::decompress_to_buffer(bytes, room).map_err(|e| e.to_string()),
        _ => Err(format!("compression {number}")),
    };
    match got {
        Ok(n) if n == len => Ok(()),
        Ok(n) => Err(Malformed::new(format!("{len} bytes"), format!("{n}"))),
        Err(e) => Err(Malformed::new("a block that can be decompressed", e)),
    }
}
