//! Little-endian encoding helpers. Decoding never panics and never reads past its input.

/// Appends a `u32`.
pub(crate) fn put_u32(out: &mut Vec<u8>, n: u32) {
    out.extend_from_slice(&n.to_le_bytes());
}

/// Appends a `u64`.
pub(crate) fn put_u64(out: &mut Vec<u8>, n: u64) {
    out.extend_from_slice(&n.to_le_bytes());
}

/// Appends a `u32` length and the bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    debug_assert!(u32::try_from(bytes.len()).is_ok(), "limits keep every length in 32 bits");
    put_u32(out, bytes.len() as u32);
    out.extend_from_slice(bytes);
}

/// The value of a range delete that ends before `end`: whether there is an end, and the end.
pub(crate) fn encode_end(end: Option<&[u8]>) -> Vec<u8> {
    [&[u8::from(end.is_some())], end.unwrap_or_default()].concat()
}

/// The end in the value of a range delete that starts at `start`; `None` if it is no such value.
pub(crate) fn decode_end<'a>(start: &[u8], value: &'a [u8]) -> Option<Option<&'a [u8]>> {
    match value.split_first()? {
        (0, []) => Some(None),
        (1, end) if start < end => Some(Some(end)),
        _ => None,
    }
}

/// Reads fields in order; `None` once the input is too short.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader over all of `bytes`.
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// The next `n` bytes.
    pub(crate) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(n)?;
        self.rest = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// The next byte.
    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[b]| b)
    }

    /// The next byte as what it says: 0 or 1.
    pub(crate) fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// The next `u16`.
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// The next `u32`.
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next `u64`.
    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A `u32` length and as many bytes.
    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let n = self.u32()?;
        self.take(usize::try_from(n).ok()?)
    }

    /// All that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Whether everything was read.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}
