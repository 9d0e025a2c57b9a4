//! Operands on their way through a merge.
//!
//! The records of operands of a key that no reader tells apart become one. With the value below
//! them, or with nothing below them, they become a value. If the operator fails, or the opening
//! does not know it, they stay operands, in one record.

use crate::base::error::Result;
use crate::base::limits::MAX_VALUE_LEN;
use crate::base::operator::{TableOperator, operand_list};
use crate::base::record::{
    ChainBase, EntryRef, Kind, Lsn, MAX_OPERAND_LEN, chain_len, encode_chain,
};
use crate::mvcc::Readers;

/// The operands of a key, of one record or of several that were joined.
pub(super) struct Operands {
    pub(super) key: Vec<u8>,
    /// The number of the newest record, which is that of what they become.
    pub(super) seq: Lsn,
    /// The readers for which the newest record was kept, if it was kept for them alone.
    pub(super) kept_for: Option<Readers>,
    base: Base,
    /// The newest first.
    operands: Vec<Vec<u8>>,
}

#[derive(Debug)]
enum Base {
    Below,
    None,
    Value(Vec<u8>),
}

impl Operands {
    /// Those of a record.
    pub(super) fn of(entry: &EntryRef<'_>, kept_for: Option<Readers>) -> Result<Operands> {
        let (key, operands) = (entry.key.to_vec(), Vec::new());
        let mut this = Operands { key, seq: entry.seq, kept_for, base: Base::Below, operands };
        this.take(entry)?;
        Ok(this)
    }

    /// Adds an older record of the key, the value of which does not lie apart; whether it is added.
    /// It is not if the record would become too long.
    pub(super) fn join(&mut self, entry: &EntryRef<'_>) -> Result<bool> {
        debug_assert!(
            self.key == entry.key && entry.seq < self.seq && matches!(self.base, Base::Below),
            "an older record of the key is joined to operands that go on"
        );
        let own = chain_len(None, self.operands.iter().map(Vec::len));
        if own + 4 + entry.value.len() > MAX_VALUE_LEN {
            return Ok(false);
        }
        match entry.kind {
            Kind::Merge => self.take(entry)?,
            Kind::Delete => self.base = Base::None,
            _ => self.base = Base::Value(entry.value.to_vec()),
        }
        Ok(true)
    }

    fn take(&mut self, entry: &EntryRef<'_>) -> Result<()> {
        let chain = operand_list(entry.key, entry.value)?;
        let from = self.operands.len();
        self.operands.extend(chain.operands().map(<[u8]>::to_vec));
        self.operands[from..].reverse();
        self.base = match chain.base {
            ChainBase::Below => Base::Below,
            ChainBase::None => Base::None,
            ChainBase::Value(value) => Base::Value(value.to_vec()),
        };
        Ok(())
    }

    /// What becomes of them: a value, or a record of operands. `is_bottom` says that no older
    /// version of the key is left.
    pub(super) fn end(&self, operator: &TableOperator, is_bottom: bool) -> (Kind, Vec<u8>) {
        let base = match &self.base {
            Base::Value(value) => ChainBase::Value(value),
            Base::Below if !is_bottom => ChainBase::Below,
            Base::Below | Base::None => ChainBase::None,
        };
        let value = match base {
            ChainBase::Below => None,
            ChainBase::None => self.fold(operator, None),
            ChainBase::Value(value) => self.fold(operator, Some(value)),
        };
        if let Some(value) = value {
            return (Kind::Put, value);
        }
        if let (ChainBase::Below, [_, .., oldest]) = (base, &self.operands[..])
            && let Some(one) = self.fold_newer(operator, oldest)
        {
            return (Kind::Merge, encode_chain(base, 1, [one.as_slice()].into_iter()));
        }
        (Kind::Merge, encode_chain(base, 1, self.oldest_first()))
    }

    fn oldest_first(&self) -> impl Iterator<Item = &[u8]> {
        self.operands.iter().rev().map(Vec::as_slice)
    }

    /// The value that they make of `base`; `None` if the operator fails. A read says why.
    fn fold(&self, operator: &TableOperator, base: Option<&[u8]>) -> Option<Vec<u8>> {
        operator.fold(&self.key, base, self.oldest_first()).ok()
    }

    /// The one operand that does what they do; `None` if the operator fails, or if it is too long.
    fn fold_newer(&self, operator: &TableOperator, oldest: &[u8]) -> Option<Vec<u8>> {
        let one = operator.fold(&self.key, Some(oldest), self.oldest_first().skip(1)).ok();
        one.filter(|one| one.len() <= MAX_OPERAND_LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::operator::built_in::APPEND;
    use crate::base::operator::{OperatorName, Operators};

    fn entry<'a>(seq: Lsn, kind: Kind, value: &'a [u8]) -> EntryRef<'a> {
        EntryRef { key: b"k", seq, kind, value }
    }

    fn operand(bytes: &[u8]) -> Vec<u8> {
        encode_chain(ChainBase::Below, 1, [bytes].into_iter())
    }

    #[test]
    fn operands_become_one_or_a_value_or_stay() {
        let known = Operators::default().of(Some(OperatorName::new(APPEND)));
        let unknown = TableOperator::default();
        let (a, b) = (operand(b"a"), operand(b"b"));
        let joined = |below: Option<EntryRef<'_>>| {
            let mut operands = Operands::of(&entry(9, Kind::Merge, &b), None).unwrap();
            assert!(operands.join(&entry(8, Kind::Merge, &a)).unwrap());
            assert!(below.is_none_or(|below| operands.join(&below).unwrap()));
            operands
        };
        let all = [&b"a"[..], b"b"];
        let kept = |base| (Kind::Merge, encode_chain(base, 1, all.into_iter()));
        let value = |value: &[u8]| (Kind::Put, value.to_vec());
        assert_eq!(joined(None).end(&known, false), (Kind::Merge, operand(b"ab")));
        assert_eq!(joined(None).end(&known, true), value(b"ab"));
        assert_eq!(joined(None).end(&unknown, false), kept(ChainBase::Below));
        assert_eq!(joined(None).end(&unknown, true), kept(ChainBase::None));
        let put = joined(Some(entry(7, Kind::Put, b"v")));
        assert_eq!(put.end(&known, false), value(b"vab"));
        assert_eq!(put.end(&unknown, false), kept(ChainBase::Value(b"v")));
        let deleted = joined(Some(entry(7, Kind::Delete, b"")));
        assert_eq!(deleted.end(&known, false), value(b"ab"));
        assert_eq!(deleted.end(&unknown, false), kept(ChainBase::None));
    }

    #[test]
    fn a_record_that_would_be_too_long_stays_apart() {
        let long = operand(&vec![b'x'; MAX_OPERAND_LEN]);
        let mut operands = Operands::of(&entry(9, Kind::Merge, &long), None).unwrap();
        assert!(!operands.join(&entry(8, Kind::Merge, &operand(b"a"))).unwrap());
        assert!(!operands.join(&entry(8, Kind::Put, b"")).unwrap());
    }
}
