//! `cargo xtask measure-build`: the seconds from a one-line change to the first test.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

/// Where a line changes.
const FOLDER: &str = "engine/src/compaction";

/// What is run behind the change. Each test binary lists its tests, so none takes its time.
const COMMANDS: &[&[&str]] = &[
    &["test", "--package", "terrace", "--lib", "--", "--list"],
    &["test", "--package", "terrace", "--", "--list"],
];

/// Changes a line three times for each command, and prints the seconds to the first test.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let (path, text, at) = place(&root.join(FOLDER))?;
    let _restored = Restored { path: path.clone(), text: text.clone() };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    println!("a line of {} changes; {cores} cores", path.strip_prefix(root)?.display());
    for command in COMMANDS {
        seconds_to_first_test(root, command)?;
        let mut seconds = Vec::new();
        for round in 0..3 {
            let line = format!("\n    std::hint::black_box({}_u64);", seed() + round);
            fs::write(&path, format!("{}{line}{}", &text[..at], &text[at..]))?;
            seconds.push(seconds_to_first_test(root, command)?);
        }
        let seconds: Vec<String> = seconds.iter().map(|took| format!("{took:.1} s")).collect();
        println!("cargo {}: {}", command[..command.len() - 2].join(" "), seconds.join(", "));
    }
    Ok(true)
}

/// A number that an earlier run is not likely to have used, so that the line is new.
fn seed() -> u64 {
    u64::from(std::process::id()) << 8
}

/// Writes the file back at the end, also behind an error.
struct Restored {
    path: PathBuf,
    text: String,
}

impl Drop for Restored {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.path, &self.text) {
            eprintln!("{} keeps a line that was tried: {error}", self.path.display());
        }
    }
}

/// A file of the folder, its text, and the place behind the first brace of a function's body.
fn place(folder: &Path) -> Result<(PathBuf, String, usize)> {
    let entries = fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))?;
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    paths.sort();
    for path in paths.into_iter().filter(|path| path.extension().is_some_and(|e| e == "rs")) {
        let text = fs::read_to_string(&path)?;
        if let Some(at) = body(&text) {
            return Ok((path, text, at));
        }
    }
    bail!("no file in {} has a function", folder.display())
}

/// The offset behind the brace of the first function that is neither generic nor constant and has
/// its signature in one line.
fn body(text: &str) -> Option<usize> {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let code = line.trim_end();
        let is_plain = ["fn ", "pub fn ", "pub(crate) fn ", "pub(super) fn "]
            .iter()
            .any(|prefix| code.starts_with(prefix));
        if is_plain && code.ends_with(") {")
            || is_plain && code.contains(") -> ") && code.ends_with('{')
        {
            return Some(start + code.len());
        }
        start += line.len();
    }
    None
}

/// Runs cargo, and returns the seconds until the first test binary lists a test.
fn seconds_to_first_test(root: &Path, arguments: &[&str]) -> Result<f64> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let begin = Instant::now();
    let mut command = Command::new(cargo);
    command.current_dir(root).args(arguments).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().with_context(|| format!("starting {command:?}"))?;
    let output = child.stdout.take().context("the output of cargo is not there")?;
    let mut first = None;
    for line in BufReader::new(output).lines() {
        if line?.ends_with(": test") {
            first.get_or_insert_with(|| begin.elapsed().as_secs_f64());
        }
    }
    ensure!(child.wait()?.success(), "{command:?} failed: run it to see why");
    first.with_context(|| format!("{command:?} listed no test"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_goes_into_the_body_of_a_function() {
        let text = "const fn a() {}\nfn b<T>(\n    t: T,\n) {\n}\n\
                    pub(crate) fn c(x: u8) -> u8 {\n    x\n}\n";
        let at = body(text).unwrap();
        assert!(text[..at].ends_with("-> u8 {"), "{}", &text[..at]);
        assert_eq!(body("fn a(\n    b: u8,\n) {\n}\n"), None);
    }

    #[test]
    fn the_engine_has_such_a_function() {
        assert!(place(&crate::root().join(FOLDER)).is_ok());
    }

    #[test]
    fn the_file_is_written_back() {
        let path = std::env::temp_dir().join(format!("restored-{}", std::process::id()));
        fs::write(&path, "new").unwrap();
        drop(Restored { path: path.clone(), text: "old".into() });
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        fs::remove_file(path).unwrap();
    }
}
