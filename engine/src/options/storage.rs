//! Where a database is, and which call makes it.

/// The call that makes a database. Its number is on the media.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Making {
    /// An opening, of a database without a row.
    #[default]
    Creation,
    Restore,
    Salvage,
    Takeover,
}

/// Where a database keeps what it keeps.
#[derive(Clone, Debug)]
pub(crate) enum Storage {
    /// Files of this machine; the region in `file` mode.
    Real,
    /// A simulated machine.
    #[cfg(any(test, feature = "testing"))]
    Simulated(terrace_testkit::Machine),
}
