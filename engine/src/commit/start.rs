//! What an opening has found, from which commits go on.

use super::floor::{Floor, Gidx};
use super::turnstile::StreamTail;
use crate::record::Lsn;

/// Where an opening starts from.
#[derive(Debug)]
pub(crate) struct Start {
    /// Every LSN up to here is decided.
    pub(crate) last: Lsn,
    pub(crate) incarnation: u64,
    pub(crate) floor: Floor,
    pub(crate) streams: Vec<StreamTail>,
    /// Where each stream's committed records end.
    pub(crate) gidx: Vec<Option<Gidx>>,
    /// The cleaner's stream.
    pub(crate) cleaner: Option<u32>,
    /// Whether groups are shipped to a shared store.
    pub(crate) feeds: bool,
}
