//! What a database should hold, as plain maps, and what one does hold.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::time::Duration;

use terrace::{Database, LockWait, Result, Table, TableOptions, TxnOptions};

use crate::violation::Class;

/// The rows of one table.
pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// One change of the content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Put(String, Vec<u8>, Vec<u8>),
    /// Appends an operand to the value of a key.
    Merge(String, Vec<u8>, Vec<u8>),
    Delete(String, Vec<u8>),
    /// From a key on, up to another one or to the last.
    DeleteRange(String, Vec<u8>, Option<Vec<u8>>),
    Create(String),
    Drop(String),
    Rename(String, String),
    Truncate(String),
    /// Changes options of a table.
    Options(String, Settings),
    /// The last blob.
    Blob(Vec<u8>),
    /// Transaction number so and so, which does [`prepared_rows`], is prepared.
    Prepare(u64),
    Commit(u64),
    RollBack(u64),
}

impl Effect {
    /// The table that it writes a record to, if it does.
    pub fn written(&self) -> Option<&str> {
        match self {
            Effect::Put(table, ..)
            | Effect::Merge(table, ..)
            | Effect::Delete(table, _)
            | Effect::DeleteRange(table, ..) => Some(table),
            _ => None,
        }
    }
}

impl Effect {
    /// What it does, shortly.
    pub fn in_words(&self) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match self {
            Effect::Put(table, key, value) => {
                format!("put {table}[{}] of {} bytes", text(key), value.len())
            }
            Effect::Merge(table, key, operand) => {
                format!("merge {table}[{}] with {} bytes", text(key), operand.len())
            }
            Effect::Delete(table, key) => format!("delete {table}[{}]", text(key)),
            Effect::DeleteRange(table, start, end) => {
                let end = end.as_ref().map_or("the end".into(), |end| text(end));
                format!("delete {table}[{}] up to {end}", text(start))
            }
            other => format!("{other:?}"),
        }
    }
}

/// What the prepared transaction `n` does, in tables `a` and `b`. Only it writes these rows.
pub fn prepared_rows(n: u64) -> Vec<Effect> {
    let len = 40 + n as usize * 977 % 3000;
    let (key, value) = (format!("prepared {n}").into_bytes(), vec![n as u8; len]);
    let put = |table: &str| Effect::Put(table.into(), key.clone(), value.clone());
    vec![put("a"), put("b"), Effect::Delete("a".into(), doomed_row(n))]
}

/// The row of table `a` that the prepared transaction `n` deletes.
pub fn doomed_row(n: u64) -> Vec<u8> {
    format!("doomed {n}").into_bytes()
}

/// The name that transaction `n` is prepared under.
pub fn prepared_name(n: u64) -> Vec<u8> {
    format!("transaction {n}").into_bytes()
}

/// The options of a table that a history changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    pub filter_bits: u8,
    pub ttl: Option<Duration>,
}

impl Settings {
    pub fn of(options: &TableOptions) -> Settings {
        Settings { filter_bits: options.filter_bits_per_key(), ttl: options.time_to_live() }
    }

    /// These options with the settings.
    pub fn set(self, options: TableOptions) -> TableOptions {
        let options = options.filter_bits(self.filter_bits);
        self.ttl.map_or(options, |ttl| options.ttl(ttl))
    }
}

/// All tables by name, the names of prepared transactions, the settings of the tables, and the last
/// blob.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Content(
    pub BTreeMap<String, Rows>,
    pub BTreeSet<Vec<u8>>,
    pub BTreeMap<String, Settings>,
    pub Option<Vec<u8>>,
);

impl Content {
    pub fn apply(&mut self, effect: &Effect) {
        match effect {
            Effect::Put(table, key, value) => {
                self.rows_mut(table).insert(key.clone(), value.clone());
            }
            Effect::Merge(table, key, operand) => {
                self.rows_mut(table).entry(key.clone()).or_default().extend(operand);
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
                let new = || Settings::of(&TableOptions::new());
                self.2.entry(table.clone()).or_insert_with(new);
            }
            Effect::Drop(table) => {
                self.0.remove(table);
                self.2.remove(table);
            }
            Effect::Rename(from, to) => {
                let (rows, settings) = (self.0.remove(from).unwrap(), self.2.remove(from).unwrap());
                self.0.insert(to.clone(), rows);
                self.2.insert(to.clone(), settings);
            }
            Effect::Options(table, settings) => {
                self.2.insert(table.clone(), *settings);
            }
            Effect::Blob(blob) => self.3 = Some(blob.clone()),
            Effect::Truncate(table) => self.rows_mut(table).clear(),
            Effect::Prepare(n) => {
                self.1.insert(prepared_name(*n));
            }
            Effect::Commit(n) => {
                self.1.remove(&prepared_name(*n));
                prepared_rows(*n).iter().for_each(|effect| self.apply(effect));
            }
            Effect::RollBack(n) => {
                self.1.remove(&prepared_name(*n));
            }
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
        if self == other {
            return None;
        }
        if self.names() != other.names() {
            return Some(format!("tables {:?} instead of {:?}", self.names(), other.names()));
        }
        if self.1 != other.1 {
            let show = |names: &BTreeSet<Vec<u8>>| {
                let names: Vec<_> = names.iter().map(|name| short(name)).collect();
                names.join(", ")
            };
            let (got, want) = (show(&self.1), show(&other.1));
            return Some(format!("prepared are [{got}] instead of [{want}]"));
        }
        if self.2 != other.2 {
            return Some(format!("options are {:?} instead of {:?}", self.2, other.2));
        }
        if self.3 != other.3 {
            let [got, want] = [&self.3, &other.3].map(|blob| blob.as_deref().map(short));
            return Some(format!("the last blob is {got:?} instead of {want:?}"));
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

/// Rows that differ between a content that changes and one that does not: what does not change need
/// not be looked at again.
#[derive(Clone, Debug, Default)]
pub struct Differences(BTreeSet<(String, Vec<u8>)>);

impl Differences {
    pub fn between(content: &Content, found: &Content) -> Differences {
        let (none, mut differences) = (Rows::new(), Differences::default());
        for name in content.0.keys().chain(found.0.keys()) {
            let [a, b] = [content, found].map(|of| of.0.get(name).unwrap_or(&none));
            if a != b {
                let keys = a.keys().chain(b.keys());
                keys.for_each(|key| differences.look_at((name, key), content, found));
            }
        }
        differences
    }

    fn look_at(&mut self, (table, key): (&str, &[u8]), content: &Content, found: &Content) {
        let [a, b] = [content, found].map(|of| of.0.get(table).and_then(|rows| rows.get(key)));
        let row = (table.to_string(), key.to_vec());
        if a == b {
            self.0.remove(&row)
        } else {
            self.0.insert(row)
        };
    }

    /// `effect` has changed `content`.
    pub fn after(&mut self, effect: &Effect, content: &Content, found: &Content) {
        match effect {
            Effect::Put(table, key, _)
            | Effect::Merge(table, key, _)
            | Effect::Delete(table, key) => {
                self.look_at((table, key), content, found);
            }
            // Of many rows, or of a table.
            _ => *self = Differences::between(content, found),
        }
    }

    /// Whether the two are the same.
    pub fn is_none(&self, content: &Content, found: &Content) -> bool {
        let Content(tables, prepared, settings, blob) = content;
        self.0.is_empty()
            && (prepared, settings, blob) == (&found.1, &found.2, &found.3)
            && tables.keys().eq(found.0.keys())
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

/// Keys by table.
pub type Keys = BTreeMap<String, BTreeSet<Vec<u8>>>;

/// As [`read_all`], and point reads agree on each of these keys, which may be gone.
pub fn read_named(db: &Database, keys: &Keys) -> Result<Content> {
    let content = read_all(db)?;
    for (name, rows) in &content.0 {
        let table = db.existing_table(name)?;
        for key in keys.get(name).into_iter().flatten().filter(|key| !rows.contains_key(*key)) {
            if table.get(key)?.is_some() {
                disagree(format_args!("a get alone finds {name}[{}]", short(key)));
            }
        }
    }
    Ok(content)
}

/// Two reads of one moment are not the same.
fn disagree(what: fmt::Arguments<'_>) -> ! {
    panic!("{}", Class::Changed.violation(what))
}

/// Everything in the database, read forward, held against what backward and point reads say.
///
/// # Panics
///
/// Two reads disagree.
pub fn read_all(db: &Database) -> Result<Content> {
    let mut content = Content::default();
    for name in db.table_names() {
        let table = db.existing_table(&name)?;
        content.2.insert(name.clone(), Settings::of(&table.options()));
        content.0.insert(name, read_table(&table)?);
    }
    content.3 = db.last_blob().map(|blob| blob.to_vec());
    content.1 = db.list_prepared().into_iter().map(|prepared| prepared.id).collect();
    Ok(content)
}

/// Prepared transactions that were found after an end hold their rows, and can be committed: what
/// is there then is `content` with what they did.
pub fn resolve_all(db: &Database, mut content: Content) -> Result<Option<String>> {
    let names = content.1.clone();
    if names.is_empty() {
        return Ok(None);
    }
    for n in (0..).filter(|n| names.contains(&prepared_name(*n))).take(names.len()) {
        let asks = db.begin_with(TxnOptions::new().lock_wait(LockWait::NoWait))?;
        for effect in prepared_rows(n) {
            let (Effect::Put(table, key, _) | Effect::Delete(table, key)) = &effect else {
                continue;
            };
            let asked = asks.get_for_update(&db.existing_table(table)?, key);
            if asked.is_ok() {
                return Ok(Some(format!("{} is not locked", short(key))));
            }
        }
        drop(asks);
        db.commit_prepared(prepared_name(n))?;
        content.apply(&Effect::Commit(n));
    }
    Ok(read_all(db)?.differs_from(&content))
}

/// All rows of a table.
pub fn read_table(table: &Table) -> Result<Rows> {
    let forward = table.iter().map(|row| row.map(owned)).collect::<Result<Vec<_>>>()?;
    assert!(forward.is_sorted_by(|a, b| a.0 < b.0), "keys ascend, each once");
    let (mut backward, mut left) = (table.iter().rev(), forward.iter().rev());
    for row in &mut backward {
        let (key, value) = row?;
        if !left.next().is_some_and(|(k, v)| *k == key && *v == value) {
            disagree(format_args!("backward alone there is {}", short(&key)));
        }
    }
    if left.len() > 0 {
        disagree(format_args!("backward there are {} rows less", left.len()));
    }
    for (key, value) in &forward {
        if table.get(key)?.as_deref() != Some(value.as_slice()) {
            disagree(format_args!("a get does not find {} as it is", short(key)));
        }
    }
    Ok(forward.into_iter().collect())
}

fn owned((key, value): (bytes::Bytes, bytes::Bytes)) -> (Vec<u8>, Vec<u8>) {
    (key.to_vec(), value.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::Chance;

    #[test]
    fn differences_are_none_where_contents_are_equal_and_nowhere_else() {
        let mut chance = Chance::new(1);
        let effects = |chance: &mut Chance| {
            let table = |chance: &mut Chance| chance.pick(&["a", "b"]).to_string();
            let key = |chance: &mut Chance| vec![b'k', chance.below(3) as u8];
            match chance.below(14) {
                12 => Effect::Blob(chance.bytes(1)),
                13 => {
                    let settings = Settings { filter_bits: 1 + chance.below(2) as u8, ttl: None };
                    Effect::Options(table(chance), settings)
                }
                0 => Effect::Truncate(table(chance)),
                1 => Effect::DeleteRange(table(chance), key(chance), None),
                2 => Effect::Prepare(1),
                3 => Effect::Commit(1),
                4 => Effect::RollBack(1),
                5 => Effect::Create("c".into()),
                6 => Effect::Drop("c".into()),
                7 | 8 => Effect::Delete(table(chance), key(chance)),
                _ => Effect::Put(table(chance), key(chance), chance.bytes(1)),
            }
        };
        let mut content = Content::default();
        ["a", "b"].into_iter().for_each(|name| content.apply(&Effect::Create(name.into())));
        let mut equal = 0;
        for _ in 0..200 {
            let commits: Vec<Effect> = (0..12).map(|_| effects(&mut chance)).collect();
            let (mut found, mut now) = (content.clone(), content.clone());
            commits[..6].iter().for_each(|effect| found.apply(effect));
            let mut differences = Differences::between(&now, &found);
            for effect in &commits {
                assert_eq!(differences.is_none(&now, &found), now == found, "{now:?} {found:?}");
                equal += u32::from(now == found);
                now.apply(effect);
                differences.after(effect, &now, &found);
            }
            content = now;
        }
        assert!(equal > 200, "each content is found once at least: {equal}");
    }
}
