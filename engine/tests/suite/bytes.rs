//! Bad bytes: every file of a closed database flipped and cut short at random places. Opening
//! gives the right answers or an error that names the place; never a panic, never a wrong answer;
//! and `verify` finds whatever is not harmless.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests stop and tell")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::common::content::{Content, read_all};
use crate::common::cuts::table_options;
use crate::common::{Chance, indexed, rounds, tiny, without_links};
use terrace::{Durability, ErrorKind, Level0Container, TableOptions, WriteBatch};

/// A closed database with something in every structure, and a second place to spoil it in.
struct Sample {
    dir: tempfile::TempDir,
    files: Vec<(String, Vec<u8>)>,
    content: Content,
    /// It has a persistent index, and is opened with it, to write.
    has_index: bool,
}

impl Sample {
    fn new() -> Sample {
        Sample::with(false)
    }

    fn with(has_index: bool) -> Sample {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        // Every run spoils the same files: whether damage costs much depends on where rows are.
        let options = if has_index { indexed() } else { tiny().stepped() };
        let db = options.open(&path).unwrap();
        let in_level0 =
            |name, container| db.create_table(name, TableOptions::new().level0(container)).unwrap();
        let t = in_level0("t", Level0Container::Matrix);
        let u = in_level0("u", Level0Container::Triangle);
        let v = db.create_table("v", table_options(true)).unwrap();
        let mut chance = Chance::new(18);
        for n in 0..2500u64 {
            let mut batch = WriteBatch::new();
            let key = format!("key {:06}", chance.below(600));
            match n % 9 {
                0 => batch.delete(&t, &key),
                _ => batch.put(&t, &key, chance.bytes(100 + chance.clone().below(900) as usize)),
            };
            batch.put(&u, format!("{}", n % 400), n.to_be_bytes());
            if n % 20 == 3 {
                batch.put(&v, format!("{}", n % 700), chance.bytes(1500));
            }
            db.write_with(&batch, Durability::Relaxed).unwrap();
            while db.step().unwrap() {}
        }
        let content = read_all(&db).unwrap();
        drop((t, u, v));
        db.close().unwrap();
        without_links(&path);
        let entries = fs::read_dir(&path).unwrap().map(Result::unwrap);
        let mut files: Vec<(String, Vec<u8>)> = entries
            .map(|e| (e.file_name().into_string().unwrap(), fs::read(e.path()).unwrap()))
            .filter(|(_, bytes)| !bytes.is_empty())
            .collect();
        files.sort();
        Sample { dir, files, content, has_index }
    }

    /// The directory, as it was.
    fn restored(&self, touched: &[String]) -> PathBuf {
        let path = self.dir.path().join("db");
        without_links(&path);
        for entry in fs::read_dir(&path).unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            if name != "LOCK" && !self.files.iter().any(|(file, _)| *file == name) {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        let is_touched = |name: &String| self.has_index || touched.contains(name);
        for (name, bytes) in self.files.iter().filter(|(name, _)| is_touched(name)) {
            fs::write(path.join(name), bytes).unwrap();
        }
        path
    }
}

/// What is done to a file.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Flip { at: u64, xor: u8 },
    Cut { len: u64 },
}

impl Harm {
    fn any(chance: &mut Chance, len: u64) -> Harm {
        if chance.percent(20) {
            return Harm::Cut { len: chance.below(len) };
        }
        // Structures crowd at the start; most of the rest is records, or nothing.
        let reach = if chance.percent(40) { len.min(48 << 10) } else { len };
        Harm::Flip { at: chance.below(reach), xor: *chance.pick(&[1, 0x80, 0xff, 0x10]) }
    }

    fn inflict(self, path: &Path) {
        let file = fs::File::options().read(true).write(true).open(path).unwrap();
        match self {
            Harm::Flip { at, xor } => {
                let mut byte = [0];
                if file.read_at(&mut byte, at).unwrap() == 0 {
                    return;
                }
                file.write_all_at(&[byte[0] ^ xor], at).unwrap();
            }
            Harm::Cut { len } => file.set_len(len).unwrap(),
        }
    }
}

fn check(sample: &Sample, path: &Path) -> Result<(), String> {
    let report = terrace::Options::new().verify(path).map_err(|e| format!("verify fails: {e}"))?;
    for damage in &report.damages {
        let named = !damage.expected.is_empty() && !damage.got.is_empty();
        if !named || !["pm", "journal", "ssd"].contains(&damage.tier) {
            return Err(format!("not named in full: {damage:?}"));
        }
    }
    let opened = match sample.has_index {
        true => indexed().open(path),
        false => tiny().open_read_only(path),
    };
    if let Ok(db) = &opened {
        let is_index = |damage: &terrace::Damage| damage.file.ends_with("index");
        let (seen, note) = (report.damages.iter().any(is_index), db.stats().pm.index_note);
        if seen != note.is_some() {
            return Err(format!("verify sees {:?}, the opening {note:?}", report.damages));
        }
    }
    match opened.and_then(|db| read_all(&db)) {
        Ok(content) => match content.differs_from(&sample.content) {
            Some(what) => Err(format!("a wrong answer: {what}")),
            None => Ok(()),
        },
        Err(e) if e.kind() == ErrorKind::Corrupt && e.damage().is_some() => {
            let unseen = report.damages.is_empty();
            if unseen { Err(format!("verify does not see: {e}")) } else { Ok(()) }
        }
        Err(e) => Err(format!("neither right nor Corrupt: {:?}, {e}", e.kind())),
    }
}

/// What is salvaged of a damaged database is right wherever nothing is listed as lost, and lost is
/// never more than is listed.
fn salvaged(sample: &Sample, path: &Path) -> Result<u64, String> {
    let to = tempfile::tempdir().unwrap();
    let report = match terrace::Options::new().salvage(path, to.path().join("new")) {
        Ok(report) => report,
        Err(e) => return Err(format!("salvage fails: {:?}, {e}", e.kind())),
    };
    let db = terrace::Database::open(to.path().join("new")).map_err(|e| e.to_string())?;
    let content = read_all(&db).map_err(|e| e.to_string())?;
    if report.lost.is_empty() {
        return content.differs_from(&sample.content).map_or(Ok(100), Err);
    }
    let rows = |content: &Content| content.0.values().map(BTreeMap::len).sum::<usize>() as u64;
    let same = sample.content.0.iter().map(|(name, rows)| {
        let found = content.0.get(name);
        rows.iter().filter(|(key, value)| found.and_then(|f| f.get(*key)) == Some(value)).count()
    });
    Ok(same.sum::<usize>() as u64 * 100 / rows(&sample.content))
}

#[test]
fn salvage_writes_what_can_be_read_and_lists_what_was_lost() {
    let sample = Sample::new();
    assert_eq!(salvaged(&sample, &sample.restored(&[])), Ok(100));
    let (mut chance, mut wrong, mut percent) = (Chance::new(20), Vec::new(), Vec::new());
    for n in 0..rounds(25, 1000) {
        let harmed: Vec<String> = (0..2).map(|_| chance.pick(&sample.files).0.clone()).collect();
        let path = sample.restored(&harmed);
        for name in &harmed {
            let file = path.join(name);
            Harm::any(&mut chance, fs::metadata(&file).unwrap().len().max(1)).inflict(&file);
        }
        match salvaged(&sample, &path) {
            Ok(kept) => percent.push(kept),
            Err(what) => wrong.push(format!("{n}: {harmed:?}: {what}")),
        }
        sample.restored(&harmed);
    }
    eprintln!("percent of the rows kept: {percent:?}");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    let most = percent.iter().filter(|kept| **kept >= 80).count();
    assert!(most * 2 > percent.len(), "most damage costs little: {percent:?}");
}

/// Bug: what salvage had lost was named as "block of extent 8", which tells a user nothing. It has
/// the table and the keys.
#[test]
fn what_salvage_lost_is_named_by_table_and_keys() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = crate::common::tiny().create(&path).unwrap();
    let mut load = db.table("orders").unwrap().bulk_load(terrace::Existing::Refuse).unwrap();
    for n in 0..2000u32 {
        load.put(format!("key {n:05}"), [n as u8; 100]).unwrap();
    }
    load.finish().unwrap();
    db.close().unwrap();
    let file = path.join("extents-00000001");
    let mut bytes = fs::read(&file).unwrap();
    let data = bytes.iter().position(|byte| *byte != 0).unwrap();
    bytes[data + 50] ^= 1;
    fs::write(&file, bytes).unwrap();
    let report = terrace::Options::new().salvage(&path, dir.path().join("new")).unwrap();
    let [lost] = &report.lost[..] else { panic!("{:?}", report.lost) };
    assert!(lost.what.contains("of table \"orders\""), "{lost}");
    assert!(lost.what.contains("keys up to \"key 00"), "{lost}");
}

/// Bug: salvage without a journal gave the rows of one extent for those of another one.
/// Cause: the table that it wrote an extent's rows to was named by the extent's id alone. An id is
/// given again when the job that it was given to has ended without an edit, and what that job wrote
/// is found too.
/// Fix: each extent has a table of its own.
#[test]
fn two_extents_of_one_id_are_salvaged_to_two_tables() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for name in ["one", "other"] {
        let db = crate::common::tiny().create(path(name)).unwrap();
        let mut load = db.table("orders").unwrap().bulk_load(terrace::Existing::Refuse).unwrap();
        for n in 0..100u32 {
            load.put(format!("key {n:05}"), format!("{name} {n}")).unwrap();
        }
        load.finish().unwrap();
        db.close().unwrap();
    }
    fs::copy(path("other").join("extents-00000001"), path("one").join("extents-00000002")).unwrap();
    for entry in fs::read_dir(path("one")).unwrap() {
        let file = entry.unwrap().path();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if name != "LOCK" && !name.starts_with("extents-") {
            fs::remove_file(file).unwrap();
        }
    }
    let report = terrace::Options::new().salvage(path("one"), path("new")).unwrap();
    let named = report.lost.iter().filter(|lost| lost.got.contains("rows are in the table"));
    assert_eq!(named.count(), 2, "{:?}", report.lost);
    let db = crate::common::tiny().open(path("new")).unwrap();
    let mut found: Vec<Vec<u8>> = Vec::new();
    for name in db.table_names() {
        let rows = db.existing_table(&name).unwrap();
        let rows: Vec<_> = rows.iter().map(Result::unwrap).collect();
        assert_eq!(rows.len(), 100, "{name}");
        found.push(rows[0].1.to_vec());
    }
    found.sort();
    assert_eq!(found, [b"one 0".to_vec(), b"other 0".to_vec()]);
}

#[test]
fn flipped_and_cut_files_give_right_answers_or_name_the_place() {
    spoil(&Sample::new(), rounds(400, 10_000));
}

#[test]
fn so_do_those_of_a_database_with_a_persistent_index() {
    spoil(&Sample::with(true), rounds(100, 10_000));
}

fn spoil(sample: &Sample, rounds: u64) {
    let (mut chance, mut wrong, mut found) = (Chance::new(19), Vec::new(), 0);
    for n in 0..rounds {
        let (name, bytes) = chance.pick(&sample.files).clone();
        let harm = Harm::any(&mut chance, bytes.len() as u64);
        let path = sample.restored(std::slice::from_ref(&name));
        harm.inflict(&path.join(&name));
        let checked = std::panic::catch_unwind(|| check(sample, &path));
        found += u64::from(checked.is_ok());
        if let Err(what) = checked.unwrap_or_else(|_| Err("a panic".into())) {
            wrong.push(format!("{n}: {harm:?} of {name}: {what}"));
        }
        // Of one that was opened to write all is put back anyway.
        if !sample.has_index {
            sample.restored(&[name]);
        }
    }
    sample.restored(&[]);
    eprintln!("{found} looked at");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
