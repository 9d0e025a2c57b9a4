//! Registers: small objects that say one thing, and that are replaced by compare-and-swap.
//!
//! A list of objects may be old; a read of one object is never old. So what all have to agree on is
//! in a register.

use super::client::Client;
use super::store::{FailureKind, PutWhen, Span, Tag};
use crate::base::error::Result;
use crate::base::record::Sealable;

/// What a register says, with the tag of that writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TaggedValue<T> {
    pub(crate) value: T,
    pub(crate) tag: Tag,
}

impl Client {
    /// What the register `name` says; `None` if there is none.
    ///
    /// # Errors
    ///
    /// `Invalid` if it is of another format; `Corrupt`; `Unavailable` if the store does not
    /// answer.
    pub(crate) fn read_register<T: Sealable>(&self, name: &str) -> Result<Option<TaggedValue<T>>> {
        let got = match self.get(name, Span::Whole) {
            Err(failure) if failure.kind == FailureKind::Missing => return Ok(None),
            got => self.told(&format!("read the {} in", T::WHAT), name, got)?,
        };
        match T::decode(&got.bytes) {
            Ok(value) => Ok(Some(TaggedValue { value, tag: got.tag })),
            Err(refused) => Err(refused
                .error(T::WHAT, "object", format!("{}/{name}", self.address()))
                .of_store()),
        }
    }

    /// Puts a register over the one that was found with a tag, or where there was none: its tag;
    /// `None` if it has changed since. An attempt of this call may have done that, of which the
    /// answer was lost.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the store does not answer: it may have been done.
    pub(crate) fn replace_register<T: Sealable>(
        &self,
        name: &str,
        to: &T,
        before: Option<Tag>,
    ) -> Result<Option<Tag>> {
        let when = before.map_or(PutWhen::Absent, PutWhen::Tagged);
        match self.put(name, &to.encode().into(), &when) {
            Ok(tag) => Ok(Some(tag)),
            Err(failure) if failure.kind == FailureKind::Changed => Ok(None),
            Err(failure) => Err(self.error(&format!("write the {} in", T::WHAT), name, failure)),
        }
    }
}
