//! What seals the parts of an extent: a checksum in front. Blocks and separated values have a
//! header that seals a body for its place. The body may be compressed.

use bytes::Bytes;

use super::compress::{Trial, decompress};
use crate::base::error::Mismatch;
use crate::base::options::Compression;
use crate::base::record::{Reader, checksum, put_u32};

/// Bytes before the body.
pub(super) const HEADER_LEN: usize = 16;

/// Appends a value to `out`, as the bytes from `out.len()` on. It is compressed if that is worth
/// it, and sealed for that place. `trial` knows the values before it.
pub(super) fn seal(
    extent: u64,
    body: &[u8],
    (compression, trial): (Compression, &mut Trial),
    out: &mut Vec<u8>,
) {
    let (number, smaller) = trial.compress(body, compression);
    let stored = smaller.as_deref().unwrap_or(body);
    seal_as(extent, (number, PLAIN), (stored, body.len()), out);
}

/// Appends a body to `out` as it is stored, and seals it for that place. The numbers are those of
/// its compression and of its layout; it has `whole_len` bytes uncompressed.
pub(super) fn seal_as(
    extent: u64,
    (compression, layout): (u8, u8),
    (stored, whole_len): (&[u8], usize),
    out: &mut Vec<u8>,
) {
    let start = out.len();
    put_u32(out, 0);
    put_u32(out, stored.len() as u32);
    put_u32(out, u32::from_le_bytes([compression, layout, 0, 0]));
    put_u32(out, whole_len as u32);
    out.extend_from_slice(stored);
    set_checksum(&[extent, start as u64], &mut out[start..]);
}

/// Appends `bytes`, which were sealed for another place, to `out`, and seals them for the place
/// there.
pub(super) fn reseal(bytes: &[u8], extent: u64, out: &mut Vec<u8>) {
    let start = out.len();
    put_u32(out, 0);
    out.extend_from_slice(&bytes[4..]);
    set_checksum(&[extent, start as u64], &mut out[start..]);
}

/// Sets the checksum of `sealed`, its first four bytes, over the rest.
pub(super) fn set_checksum(seeds: &[u64], sealed: &mut [u8]) {
    let sum = checksum(seeds, &sealed[4..]);
    sealed[..4].copy_from_slice(&sum.to_le_bytes());
}

/// Checks the checksum that `sealed` begins with; what follows it.
pub(super) fn unseal<'a>(seeds: &[u64], sealed: &'a [u8]) -> Result<Reader<'a>, Mismatch> {
    let mut reader = Reader::new(sealed);
    let too_short = || Mismatch::new("a checksum", format!("{} bytes", sealed.len()));
    let stored = reader.u32().ok_or_else(too_short)?;
    let computed = checksum(seeds, &sealed[4..]);
    if stored == computed { Ok(reader) } else { Err(Mismatch::checksum(stored, computed)) }
}

/// The checksum that sealed bytes begin with.
pub(super) fn seal_of(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|sum| u32::from_le_bytes(*sum))
}

/// The lengths in a header: of the body as it is stored, and as it was.
pub(super) fn lens_of(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut header = Reader::new(bytes.get(4..)?);
    let (stored, _, whole) = (header.u32()?, header.u32()?, header.u32()?);
    Some((stored, whole))
}

/// Checks the seal of what lies at `offset` of an extent, and nothing else.
pub(super) fn check_seal(extent: u64, offset: u32, bytes: &[u8]) -> Result<(), Mismatch> {
    if bytes.len() <= HEADER_LEN {
        return Err(too_short(bytes.len()));
    }
    unseal(&[extent, u64::from(offset)], bytes).map(drop)
}

pub(super) fn too_short(len: usize) -> Mismatch {
    Mismatch::new(format!("more than {HEADER_LEN} bytes"), format!("{len}"))
}

/// The layout of values, which have none.
pub(super) const PLAIN: u8 = 0;

/// Checks the bytes of a value at `offset` of an extent. Returns them with the uncompressed value,
/// behind the 16 bytes of the header.
pub(super) fn open(extent: u64, offset: u32, bytes: Bytes) -> Result<Bytes, Mismatch> {
    match open_body(extent, offset, bytes)? {
        (whole, PLAIN) => Ok(whole),
        (_, layout) => Err(Mismatch::new("a value", format!("a body of layout {layout}"))),
    }
}

/// Checks the bytes at `offset` of an extent. Returns them with the uncompressed body, behind the
/// 16 bytes of the header; and the number of its layout.
pub(super) fn open_body(extent: u64, offset: u32, bytes: Bytes) -> Result<(Bytes, u8), Mismatch> {
    check_seal(extent, offset, &bytes)?;
    let short = || too_short(bytes.len());
    let mut header = Reader::new(&bytes[4..]);
    let body_len = header.u32().ok_or_else(short)? as usize;
    let compression = header.u32().ok_or_else(short)?;
    let whole_len = header.u32().ok_or_else(short)? as usize;
    let [number, layout, 0, 0] = compression.to_le_bytes() else {
        return Err(Mismatch::new("a compression and a layout", format!("{compression:#x}")));
    };
    if body_len != bytes.len() - HEADER_LEN || number == 0 && whole_len != body_len {
        let got = format!("{body_len}, uncompressed {whole_len}");
        return Err(Mismatch::new(format!("{} bytes", bytes.len() - HEADER_LEN), got));
    }
    if number == 0 {
        return Ok((bytes, layout));
    }
    // Offsets in a block count from its header on, compressed or not.
    let mut whole = Vec::with_capacity(HEADER_LEN + whole_len.min(bytes.len() * 64));
    whole.resize(HEADER_LEN, 0);
    decompress(number, &bytes[HEADER_LEN..], whole_len, &mut whole)?;
    Ok((Bytes::from(whole), layout))
}
