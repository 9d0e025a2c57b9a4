//! The consistency conditions, after a process is killed in the midst of its terminals' work.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use super::terminal::Terminal;
use super::{Scale, check, load};
use crate::stores::transactions::{self, Transactional};
use crate::stores::{Kind, Memory};

const SCALE: Scale = Scale { warehouses: 2, customers: 9, items: 50 };
const TERMINALS: u32 = 3;

/// Transactions that are acknowledged before the process is killed.
const ENOUGH: usize = 120;

const DIRECTORY: &str = "TPCC_CHILD_DIRECTORY";
const ROUND: &str = "TPCC_CHILD_ROUND";

fn open(dir: &Path) -> Box<dyn Transactional> {
    let memory = Memory { write: 16 << 20, cache: 16 << 20 };
    transactions::open(Kind::Terrace, dir, memory).unwrap()
}

/// Not a test of its own: what the killed process runs. Without its variables it does nothing.
#[test]
fn child_entry() {
    let Some(dir) = std::env::var_os(DIRECTORY) else { return };
    let round: u32 = std::env::var(ROUND).unwrap().parse().unwrap();
    let store = open(Path::new(&dir));
    std::thread::scope(|scope| {
        for n in 0..TERMINALS {
            let store = &*store;
            scope.spawn(move || {
                // Terminals of their own: a history row is named by its terminal's.
                let number = round * TERMINALS + n;
                let mut terminal = Terminal::new(store, SCALE, number, u64::from(round));
                loop {
                    terminal.next().unwrap();
                    std::io::stderr().write_all(b"done\n").unwrap();
                }
            });
        }
    });
}

/// Has the work done by a process until it is killed; how many transactions it told of.
fn work_until_killed(dir: &Path, round: u32) -> usize {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["figures::tpcc::kills::child_entry", "--exact", "--nocapture"])
        .env(DIRECTORY, dir)
        .env(ROUND, round.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut done, mut other) = (0, String::new());
    for line in BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok) {
        if line != "done" {
            other = other + &line + "\n";
            continue;
        }
        done += 1;
        if done == ENOUGH {
            child.kill().unwrap();
        }
    }
    let status = child.wait().unwrap();
    assert!(status.code().is_none(), "the child ended by itself, {status}: {other}");
    done
}

#[test]
fn all_conditions_hold_after_kills() {
    let dir = tempfile::tempdir().unwrap();
    load::load(&*open(dir.path()), SCALE, 3).unwrap();
    for round in 0..4 {
        let done = work_until_killed(dir.path(), round);
        assert!(done >= ENOUGH, "{done} transactions in round {round}");
        check::check(&*open(dir.path())).unwrap();
    }
}
