//! Names that are stored in place: of merge operators, and of types.

/// A name of at most `MOST` bytes, in place. One that is too long keeps its first bytes and is not
/// valid.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name<const MOST: usize> {
    len: u8,
    bytes: [u8; MOST],
}

impl<const MOST: usize> Name<MOST> {
    /// Bytes of the longest one.
    pub(crate) const MOST: usize = MOST;

    /// A name that is not checked yet.
    pub(crate) fn new(name: &str) -> Self {
        let mut end = name.len().min(MOST);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        let mut bytes = [0; MOST];
        bytes[..end].copy_from_slice(&name.as_bytes()[..end]);
        let len = if end < name.len() { u8::MAX } else { end as u8 };
        Name { len, bytes }
    }

    /// The name; of one that is too long its first bytes.
    pub(crate) fn as_str(&self) -> &str {
        let len = usize::from(self.len).min(MOST);
        let longest = std::str::from_utf8(&self.bytes[..len]);
        longest.unwrap_or_else(|e| {
            std::str::from_utf8(&self.bytes[..e.valid_up_to()]).unwrap_or_default()
        })
    }

    /// Whether it has 1 to `MOST` bytes.
    pub(crate) fn is_valid(&self) -> bool {
        (1..=MOST).contains(&usize::from(self.len))
    }

    /// A name from its bytes; `None` if they are none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Name::new(std::str::from_utf8(bytes).ok()?)).filter(Name::is_valid)
    }
}

impl<const MOST: usize> std::fmt::Debug for Name<MOST> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_str().fmt(f)
    }
}
