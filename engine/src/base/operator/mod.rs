//! Merge operators: what makes one value of a value and an operand.
//!
//! An operand is an ordinary record of its key. Reads, drains and compactions make values of
//! operands with the operator of the table. `docs/internals/merge-operators.md` has the argument.
//!
//! Thread safety: everything here is immutable, but for what each thread notes for itself: whether
//! it runs an operator. Operators run under locks, and calls of the database take some: so these
//! fail there ([`check_outside`]).

pub mod built_in;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::MAX_VALUE_LEN;
use crate::base::name::Name;
use crate::base::record::{ChainBase, OperandList};

/// Makes a value of a value and an operand, for [`Table::merge`](crate::Table::merge).
///
/// An operand has the form of a value. The operator is associative: of a value `v` and operands `a`
/// and `b`, `merge(merge(v, a), b)` is `merge(v, merge(a, b))`. It gives the same result for the
/// same input, always: its name stands for what it does, and the name is on disk. It is called by
/// reads, merges of transactions, drains and compactions, on their threads. It calls nothing of a
/// database: such a call might wait for the one that needs the value, so it fails with `Invalid`.
///
/// # Examples
///
/// ```
/// /// Keeps the lesser of two values.
/// struct Least;
///
/// impl terrace::MergeOperator for Least {
///     fn name(&self) -> &str {
///         "example.least"
///     }
///
///     fn merge(
///         &self,
///         _key: &[u8],
///         value: Option<&[u8]>,
///         operand: &[u8],
///     ) -> Result<Vec<u8>, String> {
///         Ok(value.map_or(operand, |value| value.min(operand)).to_vec())
///     }
/// }
///
/// # fn main() -> terrace::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let options = terrace::Options::new().pm_size(4 << 20).merge_operator(Least);
/// let db = options.open(dir.path().join("db"))?;
/// let of_table = terrace::TableOptions::new().merge_operator("example.least");
/// let prices = db.create_table("prices", of_table)?;
/// prices.merge("apple", "30")?;
/// prices.merge("apple", "25")?;
/// prices.merge("apple", "28")?;
/// assert_eq!(prices.get("apple")?.as_deref(), Some(&b"25"[..]));
/// # Ok(())
/// # }
/// ```
pub trait MergeOperator: Send + Sync {
    /// The name by which tables know it: 1 to 31 bytes. A name with a dot is never a built-in one.
    fn name(&self) -> &str;

    /// The value of `key` after `operand`. `value` is the one before; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Why there is no such value, for people. Calls that read the key fail then, with the key and
    /// this text. The operands stay as they are.
    fn merge(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
        operand: &[u8],
    ) -> std::result::Result<Vec<u8>, String>;
}

/// The operators that an opening knows, by name.
#[derive(Clone)]
pub(crate) struct Operators(BTreeMap<String, Arc<dyn MergeOperator>>);

impl Default for Operators {
    fn default() -> Operators {
        let named = |operator: Arc<dyn MergeOperator>| (operator.name().to_string(), operator);
        Operators(built_in::all().map(named).collect())
    }
}

impl fmt::Debug for Operators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Operators {
    /// These and `others`, which users have registered.
    pub(crate) fn with(mut self, others: &[Arc<dyn MergeOperator>]) -> Result<Operators> {
        for operator in others {
            let name = operator.name();
            OperatorName::new(name).check()?;
            if self.0.insert(name.to_string(), Arc::clone(operator)).is_some() {
                let message = format!("two merge operators have the name {name:?}; rename one");
                return Err(Error::invalid(message));
            }
        }
        Ok(self)
    }

    /// The operator of a table whose options name it.
    pub(crate) fn of(&self, name: Option<OperatorName>) -> TableOperator {
        let operator = name.and_then(|name| self.0.get(name.as_str()).cloned());
        TableOperator { name, operator }
    }
}

/// The merge operator of one table, if it has one and the opening knows it.
#[derive(Clone, Default)]
pub(crate) struct TableOperator {
    name: Option<OperatorName>,
    operator: Option<Arc<dyn MergeOperator>>,
}

impl fmt::Debug for TableOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TableOperator").field(&self.name).finish()
    }
}

thread_local! {
    static IS_RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// Whether an operator runs on this thread.
pub(crate) fn is_running() -> bool {
    IS_RUNNING.get()
}

/// Fails inside of an operator.
pub(crate) fn check_outside() -> Result<()> {
    if !is_running() {
        return Ok(());
    }
    Err(Error::invalid(
        "a merge operator has called the database: the call might wait for the one that needs the \
         merged value; make the value of the key, the old value and the operand alone",
    ))
}

/// Runs an operator, whose calls of a database fail.
pub(crate) fn run<T>(f: impl FnOnce() -> T) -> std::thread::Result<T> {
    let before = IS_RUNNING.replace(true);
    let done = catch_unwind(AssertUnwindSafe(f));
    IS_RUNNING.set(before);
    done
}

impl TableOperator {
    /// The operator.
    fn known(&self) -> Result<&dyn MergeOperator> {
        let Some(name) = self.name else {
            return Err(Error::merge(
                "the table has no merge operator; create it with the option merge_operator, or \
                 change its options",
            ));
        };
        self.operator.as_deref().ok_or_else(|| {
            let name = name.as_str();
            Error::merge(format!(
                "the table has the merge operator {name:?}, which is not registered; open the \
                 database with merge_operator"
            ))
        })
    }

    /// Fails where operands could not be merged.
    pub(crate) fn check(&self) -> Result<()> {
        self.known().map(drop)
    }

    /// What `operands`, the oldest first, make of `base`.
    pub(crate) fn fold<'a>(
        &self,
        key: &[u8],
        base: Option<&[u8]>,
        operands: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Vec<u8>> {
        let operator = self.known()?;
        let failed = |why: &str| {
            let (key, name) = (key.escape_ascii(), operator.name());
            Error::merge(format!("the merge operator {name:?} fails on key \"{key}\": {why}"))
        };
        let mut value = base.map(<[u8]>::to_vec);
        for operand in operands {
            let merged = run(|| operator.merge(key, value.as_deref(), operand));
            let merged = merged.map_err(|_| failed("it panics"))?.map_err(|why| failed(&why))?;
            if merged.len() > MAX_VALUE_LEN {
                let len = merged.len();
                let why = format!("a value of {len} bytes; the limit is {MAX_VALUE_LEN}");
                return Err(failed(&why));
            }
            value = Some(merged);
        }
        debug_assert!(value.is_some(), "a chain has an operand");
        Ok(value.unwrap_or_default())
    }

    /// The value that `versions` of a key make, records of operands, the newest first, over what
    /// `base` gives. It is asked only if none of them has a base of its own.
    pub(crate) fn resolve(
        &self,
        key: &[u8],
        versions: &[Bytes],
        below: Option<&[u8]>,
    ) -> Result<Vec<u8>> {
        let chains = versions.iter().map(|version| operand_list(key, version));
        let chains = chains.collect::<Result<Vec<OperandList<'_>>>>()?;
        debug_assert!(
            chains.iter().rev().skip(1).all(OperandList::is_open),
            "versions are collected up to the first that has a base"
        );
        let base = match chains.last().map(|chain| chain.base) {
            Some(ChainBase::None) => None,
            Some(ChainBase::Value(value)) => Some(value),
            Some(ChainBase::Below) | None => below,
        };
        self.fold(key, base, chains.iter().rev().flat_map(|chain| chain.operands()))
    }
}

/// The operands of a record.
pub(crate) fn operand_list<'a>(key: &[u8], value: &'a [u8]) -> Result<OperandList<'a>> {
    OperandList::decode(value).ok_or_else(|| {
        let key = key.escape_ascii();
        let message = format!("the operands of key \"{key}\" do not decode; run `terrace verify`");
        Error::new(ErrorKind::Corrupt, message)
    })
}

/// The name of a merge operator.
pub(crate) type OperatorName = Name<31>;

impl OperatorName {
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_valid() {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "the name of a merge operator, {:?}: it takes 1 to {} bytes",
            self.as_str(),
            OperatorName::MOST
        )))
    }
}

#[cfg(test)]
mod tests;
