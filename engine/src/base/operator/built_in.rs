//! The merge operators that every database knows, and what their values look like.

use std::sync::Arc;

use super::MergeOperator;
use crate::base::error::{Error, Result};

/// Adds to a counter: values and operands are 64-bit integers in two's complement, big-endian. A
/// key without a value counts from 0. It wraps around at the ends.
pub const COUNTER: &str = "counter";

/// Appends: the value is what all operands are, one behind the other.
pub const APPEND: &str = "append";

/// Keeps the greater of value and operand, in the order of bytes.
pub const MAX: &str = "max";

/// Unites sets: values and operands are sets of byte strings, as [`set_of`] encodes them.
pub const SET_UNION: &str = "set_union";

/// Makes a value of a value and an operand, or says why it cannot.
type Merge = fn(Option<&[u8]>, &[u8]) -> std::result::Result<Vec<u8>, String>;

struct BuiltIn {
    name: &'static str,
    merge: Merge,
}

impl MergeOperator for BuiltIn {
    fn name(&self) -> &str {
        self.name
    }

    fn merge(
        &self,
        _key: &[u8],
        value: Option<&[u8]>,
        operand: &[u8],
    ) -> std::result::Result<Vec<u8>, String> {
        (self.merge)(value, operand)
    }
}

/// All of them: a new one is a constant and a row here.
const ALL: &[(&str, Merge)] = &[
    (COUNTER, add),
    (APPEND, |value, operand| Ok([value.unwrap_or_default(), operand].concat())),
    (MAX, |value, operand| Ok(value.map_or(operand, |value| value.max(operand)).to_vec())),
    (SET_UNION, unite),
];

pub(super) fn all() -> impl Iterator<Item = Arc<dyn MergeOperator>> {
    ALL.iter().map(|&(name, merge)| Arc::new(BuiltIn { name, merge }) as Arc<dyn MergeOperator>)
}

fn add(value: Option<&[u8]>, operand: &[u8]) -> std::result::Result<Vec<u8>, String> {
    let number = |what: &str, bytes: &[u8]| {
        let number = bytes.try_into().map(i64::from_be_bytes);
        number.map_err(|_| format!("the {what} has {} bytes; a counter has 8", bytes.len()))
    };
    let before = value.map_or(Ok(0), |value| number("value", value))?;
    Ok(before.wrapping_add(number("operand", operand)?).to_be_bytes().to_vec())
}

fn unite(value: Option<&[u8]>, operand: &[u8]) -> std::result::Result<Vec<u8>, String> {
    let members = |what: &str, set| {
        members(set).ok_or_else(|| format!("the {what} is no set as set_of encodes them"))
    };
    let mut all = value.map_or(Ok(Vec::new()), |value| members("value", value))?;
    all.extend(members("operand", operand)?);
    Ok(set_of(all))
}

/// A set of byte strings as [`SET_UNION`] has it: its members in order, each once, each behind its
/// length of four bytes, little-endian.
///
/// # Examples
///
/// ```
/// use terrace::operators::{SET_UNION, members_of, set_of};
/// # fn main() -> terrace::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
/// let options = terrace::TableOptions::new().merge_operator(SET_UNION);
/// let tags = db.create_table("tags", options)?;
/// tags.merge("page", set_of(["red", "blue"]))?;
/// tags.merge("page", set_of(["red", "green"]))?;
/// let all = tags.get("page")?.unwrap_or_default();
/// assert_eq!(members_of(&all)?, [&b"blue"[..], b"green", b"red"]);
/// # Ok(())
/// # }
/// ```
pub fn set_of<M: AsRef<[u8]>>(members: impl IntoIterator<Item = M>) -> Vec<u8> {
    let members: Vec<M> = members.into_iter().collect();
    let mut sorted: Vec<&[u8]> = members.iter().map(AsRef::as_ref).collect();
    sorted.sort_unstable();
    sorted.dedup();
    let mut out = Vec::with_capacity(sorted.iter().map(|member| 4 + member.len()).sum());
    for member in sorted {
        out.extend_from_slice(&(member.len() as u32).to_le_bytes());
        out.extend_from_slice(member);
    }
    out
}

/// The members of a set that [`set_of`] has encoded, in order.
///
/// # Errors
///
/// `Invalid` if it is no such set.
pub fn members_of(set: &[u8]) -> Result<Vec<&[u8]>> {
    let no_set =
        || Error::invalid(format!("{} bytes are no set as set_of encodes them", set.len()));
    members(set).ok_or_else(no_set)
}

fn members(mut set: &[u8]) -> Option<Vec<&[u8]>> {
    let mut members: Vec<&[u8]> = Vec::new();
    while let Some((len, rest)) = set.split_first_chunk() {
        let (member, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        if members.last().is_some_and(|last| *last >= member) {
            return None;
        }
        members.push(member);
        set = rest;
    }
    set.is_empty().then_some(members)
}
