//! Keys as numbers, and what they have in common.

/// The eight bytes of `key` from `at` on as a big-endian number, zeros behind its end. Of keys that
/// are the same up to `at`, those whose numbers differ order as the numbers do.
#[inline(always)]
pub(crate) fn slice(key: &[u8], at: usize) -> u64 {
    if let Some(bytes) = key.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        return u64::from_be_bytes(*bytes);
    }
    let mut bytes = [0; 8];
    if let Some(rest) = key.get(at..) {
        bytes[..rest.len()].copy_from_slice(rest);
    }
    u64::from_be_bytes(bytes)
}

/// How many bytes two keys have in common.
pub(crate) fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_that_differ_order_as_keys_do(
            (a, b) in (prop::collection::vec(0u8..3, 0..12), prop::collection::vec(0u8..3, 0..12)),
            shared in prop::collection::vec(0u8..3, 0..4),
        ) {
            let (a, b) = ([shared.clone(), a].concat(), [shared.clone(), b].concat());
            let (one, other) = (slice(&a, shared.len()), slice(&b, shared.len()));
            prop_assert!(one == other || one.cmp(&other) == a.cmp(&b));
        }
    }
}
