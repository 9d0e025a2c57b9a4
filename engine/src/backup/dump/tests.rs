//! A dump goes into another database whole, or says what is there.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::base::options::Options;
use crate::engine::catalog::READER_POSITION;

fn database(dir: &Path, name: &str) -> Database {
    Options::new().pm_size(4 << 20).open(dir.join(name)).unwrap()
}

/// A database with rows of all kinds, in three tables, and a blob.
fn filled(dir: &Path) -> Database {
    let db = database(dir, "from");
    let options = TableOptions::new().block_size(4096).large_values(512);
    let table = db.create_table("large", options).unwrap();
    for n in 0..300_u32 {
        table.put(n.to_be_bytes(), vec![n as u8; n as usize * 10]).unwrap();
    }
    let sums = TableOptions::new().merge_operator(crate::operators::MAX);
    let sums = db.create_table("merged", sums).unwrap();
    sums.put("", "1").unwrap();
    sums.merge("", "2").unwrap();
    db.create_table("empty", TableOptions::new().ttl(std::time::Duration::from_secs(60))).unwrap();
    let mut batch = WriteBatch::new();
    batch.set_blob("position");
    db.write(batch).unwrap();
    db
}

fn dumped(db: &Database) -> Vec<u8> {
    let mut bytes = Vec::new();
    db.dump(&DumpOptions::new(), &mut bytes).unwrap();
    bytes
}

#[test]
fn a_dump_is_taken_in_with_options_rows_and_blob() {
    let dir = tempfile::tempdir().unwrap();
    let from = filled(dir.path());
    let mut bytes = Vec::new();
    let report = from.dump(&DumpOptions::new(), &mut bytes).unwrap();
    assert_eq!(report, DumpReport { tables: 3, rows: 301 });
    assert!(stream::probe(&bytes));
    let to = database(dir.path(), "to");
    assert_eq!(to.load(&DumpOptions::new(), &bytes[..]).unwrap(), report);
    assert_eq!(to.table_names(), from.table_names());
    for name in from.table_names() {
        let of = |db: &Database| db.existing_table(&name).unwrap();
        let (one, two) = (of(&from), of(&to));
        assert_eq!(one.options(), two.options());
        let rows = |table: &Table| table.iter().map(|row| row.unwrap()).collect::<Vec<_>>();
        assert!(rows(&one) == rows(&two), "{name}");
    }
    assert_eq!(to.last_blob().as_deref(), Some(&b"position"[..]));
    assert!(dumped(&to) == bytes, "a dump of it is the same");
}

/// Bug: a table that a user had named as readers name their own was in no dump, and a dump of it
/// alone was empty. Cause: the name alone was looked at. Fix: a reader's table has its position.
#[test]
fn only_a_readers_own_table_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let db = database(dir.path(), "from");
    let table = db.table(READER_TABLE).unwrap();
    table.put("k", "v").unwrap();
    let named = DumpOptions::new().table(READER_TABLE);
    for options in [DumpOptions::new(), named.clone()] {
        let report = db.dump(&options, io::sink()).unwrap();
        assert_eq!(report, DumpReport { tables: 1, rows: 1 });
    }
    let to = database(dir.path(), "to");
    assert_eq!(to.load(&named, &dumped(&db)[..]).unwrap().rows, 1);
    table.put(READER_POSITION, [1; 24]).unwrap();
    assert_eq!(db.dump(&DumpOptions::new(), io::sink()).unwrap(), DumpReport::default());
    assert_eq!(db.dump(&named, io::sink()).unwrap_err().kind(), ErrorKind::MissingTable);
}

/// A dump shows one moment, and writers go on.
#[test]
fn writes_during_a_dump_are_not_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let db = filled(dir.path());
    let (before, table) = (dumped(&db), db.existing_table("large").unwrap());
    let mut out = Vec::new();
    let mut encoder = stream::Encoder::new(&mut out);
    let mut n = 1000_u32;
    let report = db.dump_entries(&DumpOptions::new(), |entry| {
        n += 1;
        table.put(n.to_be_bytes(), "later").map_err(io::Error::other)?;
        encoder.add(&entry)
    });
    encoder.end(report.unwrap()).unwrap();
    assert!(out == before);
}

#[test]
fn a_cut_or_damaged_dump_leaves_whole_tables() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = dumped(&filled(dir.path()));
    let to = database(dir.path(), "to");
    // The first one has no rows, and the last ones come with the last block.
    let drop_whole = || {
        let names = to.table_names();
        assert!(names.is_empty() || names == ["empty"], "{names:?}");
        names.iter().for_each(|name| to.drop_table(name).unwrap());
    };
    for len in [0, 1, 16, 20, 100, bytes.len() / 2, bytes.len() - 1] {
        let error = to.load(&DumpOptions::new(), &bytes[..len]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{len}: {error}");
        assert!(error.to_string().contains(" tables with 0 rows are loaded"), "{error}");
        drop_whole();
    }
    for at in (0..bytes.len()).step_by(bytes.len() / 50) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        to.load(&DumpOptions::new(), &damaged[..]).unwrap_err();
        drop_whole();
    }
    let longer = [&bytes[..], b"x"].concat();
    to.load(&DumpOptions::new(), &longer[..]).unwrap_err();
    to.table_names().iter().for_each(|name| to.drop_table(name).unwrap());
    let text = to.load(&DumpOptions::new(), &b"this is some text, and no dump"[..]).unwrap_err();
    assert_eq!(text.kind(), ErrorKind::Invalid, "{text}");
    // Behind the first table.
    let error = to.load_entries(&DumpOptions::new(), |add| {
        let options = TableOptions::new();
        add(DumpEntry::Table("a", options))?;
        add(DumpEntry::Table("b", options))?;
        add(DumpEntry::Rows("a"))?;
        add(DumpEntry::Row(b"k", b"v"))?;
        add(DumpEntry::Rows("b"))?;
        add(DumpEntry::Row(b"k", b"v"))?;
        add(DumpEntry::Row(b"k", b"again"))
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("1 tables with 1 rows are loaded"), "{error}");
    assert!(error.contains("table \"b\", of which 1 rows were read, is not there"), "{error}");
    assert_eq!(to.table_names(), ["a"]);
}

#[test]
fn tables_that_are_there_and_prepared_transactions_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let from = filled(dir.path());
    let bytes = dumped(&from);
    let to = database(dir.path(), "to");
    to.table("merged").unwrap();
    let error = to.load(&DumpOptions::new(), &bytes[..]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
    assert!(error.to_string().contains("merged") && to.table_names() == ["merged"], "{error}");
    let one = DumpOptions::new().table("large");
    assert_eq!(to.load(&one, &bytes[..]).unwrap(), DumpReport { tables: 1, rows: 300 });
    assert_eq!(to.last_blob(), None);
    let missing = to.load(&DumpOptions::new().table("absent"), &bytes[..]).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::MissingTable);
    let missing = from.dump(&DumpOptions::new().table("absent"), io::sink()).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::MissingTable);
    let txn = from.begin().unwrap();
    txn.put(&from.table("empty").unwrap(), "k", "v").unwrap();
    txn.prepare("name").unwrap();
    let error = from.dump(&DumpOptions::new(), io::sink()).unwrap_err();
    assert!(error.to_string().contains("the first as \"name\""), "{error}");
    let without = from.dump(&DumpOptions::new().without_prepared(), io::sink()).unwrap();
    assert_eq!(without.rows, 301);
}
