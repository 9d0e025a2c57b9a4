//! LEB128: seven bits a byte, the least significant first, the top bit set on all but the last.

/// Appends a number.
pub(super) fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// The number at `*at`, which moves behind it; `None` when the bytes end first or the number has
/// more than 64 bits.
#[inline]
pub(super) fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut n = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        let bits = u64::from(byte & 0x7F);
        if shift == 63 && bits > 1 {
            return None;
        }
        n |= bits << shift;
        if byte < 0x80 {
            return Some(n);
        }
    }
    None
}

/// A number that is a length: it fits in 32 bits.
#[inline]
pub(super) fn varint_len(bytes: &[u8], at: &mut usize) -> Option<usize> {
    u32::try_from(varint(bytes, at)?).ok().map(|n| n as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips() {
        for n in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, n);
            let mut at = 0;
            assert_eq!(varint(&out, &mut at), Some(n));
            assert_eq!(at, out.len());
            assert_eq!(varint(&out[..out.len() - 1], &mut 0), None);
        }
    }

    #[test]
    fn refuses_more_than_64_bits() {
        assert_eq!(varint(&[0x80; 11], &mut 0), None);
        let mut too_great = [0xFF; 10];
        too_great[9] = 0x02;
        assert_eq!(varint(&too_great, &mut 0), None);
        assert_eq!(varint_len(&[0x80, 0x80, 0x80, 0x80, 0x10], &mut 0), None);
    }
}
