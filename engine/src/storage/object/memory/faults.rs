//! What may become of a request to the store in memory.

use super::FailureKind;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RequestKind {
    /// Writes an object.
    Put,
    /// Reads an object or a part of it.
    Get,
    /// Looks at an object.
    Head,
    /// Deletes objects.
    Delete,
    /// Lists objects.
    List,
}

/// A request that came to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Requested {
    /// Its number, from 1.
    pub(crate) number: u64,
    /// Who sent it.
    pub(crate) client: u64,
    /// What it asks for.
    pub(crate) kind: RequestKind,
    /// The object, the first of several, or the prefix of a list.
    pub(crate) name: String,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It does not arrive.
    LoseRequest,
    /// It is served, and its answer does not arrive.
    LoseAnswer,
    /// A change is made that many requests later; the caller hears of no answer.
    Delay(u64),
    /// A change is made now, and once more that many requests later.
    Repeat(u64),
    /// It is not served and fails so.
    Fail(FailureKind),
    /// A list is as of that many requests ago.
    Stale(u64),
    /// A read is answered when [`release`](super::MemoryServer::release) is called.
    Hold,
    /// The machine loses its power before the request leaves.
    CutBefore,
    /// The machine loses its power once the request is served.
    CutAfter,
}
