//! A process in a small control group: a database works there with no option set.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests stop and tell")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use terrace::{Database, Options};

const DIRECTORY: &str = "TERRACE_MEMORY_DIRECTORY";
const GROUP: &str = "TERRACE_MEMORY_GROUP";

/// The bound, and some times as much data.
const BOUND: u64 = 256 << 20;
const ROWS: u64 = 400_000;
const VALUE: usize = 1000;

/// A control group of memory, until this is dropped.
struct Group(PathBuf);

impl Group {
    /// One of version 1 or 2; `None` where the machine or its rights have none.
    fn of(bytes: u64) -> Option<Group> {
        let places =
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        places.into_iter().find_map(|(root, limit)| {
            let path = Path::new(root).join(format!("terrace-test-{}", std::process::id()));
            fs::create_dir(&path).ok()?;
            let group = Group(path);
            fs::write(group.0.join(limit), bytes.to_string()).ok()?;
            Some(group)
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        drop(fs::remove_dir(&self.0));
    }
}

/// Not a test of its own: what the process in the group does. Without its variables it does
/// nothing.
#[test]
fn process_of_a_group() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let group = PathBuf::from(std::env::var_os(GROUP).unwrap());
    fs::write(group.join("cgroup.procs"), std::process::id().to_string()).unwrap();
    let db = Options::new().open(directory).unwrap();
    let limit = db.stats().memory.limit;
    assert!((BOUND / 4..=BOUND / 2).contains(&limit), "the limit follows the group: {limit}");
    fill(&db);
    let stats = db.stats().memory;
    assert!(stats.total() <= stats.limit, "{stats:?}");
    db.close().unwrap();
    eprintln!("said done");
}

fn fill(db: &Database) {
    let table = db.table("t").unwrap();
    let mut value = vec![0; VALUE];
    for n in 0..ROWS {
        // What does not compress: the data is larger than the group.
        let mut word = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        for byte in &mut value {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (word >> 56) as u8;
        }
        table.durability(terrace::Durability::Relaxed).put(n.to_be_bytes(), &value).unwrap();
    }
    for n in (0..ROWS).step_by(97) {
        assert_eq!(table.get(n.to_be_bytes()).unwrap().map(|value| value.len()), Some(VALUE));
    }
}

#[test]
fn a_database_with_no_option_set_works_in_256_mib() {
    let Some(group) = Group::of(BOUND) else {
        // Past the harness, which shows nothing of a test that passes: the check counts it.
        let lacks = b"\nskipped: this test needs the right to make a control group of memory\n";
        std::io::Write::write_all(&mut std::io::stderr(), lacks).unwrap();
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["memory::process_of_a_group", "--exact", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory.path())
        .env(GROUP, &group.0)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && said.contains("said done"), "{}: {said}", child.status);
}
