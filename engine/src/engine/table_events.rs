//! Table events: create, drop, rename, truncate and a change of options, as records of the ring.
//!
//! An event is decided by its commit; the journal follows. The journal keeps the LSN of the last
//! event it contains, and an opening applies those it finds beyond (`docs/commit.md`).

use std::collections::BTreeMap;

use crate::base::options::TableOptions;
use crate::base::record::{Lsn, Reader, TableId, put_bytes, put_u32, put_u64};
use crate::version::{Edit, Op, VersionSet};

/// What happens to a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TableEvent {
    Create {
        table: TableId,
        name: String,
        options: TableOptions,
    },
    Drop {
        table: TableId,
        name: String,
    },
    Rename {
        table: TableId,
        name: String,
        before: String,
    },
    Truncate {
        table: TableId,
        new: TableId,
        name: String,
        options: TableOptions,
    },
    /// All up to `expired` had expired by the options before.
    Options {
        table: TableId,
        options: TableOptions,
        expired: Lsn,
    },
}

impl TableEvent {
    /// The key and value of the event's record.
    pub(crate) fn encode(&self) -> (Vec<u8>, Vec<u8>) {
        let (operation, table, new, name) = match self {
            TableEvent::Create { table, name, .. } => (1, *table, 0, name.as_str()),
            TableEvent::Drop { table, name } => (2, *table, 0, name.as_str()),
            TableEvent::Rename { table, name, .. } => (3, *table, 0, name.as_str()),
            TableEvent::Truncate { table, new, name, .. } => (4, *table, *new, name.as_str()),
            TableEvent::Options { table, .. } => (5, *table, 0, ""),
        };
        let mut value = Vec::new();
        put_u32(&mut value, table);
        put_u32(&mut value, new);
        put_bytes(&mut value, name.as_bytes());
        match self {
            TableEvent::Create { options, .. } | TableEvent::Truncate { options, .. }
                if *options != TableOptions::new() =>
            {
                options.encode(&mut value);
            }
            TableEvent::Options { options, expired, .. } => {
                put_u64(&mut value, *expired);
                options.encode(&mut value);
            }
            TableEvent::Rename { before, .. } if !before.is_empty() => {
                put_bytes(&mut value, before.as_bytes());
            }
            _ => {}
        }
        (vec![operation], value)
    }

    /// The event in a record; `None` if it is none.
    pub(crate) fn decode(key: &[u8], value: &[u8]) -> Option<TableEvent> {
        let mut r = Reader::new(value);
        let (table, new) = (r.u32()?, r.u32()?);
        let name = r.bytes()?;
        let rest = &value[12 + name.len()..];
        let name = String::from_utf8(name.to_vec()).ok()?;
        let options = || match rest {
            [] => Some(TableOptions::new()),
            fields => TableOptions::decode(fields),
        };
        match (key, rest) {
            ([1], _) => Some(TableEvent::Create { table, name, options: options()? }),
            ([2], []) => Some(TableEvent::Drop { table, name }),
            ([3], _) => {
                let before = if rest.is_empty() { &[] } else { r.bytes()? };
                let is_all = rest.is_empty() || rest.len() == 4 + before.len();
                let before = String::from_utf8(before.to_vec()).ok()?;
                is_all.then_some(TableEvent::Rename { table, name, before })
            }
            ([4], _) => Some(TableEvent::Truncate { table, new, name, options: options()? }),
            ([5], _) => {
                let (expired, fields) = rest.split_first_chunk()?;
                let (expired, options) =
                    (u64::from_le_bytes(*expired), TableOptions::decode(fields)?);
                let is_plain = new == 0 && name.is_empty();
                is_plain.then_some(TableEvent::Options { table, options, expired })
            }
            _ => None,
        }
    }

    /// The edit that brings the journal up to the event.
    pub(crate) fn edit<E>(&self, lsn: Lsn) -> Edit<E> {
        let create = |table, name, options| {
            let create = Op::CreateTable { table, created_lsn: lsn, name };
            let others = options != TableOptions::new();
            let options = others.then_some(Op::TableOptions { table, options });
            std::iter::once(create).chain(options)
        };
        let mut ops: Vec<Op<E>> = match self.clone() {
            TableEvent::Create { table, name, options } => create(table, name, options).collect(),
            TableEvent::Drop { table, .. } => vec![Op::DropTable { table }],
            TableEvent::Rename { table, name, .. } => vec![Op::RenameTable { table, name }],
            TableEvent::Truncate { table, new, name, options } => {
                let drop = std::iter::once(Op::DropTable { table });
                drop.chain(create(new, name, options)).collect()
            }
            TableEvent::Options { table, options, expired } => {
                let ttl = options.ttl_micros().unwrap_or(0);
                let options = Op::TableOptions { table, options };
                vec![options, Op::TimeToLive { table, ttl, expired }]
            }
        };
        ops.push(Op::Counters { next_table: 0, next_extent: 0, table_event_lsn: lsn });
        Edit { ops }
    }

    /// Makes of names behind the event those before it. Whether it says enough for that: events of
    /// earlier versions do not.
    pub(crate) fn undo(&self, names: &mut BTreeMap<TableId, String>) -> bool {
        match self {
            TableEvent::Create { table, .. } => _ = names.remove(table),
            TableEvent::Drop { name, .. } | TableEvent::Rename { before: name, .. }
                if name.is_empty() =>
            {
                return false;
            }
            TableEvent::Drop { table, name } | TableEvent::Rename { table, before: name, .. } => {
                names.insert(*table, name.clone());
            }
            TableEvent::Truncate { table, new, name, .. } => {
                names.remove(new);
                names.insert(*table, name.clone());
            }
            TableEvent::Options { .. } => {}
        }
        true
    }

    /// Makes of names before the event those behind it.
    pub(crate) fn redo(&self, names: &mut BTreeMap<TableId, String>) {
        match self {
            TableEvent::Create { table, name, .. } | TableEvent::Rename { table, name, .. } => {
                names.insert(*table, name.clone());
            }
            TableEvent::Drop { table, .. } => _ = names.remove(table),
            TableEvent::Truncate { table, new, name, .. } => {
                names.remove(table);
                names.insert(*new, name.clone());
            }
            TableEvent::Options { .. } => {}
        }
    }

    /// Whether a table ends with it.
    pub(crate) fn drops(&self) -> bool {
        matches!(self, TableEvent::Drop { .. } | TableEvent::Truncate { .. })
    }

    /// Whether the journal lacks it.
    pub(crate) fn is_news_to(set: &VersionSet, lsn: Lsn) -> bool {
        lsn > set.table_event_lsn()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names behind an event and those before it. An event of an earlier version changes none.
    #[test]
    fn names_are_undone_and_redone() {
        let named = |name: &str| BTreeMap::from([(3, name.to_string())]);
        let (a, b) = (named("a"), named("b"));
        let renamed =
            |before: &str| TableEvent::Rename { table: 3, name: "b".into(), before: before.into() };
        let options = TableOptions::new();
        let truncated = TableEvent::Truncate { table: 3, new: 4, name: "a".into(), options };
        let dropped = TableEvent::Drop { table: 3, name: "a".into() };
        let created = TableEvent::Create { table: 3, name: "a".into(), options };
        let next = BTreeMap::from([(4, "a".to_string())]);
        for (event, before, behind) in [
            (renamed("a"), &a, &b),
            (truncated, &a, &next),
            (dropped, &a, &BTreeMap::new()),
            (created, &BTreeMap::new(), &a),
        ] {
            let mut names = behind.clone();
            assert!(event.undo(&mut names));
            assert_eq!(names, *before, "{event:?}");
            event.redo(&mut names);
            assert_eq!(names, *behind, "{event:?}");
        }
        let mut names = b.clone();
        assert!(!renamed("").undo(&mut names));
        assert_eq!(names, b);
    }

    #[test]
    fn events_round_trip() {
        let (usual, options) = (TableOptions::new(), TableOptions::new().filter_bits(0));
        let aging = usual.ttl(std::time::Duration::from_secs(3600));
        for event in [
            TableEvent::Create { table: 3, name: "a".into(), options: usual },
            TableEvent::Create { table: 3, name: "a".into(), options },
            TableEvent::Create { table: 3, name: "a".into(), options: aging },
            TableEvent::Create { table: 3, name: "a".into(), options: usual.large_values(4096) },
            TableEvent::Drop { table: 3, name: "b".into() },
            TableEvent::Rename { table: 3, name: "b".into(), before: "a".into() },
            TableEvent::Rename { table: 3, name: "b".into(), before: String::new() },
            TableEvent::Truncate { table: 3, new: 4, name: "b".into(), options: usual },
            TableEvent::Truncate { table: 3, new: 4, name: "b".into(), options },
            TableEvent::Options { table: 3, options: usual, expired: 0 },
            TableEvent::Options { table: 3, options: aging, expired: 77 },
        ] {
            let (key, value) = event.encode();
            assert_eq!(TableEvent::decode(&key, &value), Some(event));
            assert_eq!(TableEvent::decode(&key, &value[..value.len() - 1]), None);
        }
    }
}
