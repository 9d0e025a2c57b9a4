//! Table events: create, drop, rename and truncate as records of the ring.
//!
//! An event is decided by its commit; the journal follows. The journal keeps the LSN of the last
//! event it contains, and an opening applies those it finds beyond (`docs/commit.md`).

use crate::levels::{Edit, Op, VersionSet};
use crate::record::{Lsn, Reader, TableId, put_bytes, put_u32};

/// What happens to a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Create { table: TableId, name: String },
    Drop { table: TableId },
    Rename { table: TableId, name: String },
    Truncate { table: TableId, new: TableId, name: String },
}

impl Event {
    /// The key and value of the event's record.
    pub(crate) fn encode(&self) -> (Vec<u8>, Vec<u8>) {
        let (operation, table, new, name) = match self {
            Event::Create { table, name } => (1, *table, 0, name.as_str()),
            Event::Drop { table } => (2, *table, 0, ""),
            Event::Rename { table, name } => (3, *table, 0, name.as_str()),
            Event::Truncate { table, new, name } => (4, *table, *new, name.as_str()),
        };
        let mut value = Vec::new();
        put_u32(&mut value, table);
        put_u32(&mut value, new);
        put_bytes(&mut value, name.as_bytes());
        (vec![operation], value)
    }

    /// The event in a record; `None` if it is none.
    pub(crate) fn decode(key: &[u8], value: &[u8]) -> Option<Event> {
        let mut r = Reader::new(value);
        let (table, new) = (r.u32()?, r.u32()?);
        let name = String::from_utf8(r.bytes()?.to_vec()).ok()?;
        match (key, r.is_empty()) {
            ([1], true) => Some(Event::Create { table, name }),
            ([2], true) => Some(Event::Drop { table }),
            ([3], true) => Some(Event::Rename { table, name }),
            ([4], true) => Some(Event::Truncate { table, new, name }),
            _ => None,
        }
    }

    /// The edit that brings the journal up to the event.
    pub(crate) fn edit(&self, lsn: Lsn) -> Edit {
        let mut ops = match self.clone() {
            Event::Create { table, name } => {
                vec![Op::CreateTable { table, created_lsn: lsn, name }]
            }
            Event::Drop { table } => vec![Op::DropTable { table }],
            Event::Rename { table, name } => vec![Op::RenameTable { table, name }],
            Event::Truncate { table, new, name } => vec![
                Op::DropTable { table },
                Op::CreateTable { table: new, created_lsn: lsn, name },
            ],
        };
        ops.push(Op::Counters { next_table: 0, next_extent: 0, table_event_lsn: lsn });
        Edit { ops }
    }

    /// Whether the journal lacks it.
    pub(crate) fn is_news_to(set: &VersionSet, lsn: Lsn) -> bool {
        lsn > set.table_event_lsn()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_round_trip() {
        for event in [
            Event::Create { table: 3, name: "a".into() },
            Event::Drop { table: 3 },
            Event::Rename { table: 3, name: "b".into() },
            Event::Truncate { table: 3, new: 4, name: "b".into() },
        ] {
            let (key, value) = event.encode();
            assert_eq!(Event::decode(&key, &value), Some(event));
            assert_eq!(Event::decode(&key, &value[..value.len() - 1]), None);
        }
    }
}
