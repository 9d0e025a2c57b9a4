//! Every decoder of bytes from a medium behind one door: what fuzzing (`fuzz/`) and the replay of
//! its corpora (`engine/tests/suite/corpora.rs`) run.
//!
//! A decoder is given the bytes as they are, and once more with the checksums in them made right:
//! a fuzzer does not guess checksums, and what lies behind them must not trust them either. It
//! must not panic, and must not take memory by a length that it did not check; what it accepts it
//! must read the same after encoding it again.

mod memory;

use crate::backup::dump_probe as dump;
use crate::engine::history_probe as history;
use crate::level0::probe as row_table;
use crate::replication::log::probe::entry as shared_entry;
use crate::sstable::probe as extent;
use crate::storage::object_probe as object;
use crate::txn::probe as txn;
use crate::version::{manifest_probe as manifest, probe as journal};

/// Takes any bytes; whether they were accepted.
type Decoder = fn(&[u8]) -> bool;

/// All of them, by the name of their target and corpus.
const DECODERS: [(&str, Decoder); 30] = [
    ("superblock", memory::superblock),
    ("floor", memory::floor),
    ("words", memory::words),
    ("stream-object", memory::stream_object),
    ("zone-header", memory::zone_header),
    ("sub-entry", memory::sub_entry),
    ("records", memory::records),
    ("zone", memory::zone),
    ("row-table", row_table),
    ("marker", memory::marker),
    ("table-event", memory::table_event),
    ("lock", txn::lock),
    ("segment", memory::segment),
    ("tree", memory::tree),
    ("index-seal", memory::index_seal),
    ("journal", journal::journal),
    ("edit", journal::edit),
    ("manifest", backups),
    ("footer", extent::footer),
    ("filter", extent::filter),
    ("index", extent::index),
    ("ranges", extent::ranges),
    ("block", extent::block),
    ("extent", extent::extent),
    ("values", extent::values),
    ("fence", object::fence),
    ("object-tail", object::tail_header),
    ("shared-entry", shared_entry),
    ("dump", dump),
    ("history", history),
];

/// Manifests of backups, and the head of a set in an object store.
fn backups(bytes: &[u8]) -> bool {
    let is_head = crate::backup::head_probe(bytes);
    manifest(bytes) || is_head
}

/// The names of all decoders.
pub fn names() -> impl Iterator<Item = &'static str> {
    DECODERS.into_iter().map(|(name, _)| name)
}

/// Gives `bytes` to the decoder of this name; whether it accepted them, as they were or with their
/// checksums made right. `false` for a name that no decoder has.
///
/// # Panics
///
/// When the decoder has a bug.
pub fn run(name: &str, bytes: &[u8]) -> bool {
    let decoder = DECODERS.into_iter().find(|(known, _)| *known == name);
    decoder.is_some_and(|(_, decode)| decode(bytes))
}
