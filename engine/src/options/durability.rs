//! How durable a commit is.

/// How far a commit has gone when the call that made it returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// It survives a power cut. The default.
    #[default]
    Durable,
    /// It survives the death of the process, not a power cut. Commits keep their order: what a
    /// power cut takes is always the newest.
    Relaxed,
    /// It survives the machine: the shared store has acknowledged it, see
    /// [`Options::share`](crate::Options::share). It is `Durable` before. All commits that wait
    /// share one request, at most each 100 ms.
    ///
    /// A commit that was overtaken fails with [`ErrorKind::Fenced`](crate::ErrorKind::Fenced), and
    /// one whose database is closed meanwhile with `UnknownOutcome`. It stays on this machine. So
    /// it does where this machine cannot ship it, as with a disk that fails: once that was tried
    /// three times, the call fails with `UnknownOutcome` and the cause. Shipping is tried on, and
    /// has the commit once the cause is mended. A store that does not answer, or a full disk, is
    /// waited for.
    Remote,
}

impl Durability {
    /// What of it the machine itself gives.
    pub(crate) fn on_this_machine(self) -> Durability {
        match self {
            Durability::Relaxed => Durability::Relaxed,
            Durability::Durable | Durability::Remote => Durability::Durable,
        }
    }

    /// The same for a commit that cannot be relaxed.
    pub(crate) fn at_least_durable(self) -> Durability {
        match self {
            Durability::Remote => Durability::Remote,
            Durability::Durable | Durability::Relaxed => Durability::Durable,
        }
    }
}
