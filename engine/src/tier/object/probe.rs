//! What `decoders` tries on bytes of an object store and of the ring file of ends.

use super::fence::Fence;
use super::known;
use super::tails::TailHeader;
use crate::record::mended;

/// The object that says who writes, and what an opening remembers of it.
pub(crate) fn fence(bytes: &[u8]) -> bool {
    if let Some(placed) = known::decode(bytes) {
        assert_eq!(known::decode(&known::encode(&placed)), Some(placed));
    }
    let right = mended(bytes, 8, (12, bytes.len()), &[]);
    let decoded = Fence::decode(&right);
    if let Some(fence) = &decoded {
        assert_eq!(fence.encode(), right);
    }
    Fence::decode(bytes).is_some() || decoded.is_some()
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
