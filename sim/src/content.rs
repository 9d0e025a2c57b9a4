//! What a database should hold, as plain maps, and what one does hold.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};

use terrace::{Database, Result, Table};

/// The rows of one table.
pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// One change of the content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Put(String, Vec<u8>, Vec<u8>),
    Delete(String, Vec<u8>),
    /// From a key on, up to another one or to the last.
    DeleteRange(String, Vec<u8>, Option<Vec<u8>>),
    Create(String),
    Drop(String),
    Rename(String, String),
    Truncate(String),
}

impl Effect {
    /// The table that it writes a record to, if it does.
    pub fn written(&self) -> Option<&str> {
        match self {
            Effect::Put(table, ..) | Effect::Delete(table, _) | Effect::DeleteRange(table, ..) => {
                Some(table)
            }
            _ => None,
        }
    }
}

/// All tables by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content(pub BTreeMap<String, Rows>);

impl Content {
    pub fn apply(&mut self, effect: &Effect) {
        match effect {
            Effect::Put(table, key, value) => {
                self.rows_mut(table).insert(key.clone(), value.clone());
            }
            Effect::Delete(table, key) => {
                self.rows_mut(table).remove(key);
            }
            Effect::DeleteRange(table, start, end) => {
                let inside = (Bound::Included(start.clone()), upper(end.as_ref()));
                self.rows_mut(table).retain(|key, _| !inside.contains(key));
            }
            Effect::Create(table) => {
                self.0.entry(table.clone()).or_default();
            }
            Effect::Drop(table) => {
                self.0.remove(table);
            }
            Effect::Rename(from, to) => {
                let rows = self.0.remove(from).unwrap();
                self.0.insert(to.clone(), rows);
            }
            Effect::Truncate(table) => self.rows_mut(table).clear(),
        }
    }

    fn rows_mut(&mut self, table: &str) -> &mut Rows {
        self.0.get_mut(table).unwrap_or_else(|| panic!("the model has no table {table}"))
    }

    pub fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    /// The first difference, in words; `None` when there is none.
    pub fn differs_from(&self, other: &Content) -> Option<String> {
        if self.names() != other.names() {
            return Some(format!("tables {:?} instead of {:?}", self.names(), other.names()));
        }
        for (name, rows) in &self.0 {
            let others = &other.0[name];
            for key in rows.keys().chain(others.keys()) {
                let (got, want) = (rows.get(key), others.get(key));
                if got != want {
                    let say = |v: Option<&Vec<u8>>| v.map_or("nothing".into(), |v| short(v));
                    let (key, got, want) = (short(key), say(got), say(want));
                    return Some(format!("{name}[{key}] is {got} instead of {want}"));
                }
            }
        }
        None
    }
}

/// The bound of a range that ends before `end`, if anywhere.
pub fn upper(end: Option<&Vec<u8>>) -> Bound<Vec<u8>> {
    end.map_or(Bound::Unbounded, |end| Bound::Excluded(end.clone()))
}

/// The head of some bytes, and how many there are.
pub fn short(bytes: &[u8]) -> String {
    let head = &bytes[..bytes.len().min(12)];
    format!("{:?} ({} bytes)", String::from_utf8_lossy(head), bytes.len())
}

/// Everything in the database, read forward, held against what backward and point reads say.
pub fn read_all(db: &Database) -> Result<Content> {
    let mut content = Content::default();
    for name in db.table_names() {
        let table = db.existing_table(&name)?;
        content.0.insert(name, read_table(&table)?);
    }
    Ok(content)
}

/// All rows of a table.
pub fn read_table(table: &Table) -> Result<Rows> {
    let forward = table.iter().map(|row| row.map(owned)).collect::<Result<Vec<_>>>()?;
    let mut backward = table.iter().rev().map(|row| row.map(owned)).collect::<Result<Vec<_>>>()?;
    backward.reverse();
    assert!(forward.is_sorted_by(|a, b| a.0 < b.0), "keys ascend, each once");
    assert_eq!(forward.len(), backward.len(), "both directions see as many rows");
    assert!(forward == backward, "both directions see the same");
    for (key, value) in forward.iter().step_by(7) {
        let got = table.get(key)?;
        assert_eq!(got.as_deref(), Some(value.as_slice()), "get agrees on {}", short(key));
    }
    Ok(forward.into_iter().collect())
}

fn owned((key, value): (bytes::Bytes, bytes::Bytes)) -> (Vec<u8>, Vec<u8>) {
    (key.to_vec(), value.to_vec())
}
