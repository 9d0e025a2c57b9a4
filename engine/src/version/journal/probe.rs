//! What `decoders` tries on journals: a whole file, and the operations of one edit.

use std::path::Path;
use std::sync::Arc;

use super::bytes::{Frame, Header, encode_edit, scan};
use crate::base::record::{Sealable, mended};
use crate::sstable::ExtentMeta;
use crate::version::edit::Edit;
use crate::version::state::State;

/// A whole journal, all checksums in it made right: read as an opening and as a salvage does, and
/// applied.
pub(crate) fn journal(bytes: &[u8]) -> bool {
    let path = Path::new("journal");
    drop(Header::of(bytes).map(|header| scan(path, bytes, &header, u64::MAX)));
    let file = mended_journal(bytes);
    let Ok(header) = Header::of(&file) else { return false };
    assert_eq!(Header::of(&header.encode()), Ok(header));
    drop(scan(path, &file, &header, u64::MAX));
    let found = scan(path, &file, &header, 0);
    assert!(found.end <= file.len());
    if !found.doubts.is_empty() {
        return false;
    }
    let edits = found.edits;
    let mut state = State::<Arc<ExtentMeta>>::default();
    for found in &edits {
        let again = encode_edit(header.epoch, found.number, found.lsn, &found.edit);
        let again = again.and_then(|bytes| Frame::decode(&bytes, header.epoch).ok().map(|f| f.len));
        assert!(again.is_some(), "an edit that was read can be written");
        match state.apply(&found.edit) {
            Ok(applied) => state = applied.state,
            Err(_) => return false,
        }
    }
    let made = State::default().apply(&state.checkpoint());
    assert!(made.is_ok_and(|made| made.state.checkpoint() == state.checkpoint()));
    !edits.is_empty()
}

/// A journal with every checksum right, as far as its edits follow each other.
fn mended_journal(bytes: &[u8]) -> Vec<u8> {
    let field = |bytes: &[u8], at: usize| {
        let word = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>());
        word.map_or(0, |word| u64::from_le_bytes(*word))
    };
    let mut file = mended(bytes, 12, (16, 64), &[field(bytes, 8) & u64::from(u32::MAX)]);
    let epoch = field(&file, 32);
    let mut at = 64;
    while at + 40 <= file.len() {
        let edit = &file[at..];
        let len = (40 + (field(edit, 24) as u32 as usize)).next_multiple_of(8);
        let edit = mended(edit, 4, (8, len), &[epoch, field(edit, 8)]);
        file.splice(at.., edit);
        at += len;
    }
    file
}

/// The number of operations as a byte, and their bytes.
pub(crate) fn edit(bytes: &[u8]) -> bool {
    let Some((&count, payload)) = bytes.split_first() else { return false };
    let decoded = Edit::decode(payload, u32::from(count));
    if let Some(edit) = &decoded {
        assert_eq!(edit.encode(), payload, "no byte of an edit is ignored");
        drop(State::default().apply(edit));
    }
    decoded.is_some()
}
