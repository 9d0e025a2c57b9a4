//! What `decoders` tries on value extents.

use bytes::Bytes;

use super::meta::{FOOTER_LEN, Footer};
use crate::base::record::mended;
use crate::sstable::{footer, frame};

/// A whole value extent, all checksums in it made right.
pub(crate) fn values(bytes: &[u8]) -> bool {
    let Some(end) = bytes.len().checked_sub(FOOTER_LEN) else { return false };
    let id = bytes[end + 8..].first_chunk().map_or(0, |id| u64::from_le_bytes(*id));
    let right = mended(&bytes[end..], 4, (8, FOOTER_LEN), &[id]);
    let sum = right[4..].first_chunk().map_or(0, |sum| u32::from_le_bytes(*sum));
    drop(Footer::decode(id, sum, &bytes[end..]));
    let Ok(decoded) = Footer::decode(id, sum, &right) else { return false };
    let again = decoded.encode(id);
    let sum = footer::checksum_of(&again);
    assert_eq!(Footer::decode(id, sum, &again), Ok(decoded), "what is accepted is read the same");
    let (mut at, mut values) = (0, 0);
    while let Some((len, _)) = frame::lens_of(&bytes[at..end]) {
        let next = at.saturating_add(frame::HEADER_LEN).saturating_add(len as usize);
        let Some(value) = bytes[..end].get(at..next) else { return false };
        let mended_value = mended(value, 0, (4, value.len()), &[id, at as u64]);
        drop(frame::open(id, at as u32, Bytes::copy_from_slice(value)));
        if frame::open(id, at as u32, Bytes::from(mended_value)).is_err() {
            return false;
        }
        (at, values) = (next, values + 1);
    }
    at == end && values == decoded.values
}
