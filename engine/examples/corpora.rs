//! `cargo xtask corpora`: makes the corpora that fuzzing starts from, out of the files of real
//! databases. `corpora DIRECTORY` writes a folder for each decoder.

#![allow(clippy::print_stdout, reason = "it says what it has made")]

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::Duration;

use terrace::testing::Machine;
use terrace::{
    Compression, Database, DumpOptions, Existing, Index, Isolation, Level0Container, Mode, Options,
    TableOptions, TxnOptions, WriteBatch,
};

/// Structures by decoder.
type Found = BTreeMap<&'static str, Vec<Vec<u8>>>;

/// The largest file of a corpus: small inputs are tried more often.
const LARGEST: usize = 6 * 1024;

/// The same of blocks and extents, which are not smaller.
const LARGEST_BLOCKS: usize = 40 * 1024;

/// Files in a corpus, of all lengths.
const FILES: usize = 7;

/// Decoders of object stores, of which a database on files has nothing, and of the history, which
/// takes seconds to come: their corpora are made by hand, and stay as they are.
const BY_HAND: [&str; 3] = ["fence", "history", "object-tail"];

fn main() -> Result<(), Box<dyn Error>> {
    let to = std::env::args().nth(1).ok_or("usage: corpora DIRECTORY")?;
    let home = tempfile::tempdir()?;
    let mut found = Found::new();
    let compressions = [Compression::None, Compression::Lz4, Compression::Zstd];
    for (n, compression) in compressions.into_iter().enumerate() {
        let path = home.path().join(n.to_string());
        let set = home.path().join(format!("set {n}"));
        make(&path, &set, compression, [40, 6000, 6000][n])?;
        for entry in fs::read_dir(&path)?.chain(fs::read_dir(&set)?) {
            let entry = entry?;
            let bytes = fs::read(entry.path())?;
            match entry.file_name().to_string_lossy().split('-').next() {
                Some("region") => region(&bytes, &mut found),
                Some("journal") => journal(&bytes, &mut found),
                Some("extents") => {
                    extents(&bytes, &mut found);
                    values(&bytes, &mut found);
                }
                Some("backup") => add(&mut found, "manifest", &bytes),
                _ => {}
            }
        }
    }
    range_deletes(&home.path().join("ranges"), &mut found)?;
    let mut kept = Found::new();
    aging(&home.path().join("aging"), &mut kept)?;
    read_by_a_snapshot(&home.path().join("read"), &mut kept)?;
    row_tables(&home.path().join("rows"), &mut kept)?;
    for pm_path in [None, Some("/mnt/pmem/region")] {
        add(&mut kept, "marker", &marker(pm_path)?);
    }
    let index = index(home.path())?;
    add(&mut kept, "index-seal", &index[..4096]);
    shared(home.path(), &mut kept)?;
    add(&mut kept, "dump", &dump(&home.path().join("dump"))?);
    add(&mut found, "tree", &index[..64]);
    add(&mut found, "segment", &index[4096..4160]);
    write(Path::new(&to), &found, &kept)
}

/// A dump of two tables, with a blob.
fn dump(path: &Path) -> Result<Vec<u8>, Box<dyn Error>> {
    let db = Options::new().pm_size(2 << 20).create(path)?;
    let table = db.create_table("aging", TableOptions::new().ttl(Duration::from_secs(60)))?;
    db.table("empty")?;
    let mut batch = WriteBatch::new();
    batch.put(&table, "ada", "1815").set_blob("blob");
    db.write(batch)?;
    let mut bytes = Vec::new();
    db.dump(&DumpOptions::new(), &mut bytes)?;
    Ok(bytes)
}

/// The edits of a database whose records expire: marks of time, and times to live.
fn aging(path: &Path, kept: &mut Found) -> Result<(), Box<dyn Error>> {
    let db = Options::new().pm_size(2 << 20).stepped().create(path)?;
    let hour = Duration::from_secs(3600);
    let table = db.create_table("aging", TableOptions::new().ttl(hour))?;
    table.put("ada", "1815")?;
    db.set_ttl("aging", Some(2 * hour))?;
    rest(&db)?;
    db.set_ttl("aging", None)?;
    db.set_ttl("aging", Some(hour))?;
    table.put("alan", "1912")?;
    db.close()?;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("journal-") {
            journal(&fs::read(entry.path())?, kept);
        }
    }
    Ok(())
}

/// What a shared database has in its store, and of it in its directory.
fn shared(home: &Path, kept: &mut Found) -> Result<(), Box<dyn Error>> {
    let (path, bucket) = (home.join("shared"), home.join("bucket"));
    let url = format!("file://{}", bucket.display());
    let options = Options::new().pm_size(2 << 20).stepped().object_store(url).share(true);
    let db = options.create(&path)?;
    let table = db.table("people")?;
    rest(&db)?;
    table.put("ada", "1815")?;
    table.delete_range("b".."c")?;
    db.set_table_options("people", table.options().filter_bits(0))?;
    rest(&db)?;
    // Large commits: a bulk load, and a prepare with what it has spilled.
    let mut load = table.bulk_load(terrace::Existing::Refuse)?;
    (0..60).try_for_each(|n| load.put(format!("loaded {n:02}"), format!("{n}").repeat(20)))?;
    load.finish()?;
    let txn = db.begin_with(TxnOptions::new().spill_at(1 << 10))?;
    (0..40).try_for_each(|n| txn.put(&table, format!("spilled {n:02}"), "y".repeat(40)))?;
    txn.prepare("transfer")?;
    rest(&db)?;
    db.roll_back_prepared("transfer", terrace::Durability::Durable)?;
    (0..40).try_for_each(|n| table.put(format!("{n}"), "x".repeat(30)))?;
    db.close()?;
    for entry in fs::read_dir(&bucket)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("shared%log%") || name == "shared%head" {
            let mut bytes = fs::read(entry.path())?;
            // What a directory adds to each object.
            bytes.truncate(bytes.len().saturating_sub(32));
            add(kept, "shared-entry", &bytes);
        }
    }
    add(kept, "shared-entry", &fs::read(path.join("shared"))?);
    Ok(())
}

/// The edit, and the journal with it, of a drain that keeps a version for a snapshot.
fn read_by_a_snapshot(path: &Path, kept: &mut Found) -> Result<(), Box<dyn Error>> {
    let db = Options::new().pm_size(2 << 20).stepped().create(path)?;
    let table = db.table("people")?;
    table.put("ada", "1815")?;
    let snapshot = db.snapshot()?;
    // What a load takes the place of is drained with it.
    let mut load = table.bulk_load(Existing::Replace)?;
    load.put("ada", "1852")?;
    load.finish()?;
    rest(&db)?;
    drop(snapshot);
    db.close()?;
    let mut all = Found::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("journal-") {
            journal(&fs::read(entry.path())?, &mut all);
        }
    }
    // Operation 24 on the only table.
    // Operation 4 on the only table; 45 bytes of the description come before what is kept.
    let has_kept = |op: &[u8]| op[..5] == [4, 1, 0, 0, 0] && op[50] > 0 && op[51..58] == [0; 7];
    let keeps = |bytes: &&Vec<u8>| bytes.windows(58).any(has_kept);
    for (decoder, all) in &all {
        let one = all.iter().find(keeps).ok_or("no drain has kept a version for the snapshot")?;
        kept.entry(decoder).or_default().push(one.clone());
    }
    Ok(())
}

/// Extents with range deletes in them: those above a snapshot stay.
fn range_deletes(path: &Path, found: &mut Found) -> Result<(), Box<dyn Error>> {
    let db = Options::new().pm_size(2 << 20).level1_size(64 << 10).stepped().create(path)?;
    let table = db.table("people")?;
    let mut snapshot = None;
    for n in 0..3000u64 {
        if n == 1500 {
            snapshot = Some(db.snapshot()?);
        }
        if n % 60 == 7 {
            let from = n * 7919 % 2500;
            table.delete_range(format!("user{from:05}")..format!("user{:05}", from + 30))?;
        }
        table.put(format!("user{:05}", n * 7907 % 2500), [n as u8; 1000])?;
        while db.stats().pm.zones - db.stats().pm.zones_used < 6 && db.step()? {}
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("extents-") {
            extents(&fs::read(entry.path())?, found);
        }
    }
    drop(snapshot);
    Ok(db.close()?)
}

/// The marker of a creation whose process was killed.
fn marker(pm_path: Option<&str>) -> Result<Vec<u8>, Box<dyn Error>> {
    for n in 1..100 {
        let machine = Machine::with_files();
        machine.kill_before(n);
        let options = Options::new().pm_size(2 << 20).stepped().machine(&machine);
        let options = pm_path.into_iter().fold(options, |options, path| options.pm_path(path));
        drop(options.create("/db"));
        let bytes = machine.found().map(|found| found.contents(Path::new("/db/CREATING")));
        if let Some(bytes) = bytes.filter(|bytes| terrace::decoders::run("marker", bytes)) {
            return Ok(bytes);
        }
    }
    Err("no creation leaves its marker".into())
}

/// Row tables of a database with a matrix: directories, entries, and the edits that name them.
fn row_tables(path: &Path, kept: &mut Found) -> Result<(), Box<dyn Error>> {
    let db = Options::new().pm_size(2 << 20).stepped().create(path)?;
    let matrix = TableOptions::new().level0(Level0Container::Matrix);
    let table = db.create_table("people", matrix)?;
    for n in 0..8000u64 {
        if db.stats().background.row_tables > 2 {
            break;
        }
        table.put(format!("user{:05}", n * 7919 % 1000), [n as u8; 200])?;
        db.step()?;
    }
    drop(table);
    db.close()?;
    for entry in fs::read_dir(path)? {
        let (name, bytes) = {
            let entry = entry?;
            (entry.file_name(), fs::read(entry.path())?)
        };
        match name.to_string_lossy().split('-').next() {
            Some("region") => {
                for page in bytes.chunks_exact(4096).filter(|page| page.starts_with(b"TROW")) {
                    // A directory of a page, and the first entry, with the page of the array.
                    add(kept, "row-table", page);
                    let array = 4096 * u32_at(page, 64);
                    add(kept, "row-table", &bytes[array..array + 40]);
                }
            }
            Some("journal") => {
                let mut edits = Found::new();
                journal(&bytes, &mut edits);
                // Operation 18 on the only table.
                let adds = |bytes: &&Vec<u8>| bytes.windows(5).any(|it| it == [18, 1, 0, 0, 0]);
                let edit = edits["edit"].iter().find(adds).ok_or("no edit names a row table")?;
                add(kept, "edit", edit);
            }
            _ => {}
        }
    }
    Ok(())
}

/// A persistent index that was closed.
fn index(home: &Path) -> Result<Vec<u8>, Box<dyn Error>> {
    let options = Options::new().pm_size(2 << 20).stepped().index(Index::Persistent);
    let options = options.mode(Mode::Emulated { delay: Duration::ZERO });
    let db = options.pm_path(home.join("pm")).create(home.join("indexed"))?;
    let table = db.table("people")?;
    for n in 0..600u64 {
        table.put(format!("user{n:05}"), [n as u8; 400])?;
        db.step()?;
    }
    rest(&db)?;
    drop(table);
    db.close()?;
    Ok(fs::read(home.join("pm.index"))?)
}

/// A database that has been through everything, and backups of it.
fn make(path: &Path, set: &Path, compression: Compression, rows: u64) -> terrace::Result<()> {
    let options = Options::new().pm_size(2 << 20).cache_size(1 << 20).level1_size(64 << 10);
    let options = options.compression(compression, compression).stepped();
    let db = options.create(path)?;
    for name in ["people", "short", "gone"] {
        db.table(name)?;
    }
    let files = db.create_table("files", TableOptions::new().large_values(512))?;
    let (people, short) = (db.existing_table("people")?, db.existing_table("short")?);
    let txn = db.begin_with(TxnOptions::new().isolation(Isolation::Serializable))?;
    txn.get(&people, "user")?;
    drop(txn.range(&people, "a".."e")?);
    drop(txn.range_for_update(&people, ..)?);
    txn.prepare("one")?;
    db.commit_prepared("one")?;
    let file = |n: u64| format!("{n:04}, ").repeat(90 + n as usize % 9);
    (0..12).try_for_each(|n| files.put(n.to_string(), file(n)))?;
    for n in 0..rows {
        let key = format!("user{:05}", n * 7919 % 1000);
        match n % 11 {
            10 => people.delete(&key)?,
            7 if n % 50 == 7 => people.delete_range(key.clone()..format!("{key}5"))?,
            _ => people.put(&key, format!("{n:04} of {key}, ").repeat(1 + n as usize % 60))?,
        }
        short.put(n.to_be_bytes(), [])?;
        db.step()?;
    }
    db.backup(set)?;
    db.truncate_table("short")?;
    let mut load = short.bulk_load(terrace::Existing::Refuse)?;
    (0..rows).try_for_each(|n| load.put(n.to_be_bytes(), []))?;
    load.finish()?;
    let mut load = files.bulk_load(terrace::Existing::Refuse)?;
    (20..26).try_for_each(|n| load.put(n.to_string(), file(n)))?;
    load.finish()?;
    let mut batch = WriteBatch::new();
    batch.set_blob("a position");
    db.write(batch)?;
    db.rename_table("short", "long")?;
    db.drop_table("gone")?;
    rest(&db)?;
    db.backup(set)?;
    db.close()
}

fn rest(db: &Database) -> terrace::Result<()> {
    while db.step()? {}
    Ok(())
}

fn add(found: &mut Found, decoder: &'static str, bytes: &[u8]) {
    let largest =
        if ["block", "extent", "values"].contains(&decoder) { LARGEST_BLOCKS } else { LARGEST };
    let all = found.entry(decoder).or_default();
    if !bytes.is_empty() && bytes.len() <= largest && !all.iter().any(|known| known == bytes) {
        all.push(bytes.to_vec());
    }
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk());
    field.map_or(0, |field| u32::from_le_bytes(*field) as usize)
}

fn region(bytes: &[u8], found: &mut Found) {
    add(found, "superblock", &bytes[..4096]);
    add(found, "floor", &bytes[8192..8256]);
    add(found, "floor", &bytes[8704..8768]);
    let mut words = bytes[9216..9248].to_vec();
    words.extend(&bytes[12_288..12_320]);
    words.extend(&bytes[40_960..41_024]);
    for at in (0..bytes.len()).step_by(64) {
        match &bytes[at..at + 4] {
            b"TSTR" => add(found, "stream-object", &bytes[at..at + 64]),
            b"TZON" => {
                words.extend(&bytes[at + 48..at + 56]);
                add(found, "zone-header", &bytes[at..at + 64]);
                zone(bytes, at, found);
            }
            _ => {}
        }
    }
    add(found, "words", &words);
}

/// The head of a zone: some sub-entries. Each alone too, and its records.
fn zone(bytes: &[u8], start: usize, found: &mut Found) {
    let mut at = start + 64;
    while at < start + 256 * 64 {
        match bytes.get(at..at + 4) {
            Some(b"TSUB") => {}
            // An opening went on here.
            Some(b"TRES") => {
                at += 64;
                continue;
            }
            _ => break,
        }
        let len = u32_at(bytes, at + 28);
        let payload = &bytes[at + 64..at + 64 + len];
        add(found, "sub-entry", &bytes[at..at + 64]);
        add(found, "records", payload);
        if payload.get(20) == Some(&16) {
            let (key, value) = (u32_at(payload, 12), u32_at(payload, 16));
            add(found, "table-event", &payload[24..24 + key + value]);
        }
        locks(payload, found);
        at = (at + 64 + len).next_multiple_of(64);
        add(found, "zone", &bytes[start..at]);
    }
}

/// The locks among records, each as the decoder takes it: length of the key, key, value.
fn locks(payload: &[u8], found: &mut Found) {
    let mut at = 0;
    while let Some(record) = payload.get(at..).filter(|rest| rest.len() >= 24) {
        let (key, value) = (u32_at(record, 12), u32_at(record, 16));
        if let (18, Ok(len)) = (record[20], u8::try_from(key)) {
            add(found, "lock", &[&[len], &record[24..24 + key + value]].concat());
        }
        at += (24 + key + value).next_multiple_of(8);
    }
}

fn journal(bytes: &[u8], found: &mut Found) {
    let mut at = 64;
    while bytes.get(at..at + 4) == Some(b"TEDT") {
        let (len, count) = (u32_at(bytes, at + 24), u32_at(bytes, at + 28));
        if let Ok(count) = u8::try_from(count) {
            add(found, "edit", &[&[count], &bytes[at + 40..at + 40 + len]].concat());
        }
        at += (40 + len).next_multiple_of(8);
        add(found, "journal", &bytes[..at]);
    }
}

/// Extents, by the magic of their footers.
fn extents(bytes: &[u8], found: &mut Found) {
    let places = (0..bytes.len().saturating_sub(64)).filter(|at| bytes[*at..].starts_with(b"TEXT"));
    for at in places {
        let field = |n: usize| u32_at(bytes, at + 16 + 4 * n);
        let Some(start) = at.checked_sub(field(2) + field(3) + field(8)) else { continue };
        if start % 16_384 != 0 {
            continue;
        }
        let extent = &bytes[start..at + 64];
        add(found, "extent", extent);
        add(found, "footer", &extent[extent.len() - 64..]);
        add(found, "filter", &extent[field(0)..field(0) + field(1)]);
        let index = &extent[field(2)..field(2) + field(3)];
        add(found, "index", index);
        if field(8) > 0 {
            add(found, "ranges", &extent[field(2) + field(3)..][..field(8)]);
        }
        let mut entry = 8;
        while entry + 12 <= index.len() {
            let (offset, len) = (u32_at(index, entry), u32_at(index, entry + 4));
            let Some(block) = extent.get(offset..offset + len) else { break };
            add(found, "block", block);
            entry += 12 + u32_at(index, entry + 8) + 8;
        }
    }
}

/// Value extents, by the magic of their footers: they begin where values lead from to there.
fn values(bytes: &[u8], found: &mut Found) {
    let places = (0..bytes.len().saturating_sub(64)).filter(|at| bytes[*at..].starts_with(b"TVAL"));
    for end in places {
        let starts = (0..end + 1).step_by(16_384).rev().take(4);
        let leads_there = |start: &usize| {
            let (mut at, mut values) = (*start, 0);
            while at < end {
                at += 16 + u32_at(bytes, at + 4);
                values += 1;
            }
            at == end && values == u32_at(bytes, end + 16)
        };
        if let Some(start) = starts.into_iter().find(leads_there) {
            add(found, "values", &bytes[start..end + 64]);
        }
    }
}

/// A few of each, of all lengths, and of blocks of each compression and layout; and all that are to
/// be kept.
fn write(to: &Path, found: &Found, kept: &Found) -> Result<(), Box<dyn Error>> {
    for decoder in terrace::decoders::names() {
        let mut all = found.get(decoder).cloned().unwrap_or_default();
        // An extent that is gone may have been written over in part.
        all.retain(|bytes| terrace::decoders::run(decoder, bytes));
        let kind = |bytes: &Vec<u8>| if decoder == "block" { (bytes[8], bytes[9]) } else { (0, 0) };
        all.sort_by_key(|bytes| (kind(bytes), bytes.len()));
        let step = all.len().div_ceil(FILES).max(1);
        let last = all.last().cloned();
        let mut few: Vec<Vec<u8>> = match decoder {
            // Large ones: the smallest two.
            "extent" => all.into_iter().take(2).collect(),
            _ => all.into_iter().step_by(step).chain(last).collect(),
        };
        few.extend(kept.get(decoder).into_iter().flatten().cloned());
        few.dedup();
        if few.is_empty() && BY_HAND.contains(&decoder) {
            println!("{decoder}: made by hand");
            continue;
        }
        if few.is_empty() {
            return Err(format!("no {decoder} in what was made").into());
        }
        let folder = to.join(decoder);
        fs::create_dir_all(&folder)?;
        let bytes: usize = few.iter().map(Vec::len).sum();
        println!("{decoder}: {} files, {bytes} bytes", few.len());
        for (n, bytes) in few.into_iter().enumerate() {
            fs::write(folder.join(format!("made-{n}")), bytes)?;
        }
    }
    Ok(())
}
