//! Ranges of keys as C describes them.

use std::ops::Bound;

use crate::guard::{Failure, Result};
use crate::pointers::Data;

/// No bound: the range goes on to the first or the last key. It is zero, so that a range of zeros
/// is the whole table.
pub const TERRACE_UNBOUNDED: u32 = 0;
/// A bound that belongs to the range.
pub const TERRACE_INCLUDED: u32 = 1;
/// A bound that does not belong to the range.
pub const TERRACE_EXCLUDED: u32 = 2;
/// As the lower bound: all keys that begin with it. The upper bound must be TERRACE_UNBOUNDED.
pub const TERRACE_PREFIX: u32 = 3;

/// One end of a range.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RangeBound {
    /// The key; NULL only without bytes.
    pub key: Data,
    /// How many bytes it has.
    pub key_len: usize,
    /// TERRACE_UNBOUNDED, TERRACE_INCLUDED, TERRACE_EXCLUDED or TERRACE_PREFIX.
    pub kind: u32,
}

/// A range of keys. It belongs to the caller, and a call copies what it needs. Where a range is
/// asked for, NULL stands for all keys.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Range {
    /// Where it begins.
    pub lower: RangeBound,
    /// Where it ends.
    pub upper: RangeBound,
}

/// A range with bounds of its own, as the engine takes it.
pub(crate) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The bounds of a range; of NULL, all keys.
pub(crate) fn bounds(range: Option<&Range>) -> Result<Bounds> {
    let Some(range) = range else { return Ok((Bound::Unbounded, Bound::Unbounded)) };
    if range.lower.kind == TERRACE_PREFIX {
        if range.upper.kind != TERRACE_UNBOUNDED {
            let message = "a range of a prefix has no upper bound; set upper.kind to 0";
            return Err(Failure::Invalid(message.into()));
        }
        let prefix = range.lower.key.bytes(range.lower.key_len, "lower.key")?;
        return Ok((Bound::Included(prefix.to_vec()), behind_prefix(prefix)));
    }
    Ok((bound(&range.lower, "lower.key")?, bound(&range.upper, "upper.key")?))
}

fn bound(bound: &RangeBound, name: &'static str) -> Result<Bound<Vec<u8>>> {
    let key = || bound.key.bytes(bound.key_len, name).map(<[u8]>::to_vec);
    match bound.kind {
        TERRACE_UNBOUNDED => Ok(Bound::Unbounded),
        TERRACE_INCLUDED => key().map(Bound::Included),
        TERRACE_EXCLUDED => key().map(Bound::Excluded),
        other => Err(Failure::Invalid(format!(
            "{name} is of kind {other}; a bound is unbounded (0), included (1) or excluded (2), \
             and a lower one may be a prefix (3)"
        ))),
    }
}

/// The end of the keys that begin with a prefix.
fn behind_prefix(prefix: &[u8]) -> Bound<Vec<u8>> {
    let Some(last) = prefix.iter().rposition(|byte| *byte != 0xff) else {
        return Bound::Unbounded;
    };
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Bound::Excluded(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(kind: u32, key: &'static [u8]) -> RangeBound {
        // SAFETY: the key is static, and its length is told beside it.
        RangeBound { key: unsafe { Data::new(key.as_ptr().cast()) }, key_len: key.len(), kind }
    }

    #[test]
    fn bounds_are_read() {
        let range = |lower, upper| bounds(Some(&Range { lower, upper })).unwrap();
        let none = end(TERRACE_UNBOUNDED, b"");
        assert_eq!(bounds(None).unwrap(), (Bound::Unbounded, Bound::Unbounded));
        assert_eq!(range(none, none), (Bound::Unbounded, Bound::Unbounded));
        assert_eq!(
            range(end(TERRACE_INCLUDED, b"a"), end(TERRACE_EXCLUDED, b"b")),
            (Bound::Included(b"a".to_vec()), Bound::Excluded(b"b".to_vec()))
        );
        assert_eq!(
            range(end(TERRACE_PREFIX, b"a\xff"), none),
            (Bound::Included(b"a\xff".to_vec()), Bound::Excluded(b"b".to_vec()))
        );
        assert_eq!(range(end(TERRACE_PREFIX, b"\xff"), none).1, Bound::Unbounded);
    }

    #[test]
    fn what_is_no_bound_is_refused() {
        let refused = |lower, upper| bounds(Some(&Range { lower, upper })).is_err();
        let (none, some) = (end(TERRACE_UNBOUNDED, b""), end(TERRACE_INCLUDED, b"a"));
        assert!(refused(end(4, b"a"), none));
        assert!(refused(none, end(TERRACE_PREFIX, b"a")));
        assert!(refused(end(TERRACE_PREFIX, b"a"), some));
        let null = RangeBound { key: Data::null(), key_len: 3, kind: TERRACE_EXCLUDED };
        assert!(refused(none, null));
    }
}
