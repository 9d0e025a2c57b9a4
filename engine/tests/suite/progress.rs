//! Progress of long calls, and what is left where one is cancelled.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::common::content::{Content, read_all};
use crate::common::tiny;
use terrace::{Database, ErrorKind, Options, Progress, Result};

/// What is done, with what, and the operation that is told of.
struct Call {
    name: &'static str,
    operation: &'static str,
    run: fn(Options, &Place) -> Result<()>,
}

/// A database, a set with one backup of it, and a directory that is missing.
struct Place(PathBuf);

impl Place {
    fn db(&self) -> PathBuf {
        self.0.join("db")
    }

    fn set(&self) -> PathBuf {
        self.0.join("set")
    }

    fn to(&self) -> PathBuf {
        self.0.join("to")
    }

    /// The same, elsewhere.
    fn copied(&self, to: &Path) -> Place {
        for part in ["db", "set"] {
            fs::create_dir_all(to.join(part)).unwrap();
            for file in fs::read_dir(self.0.join(part)).unwrap() {
                let file = file.unwrap();
                fs::copy(file.path(), to.join(part).join(file.file_name())).unwrap();
            }
        }
        Place(to.to_path_buf())
    }
}

fn plain() -> Options {
    tiny().stepped()
}

const CALLS: [Call; 9] = [
    Call { name: "open", operation: "open", run: |options, at| options.open(at.db()).map(drop) },
    Call {
        name: "verify",
        operation: "verify",
        run: |options, at| options.verify(at.db()).map(|report| assert!(report.is_sound())),
    },
    Call {
        name: "verify of an open database",
        operation: "verify",
        run: |options, at| {
            let report = options.open(at.db())?.verify()?;
            assert!(report.is_sound(), "{report:?}");
            Ok(())
        },
    },
    Call {
        name: "verify of a set",
        operation: "verify",
        run: |options, at| {
            options.backup_set(at.set())?.verify().map(|report| assert!(report.is_sound()))
        },
    },
    Call {
        name: "backup",
        operation: "backup",
        run: |options, at| options.open(at.db())?.backup(at.set()).map(drop),
    },
    Call {
        name: "restore",
        operation: "restore",
        run: |options, at| options.backup_set(at.set())?.restore(1, at.to()),
    },
    Call {
        name: "salvage",
        operation: "salvage",
        run: |options, at| {
            options.salvage(at.db(), at.to()).map(|report| assert!(report.lost.is_empty()))
        },
    },
    Call {
        name: "digest",
        operation: "digest",
        run: |options, at| options.open(at.db())?.digest().map(drop),
    },
    Call { name: "close", operation: "close", run: |options, at| options.open(at.db())?.close() },
];

/// Several zones, several extents, and what the set has not.
fn made(at: &Path) -> (Place, Content) {
    let place = Place(at.to_path_buf());
    let db = plain().open(place.db()).unwrap();
    let put = |name: &str, from: u32| {
        let table = db.table(name).unwrap();
        for n in from..from + 500 {
            let word = n.wrapping_mul(0x9E37_79B9).to_be_bytes();
            table.put(word, word.repeat(200)).unwrap();
            while db.step().unwrap() {}
        }
        table
    };
    for name in ["a", "b"] {
        db.compact_range(&put(name, 0), ..).unwrap();
    }
    db.backup(place.set()).unwrap();
    put("a", 250);
    let content = read_all(&db).unwrap();
    db.close().unwrap();
    (place, content)
}

/// Options that keep what is told of an operation, and break at call number `breaks_at`.
fn watched(
    operation: &'static str,
    breaks_at: Option<usize>,
) -> (Options, Arc<Mutex<Vec<Progress>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&told);
    let options = plain().on_progress(move |at| {
        if at.operation != operation {
            return ControlFlow::Continue(());
        }
        let mut kept = kept.lock().unwrap();
        kept.push(*at);
        match breaks_at == Some(kept.len() - 1) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    (options, told)
}

fn content_of(path: &Path) -> Content {
    let db: Database = plain().open_existing(path).unwrap();
    let content = read_all(&db).unwrap();
    db.close().unwrap();
    content
}

/// What a call leaves that was cancelled.
fn check_left(call: &Call, at: &Place, content: &Content, case: &str) {
    assert_eq!(content_of(&at.db()).differs_from(content), None, "{case}");
    let set = plain().backup_set(at.set()).unwrap();
    let numbers: Vec<u64> = set.list().unwrap().iter().map(|backup| backup.number).collect();
    assert_eq!(numbers, [1], "{case}");
    assert!(set.verify().unwrap().is_sound(), "{case}");
    assert!(plain().open_existing(at.to()).is_err(), "{case}: no database is there");
    // Done once more, it comes to its end.
    (call.run)(plain(), at).unwrap();
    match call.name {
        "restore" => drop(content_of(&at.to())),
        "salvage" => assert_eq!(content_of(&at.to()).differs_from(content), None, "{case}"),
        "backup" => assert_eq!(set.list().unwrap().len(), 2, "{case}"),
        _ => {}
    }
}

/// Each operation tells how far it is. Cancelled at the first, a middle or the last call it leaves
/// what `Options::on_progress` says, and may be done again.
#[test]
fn work_tells_how_far_it_is_and_leaves_nothing_half_where_it_is_cancelled() {
    let dir = tempfile::tempdir().unwrap();
    let (base, content) = made(&dir.path().join("base"));
    for call in &CALLS {
        let name = call.name;
        let copy = |case: &str| base.copied(&dir.path().join(format!("{name} {case}")));
        let (options, told) = watched(call.operation, None);
        (call.run)(options, &copy("whole")).unwrap();
        let told = std::mem::take(&mut *told.lock().unwrap());
        assert!(told.len() > 3, "{name}: {told:?}");
        assert!(told.iter().all(|at| at.done <= at.total), "{name}: {told:?}");
        assert!(told.is_sorted_by_key(|at| at.done), "{name}: {told:?}");
        let (first, last) = (told[0], told[told.len() - 1]);
        assert_eq!((first.done, last.done), (0, last.total), "{name}: {told:?}");
        assert!(told[1..told.len() - 1].iter().all(|at| at.done < at.total), "{name}: {told:?}");
        let middle = told.iter().filter(|at| 0 < at.done && at.done < at.total).count();
        assert!(last.total > 0 && middle > 0, "{name}: {told:?}");
        let told_whole = told.len();
        for breaks_at in [0, told_whole / 2, told_whole - 1] {
            let (at, case) = (copy(&breaks_at.to_string()), format!("{name}, call {breaks_at}"));
            let (options, told) = watched(call.operation, Some(breaks_at));
            let ended = (call.run)(options, &at);
            // A closing goes on. Behind the last part of a verification there is nothing to end.
            let is_last = breaks_at == told_whole - 1;
            if call.operation == "close" || call.operation == "verify" && is_last {
                ended.unwrap();
                continue;
            }
            let error = ended.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Cancelled, "{case}: {error}");
            assert_eq!(told.lock().unwrap().len(), breaks_at + 1, "{case}: no call follows");
            check_left(call, &at, &content, &case);
        }
    }
}

/// A panic of the function ends there, as one of `on_event` does.
#[test]
fn a_panic_while_work_is_told_of_ends_there() {
    let dir = tempfile::tempdir().unwrap();
    let (base, content) = made(&dir.path().join("base"));
    for call in &CALLS {
        let at = base.copied(&dir.path().join(call.name));
        let options = plain().on_progress(|at| panic!("told of {}", at.operation));
        (call.run)(options, &at).unwrap();
        assert_eq!(content_of(&at.db()).differs_from(&content), None, "{}", call.name);
    }
}

/// Between the first call and the last one the function is called ten times a second at most.
#[test]
fn progress_is_told_ten_times_a_second_at_most() {
    let dir = tempfile::tempdir().unwrap();
    let (base, _) = made(&dir.path().join("base"));
    let told = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&told);
    let options = tiny().on_progress(move |at| {
        *counted.lock().unwrap() += u128::from(at.operation == "verify");
        ControlFlow::Continue(())
    });
    let begin = Instant::now();
    options.verify(base.db()).unwrap();
    let most = 2 + begin.elapsed().as_millis() / 100;
    let told = *told.lock().unwrap();
    assert!((2..=most).contains(&told), "{told} calls, {most} at most");
}
