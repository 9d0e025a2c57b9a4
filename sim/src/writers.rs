//! Two writers of one database, on real files: the second must be refused.

use std::path::PathBuf;

use terrace::testing::Failpoint;
use terrace::{ErrorKind, Options};

use crate::violation::{Class, Violation};

/// A directory that is removed with all that is in it.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            debug_assert!(false, "{}: {error}", self.0.display());
        }
    }
}

/// Opens a database twice.
pub fn check(failpoint: Option<Failpoint>) -> Result<(), Violation> {
    let name = format!("terrace-sim-writers-{}-{failpoint:?}", std::process::id());
    let directory = Directory(std::env::temp_dir().join(name));
    let options = || {
        let options = Options::new().pm_size(4 << 20);
        match failpoint {
            Some(bug) => options.failpoint(bug),
            None => options,
        }
    };
    let path = directory.0.join("db");
    std::fs::create_dir_all(&directory.0).map_err(|e| Class::Refused.violation(e))?;
    let first = options().create(&path).map_err(|e| Class::Refused.violation(e))?;
    let second = options().open(&path);
    drop(first);
    match second {
        Ok(_) => Err(Class::TwoWriters.violation(path.display())),
        Err(e) if e.kind() == ErrorKind::Busy => Ok(()),
        Err(e) => Err(Class::WrongError.violation(e)),
    }
}
