//! The fence as the last opening on this machine left it: a file in the database's directory. With
//! it one request takes the fence. It is a hint: the store compares the tag, so an old or torn file
//! costs requests and nothing else. It is not synced.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::client::TaggedValue;
use super::fence::{Fence, PlacedFence};
use super::store::Tag;
use crate::base::record::{Reader, Sealable, checksum, put_bytes, put_u32};
use crate::os::{Files, Gate, OpenHow};

/// The file's name.
pub(super) const NAME: &str = "object-fence";
const MAGIC: &[u8; 8] = b"TERRKNOW";
/// Magic, checksum, and the length of what follows.
const HEAD: usize = 16;
/// A fence and a tag have fewer bytes.
const MOST: u32 = 4096;

/// Where the fence is remembered.
#[derive(Debug)]
pub(crate) struct KnownFence {
    files: Arc<dyn Files>,
    gate: Arc<Gate>,
    path: PathBuf,
}

impl KnownFence {
    pub(crate) fn new(files: Arc<dyn Files>, gate: Arc<Gate>, directory: &Path) -> KnownFence {
        KnownFence { files, gate, path: directory.join(NAME) }
    }

    /// What the last opening wrote, if it checks out.
    pub(crate) fn load(&self) -> Option<PlacedFence> {
        let file = self.files.open(&self.path, OpenHow::Read).ok()?;
        let head = file.read_vec(0, HEAD).ok()?;
        let mut reader = Reader::new(head.strip_prefix(MAGIC)?);
        let (sum, len) = (reader.u32()?, reader.u32()?);
        let body = file.read_vec(HEAD as u64, (len <= MOST).then_some(len)? as usize).ok()?;
        (sum == checksum(&[], &body)).then(|| decode(&body))?
    }

    /// Remembers a fence. What cannot be written is not remembered.
    pub(crate) fn keep(&self, placed: &PlacedFence) {
        if let Ok(_inside) = self.gate.enter_step() {
            self.write(placed).unwrap_or(());
        }
    }

    fn write(&self, placed: &PlacedFence) -> io::Result<()> {
        let body = encode(placed);
        let mut bytes = MAGIC.to_vec();
        put_u32(&mut bytes, checksum(&[], &body));
        put_u32(&mut bytes, body.len() as u32);
        bytes.extend_from_slice(&body);
        let file = match self.files.open(&self.path, OpenHow::Write) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.files.open(&self.path, OpenHow::CreateNew)?
            }
            opened => opened?,
        };
        file.try_write_all_at(&bytes, 0)
    }
}

pub(super) fn encode(placed: &PlacedFence) -> Vec<u8> {
    let mut body = Vec::new();
    put_bytes(&mut body, &placed.value.encode());
    for part in [&placed.tag.entity, &placed.tag.version] {
        body.push(u8::from(part.is_some()));
        put_bytes(&mut body, part.as_deref().unwrap_or_default().as_bytes());
    }
    body
}

pub(super) fn decode(body: &[u8]) -> Option<PlacedFence> {
    let mut reader = Reader::new(body);
    let fence = Fence::decode(reader.bytes()?).ok()?;
    let mut part = || {
        let is_there = reader.u8()? == 1;
        let text = String::from_utf8(reader.bytes()?.to_vec()).ok()?;
        Some(is_there.then_some(text))
    };
    let tag = Tag { entity: part()?, version: part()? };
    Some(TaggedValue { value: fence, tag })
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_testkit::SimFiles;

    #[test]
    fn what_is_kept_is_found_and_a_torn_file_is_not_believed() {
        let files = SimFiles::new();
        let known = KnownFence::new(Arc::clone(&files) as _, Arc::default(), Path::new("/db"));
        assert_eq!(known.load(), None);
        for (epoch, version) in [(7, None), (8, Some("v".to_string()))] {
            let owner = "x".repeat(20 - epoch as usize);
            let fence = Fence { epoch, incarnation: 7, nonce: [3; 16], owner };
            let tag = Tag { entity: Some("e".to_string()), version };
            let placed = TaggedValue { value: fence, tag };
            known.keep(&placed);
            assert_eq!(known.load(), Some(placed));
        }
        files.corrupt(Path::new("/db/object-fence"), 30, 1);
        assert_eq!(known.load(), None);
    }
}
