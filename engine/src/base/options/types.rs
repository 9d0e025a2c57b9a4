//! The names of the types of a typed table, as its options store them.

use super::TableOptions;
#[cfg(feature = "typed")]
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::name::Name;

/// The name of a type.
type TypeText = Name<47>;

/// Names of the key's type and of the value's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TypeNames {
    key: TypeText,
    value: TypeText,
}

impl TypeNames {
    /// # Errors
    ///
    /// `TooLarge` for a name that is too long.
    #[cfg(feature = "typed")]
    pub(crate) fn new(key: &str, value: &str) -> Result<TypeNames> {
        let names = TypeNames { key: Name::new(key), value: Name::new(value) };
        for (name, given) in [(names.key, key), (names.value, value)] {
            if !name.is_valid() {
                let message = format!(
                    "{given:?} is the name of a type of a table: it takes 1 to {} bytes, not {}; \
                     give the type a shorter name, or a struct of its own",
                    TypeText::MOST,
                    given.len()
                );
                return Err(Error::new(ErrorKind::TooLarge, message));
            }
        }
        Ok(names)
    }

    /// Fails if the table `name` has other types than these, which it is opened with.
    #[cfg(feature = "typed")]
    pub(crate) fn check_same(&self, name: &str, stored: &TypeNames) -> Result<()> {
        if self == stored {
            return Ok(());
        }
        let text = |it: &TypeNames| format!("keys {} and values {}", it.key(), it.value());
        let (asked, stored) = (text(self), text(stored));
        Err(Error::new(
            ErrorKind::WrongType,
            format!(
                "table {name:?} has {stored}, and is opened with {asked}: open it with the types \
                 that it has; for others copy its rows into another table, or read its bytes \
                 without types"
            ),
        ))
    }

    pub(crate) fn key(&self) -> &str {
        self.key.as_str()
    }

    pub(crate) fn value(&self) -> &str {
        self.value.as_str()
    }

    /// The bytes of `docs/format.md`: the length of the first name, and both.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (key, value) = (self.key(), self.value());
        [&[key.len() as u8], key.as_bytes(), value.as_bytes()].concat()
    }

    /// Names from their bytes; `None` if they are none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<TypeNames> {
        let (len, names) = bytes.split_first()?;
        let (key, value) = names.split_at_checked(usize::from(*len))?;
        Some(TypeNames { key: Name::decode(key)?, value: Name::decode(value)? })
    }
}

impl TableOptions {
    /// The names of the types of the keys and of the values, if the table was opened with types.
    /// A change of the table's options keeps them.
    pub fn type_names(&self) -> Option<(&str, &str)> {
        self.types.as_ref().map(|types| (types.key(), types.value()))
    }
}
