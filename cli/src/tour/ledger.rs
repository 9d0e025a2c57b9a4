//! What the child tells the parent: lines of fixed size through a pipe, and later a file.
//!
//! ```text
//! at  bytes  field
//!  0      4  kind: 1 acknowledged, 2 commit statistics
//!  4      4  thread           | 0
//!  8      8  sequence         | commit groups so far
//! 16      8  hash             | syncs so far
//! ```
//!
//! A line is written with one call, which for a pipe is all or nothing (it is far below
//! `PIPE_BUF`), so lines of several threads never mix and a killed child leaves no half line.

use std::io::{self, Read, Write};

use super::batch::Stamp;

const SIZE: usize = 24;
const ACKNOWLEDGED: u32 = 1;
const STATISTICS: u32 = 2;

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A commit returned.
    Acknowledged {
        /// Which batch.
        stamp: Stamp,
        /// What was in it.
        hash: u64,
    },
    /// What the engine has counted so far.
    Statistics {
        /// Commit groups.
        groups: u64,
        /// Syncs that made them durable.
        syncs: u64,
    },
}

impl Line {
    fn encode(self) -> [u8; SIZE] {
        let (kind, thread, a, b) = match self {
            Line::Acknowledged { stamp, hash } => {
                (ACKNOWLEDGED, stamp.thread, stamp.sequence, hash)
            }
            Line::Statistics { groups, syncs } => (STATISTICS, 0, groups, syncs),
        };
        let mut bytes = [0; SIZE];
        bytes[0..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&thread.to_le_bytes());
        bytes[8..16].copy_from_slice(&a.to_le_bytes());
        bytes[16..24].copy_from_slice(&b.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; SIZE]) -> Option<Line> {
        let [k0, k1, k2, k3, t0, t1, t2, t3, rest @ ..] = *bytes;
        let (a, b) = rest.split_at(8);
        let (a, b) = (read_u64(a)?, read_u64(b)?);
        match u32::from_le_bytes([k0, k1, k2, k3]) {
            ACKNOWLEDGED => {
                let stamp = Stamp { thread: u32::from_le_bytes([t0, t1, t2, t3]), sequence: a };
                Some(Line::Acknowledged { stamp, hash: b })
            }
            STATISTICS => Some(Line::Statistics { groups: a, syncs: b }),
            _ => None,
        }
    }

    /// Writes the line with one call.
    pub(crate) fn write(self, mut out: impl Write) -> io::Result<()> {
        match out.write(&self.encode())? {
            SIZE => Ok(()),
            written => Err(io::Error::other(format!("{written} of {SIZE} bytes written"))),
        }
    }

    /// Reads a line; `None` at the end.
    pub(crate) fn read(mut from: impl Read) -> io::Result<Option<Line>> {
        let mut bytes = [0; SIZE];
        let mut have = 0;
        while have < SIZE {
            match from.read(&mut bytes[have..]) {
                Ok(0) if have == 0 => return Ok(None),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => have += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let line = Line::decode(&bytes);
        line.map(Some).ok_or_else(|| io::Error::other("a line of an unknown kind"))
    }
}

fn read_u64(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_both_ways() {
        let lines = [
            Line::Acknowledged { stamp: Stamp { thread: 259, sequence: 7 }, hash: u64::MAX },
            Line::Statistics { groups: 5, syncs: 2 },
        ];
        let mut pipe = Vec::new();
        for line in lines {
            line.write(&mut pipe).unwrap();
        }
        let mut pipe = &pipe[..];
        assert_eq!(Line::read(&mut pipe).unwrap(), Some(lines[0]));
        assert_eq!(Line::read(&mut pipe).unwrap(), Some(lines[1]));
        assert_eq!(Line::read(&mut pipe).unwrap(), None);
    }

    #[test]
    fn half_a_line_is_an_error() {
        assert!(Line::read(&[1, 0, 0][..]).is_err());
    }
}
