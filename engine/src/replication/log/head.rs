//! The head: where a search in the log begins, and which entries are still kept. A register that
//! only moves up.

use crate::record::{Reader, Sealable, put_u64};

/// What it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogHead {
    /// Entries from here on are kept; below it only claims are. 1 as long as there is no head.
    pub(crate) oldest: u64,
    /// A checkpoint that is kept.
    pub(crate) checkpoint: u64,
}

impl Sealable for LogHead {
    const MAGIC: &'static [u8; 8] = b"TERRHEAD";
    const WHAT: &'static str = "head of the log";

    fn encode_rest(&self, out: &mut Vec<u8>) {
        put_u64(out, self.oldest);
        put_u64(out, self.checkpoint);
    }

    fn decode_rest(reader: &mut Reader<'_>) -> Option<LogHead> {
        let head = LogHead { oldest: reader.u64()?, checkpoint: reader.u64()? };
        (1..=head.checkpoint).contains(&head.oldest).then_some(head)
    }
}
