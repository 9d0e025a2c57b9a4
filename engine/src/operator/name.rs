//! Names of merge operators.

use crate::error::{Error, Result};

/// The longest name, in bytes.
const MOST: usize = 31;

/// The name of a merge operator, in place. One that is too long keeps its first bytes and fails
/// its check.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct OperatorName {
    len: u8,
    bytes: [u8; MOST],
}

impl OperatorName {
    /// A name that is not checked yet.
    pub(crate) fn new(name: &str) -> OperatorName {
        let mut end = name.len().min(MOST);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        let mut bytes = [0; MOST];
        bytes[..end].copy_from_slice(&name.as_bytes()[..end]);
        let len = if end < name.len() { u8::MAX } else { end as u8 };
        OperatorName { len, bytes }
    }

    /// The name; of one that is too long its first bytes.
    pub(crate) fn as_str(&self) -> &str {
        let len = usize::from(self.len).min(MOST);
        let longest = std::str::from_utf8(&self.bytes[..len]);
        longest.unwrap_or_else(|e| {
            std::str::from_utf8(&self.bytes[..e.valid_up_to()]).unwrap_or_default()
        })
    }

    /// # Errors
    ///
    /// `Invalid` for a name that is empty or too long.
    pub(crate) fn check(&self) -> Result<()> {
        match usize::from(self.len) {
            1..=MOST => Ok(()),
            _ => Err(Error::invalid(format!(
                "the name of a merge operator, {:?}: it takes 1 to {MOST} bytes",
                self.as_str()
            ))),
        }
    }

    /// A name from its bytes; `None` if they are none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<OperatorName> {
        let name = OperatorName::new(std::str::from_utf8(bytes).ok()?);
        name.check().ok().map(|()| name)
    }
}

impl std::fmt::Debug for OperatorName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_str().fmt(f)
    }
}
