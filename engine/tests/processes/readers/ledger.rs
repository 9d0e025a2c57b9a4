//! A ledger in another process: readers of it, and kills of either side.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Rows, last_commit, names, rows, stepped};
use crate::common::child::{given, tell};
use crate::common::{Chance, rounds, tiny};
use terrace::{Database, Durability, Mode, Options, WriteBatch};

/// Tables and keys of the ledger's rows.
const KEYS: u64 = 400;
const NEW_TABLE: u64 = 250;

/// What commit `n` does.
fn change(n: u64, state: &mut BTreeMap<String, Rows>) {
    let mut chance = Chance::new(n);
    let table = format!("t{}", chance.below(n / NEW_TABLE + 1));
    let rows = state.entry(table).or_default();
    let from = chance.below(KEYS);
    match chance.below(40) {
        0 => rows.retain(|key, _| !(key_of(from)..key_of(from + 40)).contains(key)),
        _ => drop(rows.insert(key_of(from), value_of(n))),
    }
    state.entry("t0".into()).or_default().insert(b"last".to_vec(), n.to_be_bytes().to_vec());
}

fn key_of(key: u64) -> Vec<u8> {
    format!("row {key:05}").into_bytes()
}

fn value_of(n: u64) -> Vec<u8> {
    let len = 20 + Chance::new(!n).below(1500) as usize;
    Chance::new(n).bytes(len)
}

/// The same, in a database.
fn commit(db: &Database, n: u64) {
    let mut chance = Chance::new(n);
    let table = db.table(&format!("t{}", chance.below(n / NEW_TABLE + 1))).unwrap();
    let (mut batch, from) = (WriteBatch::new(), chance.below(KEYS));
    match chance.below(40) {
        0 => batch.delete_range(&table, key_of(from)..key_of(from + 40)),
        _ => batch.put(&table, key_of(from), value_of(n)),
    };
    batch.put(&db.table("t0").unwrap(), "last", n.to_be_bytes());
    let durable = n.is_multiple_of(4);
    db.write_with(&batch, if durable { Durability::Durable } else { Durability::Relaxed }).unwrap();
}

fn growing() -> Options {
    tiny().pm_size(8 << 20).pm_initial_size(2 << 20)
}

/// The same, with the region in mapped memory.
fn mapped() -> Options {
    growing().mode(Mode::Emulated { delay: Duration::ZERO })
}

/// Not a test of its own: a writer, or a reader, until it is killed or its input ends.
#[test]
fn child_entry() {
    let Some((directory, what)) = given() else { return };
    let shared = File::options().write(true).open(directory.join("acknowledged")).unwrap();
    let path = directory.join("db");
    if what == "read" {
        let reader = growing().open_read_only(&path).unwrap();
        tell(&format!("{}", last_commit(&reader)));
        for line in std::io::stdin().lines() {
            drop(line.unwrap());
        }
        return;
    }
    let (options, from) = match what.strip_prefix("mapped ") {
        Some(from) => (mapped(), from),
        None => (growing(), &*what),
    };
    let db = options.open(&path).unwrap();
    for n in from.parse::<u64>().unwrap().. {
        commit(&db, n);
        // A durable one that was acknowledged.
        if n.is_multiple_of(4) {
            shared.write_all_at(&n.to_le_bytes(), 0).unwrap();
        }
        if n.is_multiple_of(1000) {
            tell(&format!("{n}"));
        }
    }
}

/// A child process; dropped, it is killed.
struct Other {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStderr>>,
    _input: ChildStdin,
}

impl Other {
    fn start(directory: &Path, what: &str) -> Other {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["readers::ledger::child_entry", "--exact", "--nocapture", "--test-threads=1"])
            .env("TERRACE_CHILD_DIRECTORY", directory)
            .env("TERRACE_CHILD_WHAT", what)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let input = child.stdin.take().unwrap();
        Other { child, lines, _input: input }
    }

    /// The next line that it tells.
    fn told(&mut self) -> String {
        let mut other = String::new();
        for line in self.lines.by_ref().map_while(Result::ok) {
            match line.strip_prefix("told ") {
                Some(line) => return line.to_string(),
                None => other = other + &line + "\n",
            }
        }
        panic!("the child ended by itself: {other}");
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // One that was killed already is gone.
        self.child.kill().unwrap_or(());
        self.child.wait().map(drop).unwrap_or(());
    }
}

/// What a reader has to show, from commit to commit.
#[derive(Default)]
struct Model {
    state: BTreeMap<String, Rows>,
    next: u64,
}

impl Model {
    /// The reader shows the state after one commit, and that is none before `least`.
    fn check(&mut self, reader: &Database, least: u64) {
        let last = rows(reader, "t0")
            .get(&b"last"[..])
            .map_or(0, |last| u64::from_be_bytes(last[..].try_into().unwrap()));
        assert!(last >= least, "it shows commit {last}, and {least} was acknowledged");
        assert!(last + 1 >= self.next, "it goes back to {last} from {}", self.next);
        while self.next <= last {
            change(self.next, &mut self.state);
            self.next += 1;
        }
        for (table, expected) in &self.state {
            assert_eq!(&rows(reader, table), expected, "{table} at {last}");
        }
    }
}

fn world() -> (tempfile::TempDir, File) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("acknowledged"), [0; 8]).unwrap();
    let file = File::open(dir.path().join("acknowledged")).unwrap();
    (dir, file)
}

fn acknowledged(file: &File) -> u64 {
    let mut last = [0; 8];
    file.read_exact_at(&mut last, 0).unwrap();
    u64::from_le_bytes(last)
}

/// A ledger in another process, which is killed and begun again, through drains, compactions,
/// growth of the region, new tables and range deletes. Each moment that a reader shows is the state
/// after one of its commits, and no acknowledged one is missing.
#[test]
fn a_reader_shows_the_ledger_of_a_writer_as_of_a_commit() {
    (0..rounds(1, 3)).for_each(|_| shows_the_ledger(growing, ""));
}

/// The same of a region that the writer changes in mapped memory.
#[test]
fn a_reader_shows_the_ledger_of_a_writer_in_mapped_memory() {
    (0..rounds(1, 3)).for_each(|_| shows_the_ledger(mapped, "mapped "));
}

fn shows_the_ledger(options: fn() -> Options, how: &str) {
    let (dir, file) = world();
    let (mut model, mut next) = (Model::default(), 0);
    for _ in 0..rounds(3, 8) {
        let mut writer = Other::start(dir.path(), &format!("{how}{next}"));
        writer.told();
        let path = dir.path().join("db");
        let mut reader = growing().open_read_only(&path).unwrap();
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(4) {
            let least = acknowledged(&file);
            reader = reader.refresh().unwrap();
            model.check(&reader, least);
        }
        let shown = rows(&reader, "t0");
        writer.kill();
        assert_eq!(rows(&reader, "t0"), shown, "it reads on without its writer");
        reader = reader.refresh().unwrap();
        model.check(&reader, acknowledged(&file));
        next = model.next;
        // The next writer opens beside it.
        let mut writer = Other::start(dir.path(), &format!("{how}{next}"));
        writer.told();
        model.check(&reader, 0);
        writer.kill();
        drop(reader);
        let last = options().open_read_only(&path).unwrap();
        model.check(&last, acknowledged(&file));
        next = model.next;
    }
}

/// A reader that is killed leaves its name, and keeps nothing.
#[test]
fn what_a_killed_reader_kept_comes_free() {
    let (dir, _file) = world();
    let path = dir.path().join("db");
    let mut writer = stepped(&path);
    writer.put_all(0..1500);
    writer.compact();
    let mut reader = Other::start(dir.path(), "read");
    assert_eq!(reader.told(), last_commit(&writer.db).to_string());
    writer.put_all(0..1500);
    writer.compact();
    let kept = writer.db.stats().disk;
    assert!(kept.readers == 1 && kept.kept_bytes > 0);
    reader.kill();
    assert_eq!(names(&path).len(), 1, "a killed process removes nothing");
    while writer.db.step().unwrap() {}
    let kept = writer.db.stats().disk;
    assert_eq!((kept.readers, kept.kept_bytes), (0, 0));
    assert_eq!(names(&path).len(), 0);
}
