//! How blocks are compressed.

/// How blocks of extents are compressed. Each block says how it is, so the choice can differ from
/// opening to opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// Not at all.
    None,
    /// lz4: a fast way to a little.
    Lz4,
    /// zstd at its fastest level: about as small as its slower ones on blocks of 16 KiB.
    Zstd,
}

impl Compression {
    /// The names, in the order of the variants, and of the numbers of `docs/format.md`.
    pub(crate) const NAMES: [(&'static str, Compression); 3] =
        [("none", Compression::None), ("lz4", Compression::Lz4), ("zstd", Compression::Zstd)];

    /// The name, in lower-case letters: `none`, `lz4` or `zstd`.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }
}
