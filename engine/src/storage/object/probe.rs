//! What `decoders` tries on bytes of an object store and of the ring file of ends.

use super::fence::Fence;
use super::known;
use super::tails::TailHeader;
use crate::base::record::{Sealable, mended};

/// The object that says who writes, and what an opening remembers of it.
pub(crate) fn fence(bytes: &[u8]) -> bool {
    if let Some(placed) = known::decode(bytes) {
        assert_eq!(known::decode(&known::encode(&placed)), Some(placed));
    }
    let version = bytes.get(8..).and_then(|rest| rest.first_chunk().copied());
    let version = u64::from(version.map_or(0, u32::from_le_bytes));
    let decoded = Fence::decode(&mended(bytes, 12, (16, bytes.len()), &[version]));
    if let Ok(fence) = &decoded {
        assert_eq!(Fence::decode(&fence.encode()).as_ref(), Ok(fence));
    }
    Fence::decode(bytes).is_ok() || decoded.is_ok()
}

/// The header of an entry of the ring file.
pub(crate) fn tail_header(bytes: &[u8]) -> bool {
    let right = mended(bytes, 8, (12, TailHeader::LEN), &[]);
    let decoded = TailHeader::decode(&right);
    if let Some(header) = &decoded {
        assert_eq!(header.encode(), right[..TailHeader::LEN]);
    }
    TailHeader::decode(bytes).is_some() || decoded.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpora_are_accepted() {
        assert!(fence(include_bytes!("../../../../fuzz/corpus/fence/made-0")));
        assert!(tail_header(include_bytes!("../../../../fuzz/corpus/object-tail/made-0")));
    }
}
