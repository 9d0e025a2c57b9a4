//! The Python package: its wheel, and its tests in a virtual environment below `target`.

mod environment;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::check::{Setting, passes};
use environment::{Environment, Missing};

/// The folder of the package.
const PACKAGE: &str = "bindings/python";

/// What the tests import.
const FOR_TESTS: &[&str] = &["pytest", "mypy"];

/// What some tests import that are skipped without it.
const FOR_ALL_TESTS: &[&str] = &["pyarrow", "pandas"];

/// `cargo xtask python [--test]`: builds the wheel for release, and installs it; with `--test` it
/// runs the tests on it.
pub(crate) fn run(root: &Path, rest: &[&str]) -> Result<bool> {
    let with_tests = match rest {
        [] => false,
        ["--test"] => true,
        _ => bail!("usage: cargo xtask python [--test]"),
    };
    let environment = needed(Environment::make(root, "venv"))?;
    let wheel = wheel(root, &environment, &root.join("target/python/wheels"))?;
    install_wheel(&environment, &wheel)?;
    println!("{}", wheel.display());
    println!("installed: {}", environment.program("python").display());
    if with_tests {
        needed(environment.provide(&[FOR_TESTS, FOR_ALL_TESTS].concat()))?;
        tests(root, &environment, None)?;
    }
    Ok(true)
}

/// `cargo xtask package python DIR`: the wheel for release, in a folder.
pub(crate) fn package(root: &Path, folder: &Path) -> Result<bool> {
    let environment = needed(Environment::make(root, "venv"))?;
    println!("{}", wheel(root, &environment, folder)?.display());
    Ok(true)
}

/// The stage of the check: the tests on the library that the build of the tests gave. At length,
/// on the wheel.
pub(crate) fn check(setting: &mut Setting) -> Result<()> {
    if setting.is_long() {
        return check_wheel(setting);
    }
    let library = built_for_tests(setting)?;
    let packages =
        if setting.is_full() { [FOR_TESTS, FOR_ALL_TESTS].concat() } else { FOR_TESTS.to_vec() };
    let environment = match environment_for_tests(&setting.root, &packages) {
        Ok(environment) => environment,
        Err(missing) => return skip(setting, missing),
    };
    install_library(&setting.root, &environment, &library)?;
    let root = setting.root.clone();
    tests(&root, &environment, Some(setting))
}

/// The wheel is built, installed into an environment that has nothing, and tested there.
fn check_wheel(setting: &mut Setting) -> Result<()> {
    let root = setting.root.clone();
    let packages = [FOR_TESTS, FOR_ALL_TESTS].concat();
    let environment = match environment_for_tests(&root, &packages) {
        Ok(environment) => environment,
        Err(missing) => return skip(setting, missing),
    };
    let wheel = wheel(&root, &environment, &root.join("target/python/wheels"))?;
    let empty = needed(Environment::make_anew(&root, "empty-venv"))?;
    install_wheel(&empty, &wheel)?;
    let mut command = Command::new(empty.program("python"));
    passes(command.args(["-c", "import terrace; print(terrace.__version__)"]))?;
    install_wheel(&environment, &wheel)?;
    tests(&root, &environment, Some(setting))
}

fn environment_for_tests(root: &Path, packages: &[&str]) -> Result<Environment, Missing> {
    let environment = Environment::make(root, "venv")?;
    environment.provide(packages)?;
    Ok(environment)
}

fn skip(setting: &Setting, missing: Missing) -> Result<()> {
    match missing {
        Missing::Lacks(what) => {
            setting.leave_out(format!("it lacks {what}"));
            Ok(())
        }
        Missing::Failed(error) => Err(error),
    }
}

/// What a command cannot do without.
fn needed<T>(found: Result<T, Missing>) -> Result<T> {
    found.map_err(|missing| match missing {
        Missing::Lacks(what) => anyhow::anyhow!("the Python package needs {what}"),
        Missing::Failed(error) => error,
    })
}

/// The library of the build that the tests use: no other build is made.
fn built_for_tests(setting: &mut Setting) -> Result<PathBuf> {
    let program = setting
        .programs()?
        .iter()
        .find(|program| program.is_test && program.name == "stubs")
        .context("the build of the tests has no tests of the Python package")?;
    // Cargo leaves the library of a crate beside its tests.
    let folder = program.path.parent().context("a test binary lies in no folder")?;
    let library = folder.join("lib_terrace.so");
    if !library.exists() {
        bail!("the build gave no {}", library.display());
    }
    Ok(library)
}

/// Builds the wheel for release.
fn wheel(root: &Path, environment: &Environment, folder: &Path) -> Result<PathBuf> {
    needed(environment.provide(&["maturin>=1.8,<2"]))?;
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let folder = folder.canonicalize()?;
    for old in wheels(&folder)? {
        fs::remove_file(&old).with_context(|| format!("removing {}", old.display()))?;
    }
    let mut command = Command::new(environment.program("maturin"));
    command.current_dir(root.join(PACKAGE)).args(["build", "--release", "--quiet", "--out"]);
    passes(command.arg(&folder).env("PYO3_PYTHON", environment.program("python")))?;
    wheels(&folder)?.pop().with_context(|| format!("no wheel in {}", folder.display()))
}

/// The wheels of the package in a folder.
fn wheels(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        if name.is_some_and(|name| name.starts_with("terrace-") && name.ends_with(".whl")) {
            found.push(path);
        }
    }
    Ok(found)
}

fn install_wheel(environment: &Environment, wheel: &Path) -> Result<()> {
    // What the stage of the check has put there is not a package that pip knows.
    remove_installed(environment)?;
    let mut command = environment.pip();
    passes(command.args(["install", "--force-reinstall", "--no-deps", "--no-index"]).arg(wheel))
}

/// Puts a library with the Python files around it where the environment finds it.
fn install_library(root: &Path, environment: &Environment, library: &Path) -> Result<()> {
    remove_installed(environment)?;
    let to = environment.packages()?.join("terrace");
    let from = root.join(PACKAGE).join("python/terrace");
    fs::create_dir_all(&to).with_context(|| format!("making {}", to.display()))?;
    for entry in fs::read_dir(&from).with_context(|| format!("listing {}", from.display()))? {
        let file = entry?.path();
        if file.is_file() {
            copy(&file, &to.join(file.file_name().context("a file has no name")?))?;
        }
    }
    copy(library, &to.join("_terrace.abi3.so"))
}

fn remove_installed(environment: &Environment) -> Result<()> {
    let installed = environment.packages()?.join("terrace");
    match fs::remove_dir_all(&installed) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("removing {}", installed.display()))
        }
        _ => Ok(()),
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to)
        .map(drop)
        .with_context(|| format!("copying {} to {}", from.display(), to.display()))
}

/// Runs the tests in Python. A check counts them.
fn tests(root: &Path, environment: &Environment, setting: Option<&mut Setting>) -> Result<()> {
    let mut command = Command::new(environment.program("python"));
    command.current_dir(root.join(PACKAGE)).args(["-m", "pytest", "-p", "no:cacheprovider", "-rs"]);
    command
        .env("MYPY_CACHE_DIR", root.join("target/python/mypy"))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    if setting.as_ref().is_some_and(|setting| setting.is_long()) {
        command.env("TERRACE_LONG", "1");
    }
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    print!("{text}{}", String::from_utf8_lossy(&output.stderr));
    if let (Some(setting), Some(summary)) = (setting, text.lines().last()) {
        setting.count(&as_summary(summary));
    }
    if !output.status.success() {
        bail!("the tests in Python failed: {}", output.status);
    }
    Ok(())
}

/// The summary of pytest, such as `1 failed, 70 passed in 3.2s`, as that of a test binary.
fn as_summary(line: &str) -> String {
    let of = |what: &str| {
        let counts = line.split(", ").filter_map(|part| part.split_once(' '));
        let mut found = counts.filter(|(_, rest)| rest.starts_with(what));
        found.next().and_then(|(count, _)| count.parse::<u64>().ok()).unwrap_or(0)
    };
    // An error outside of a test is a failure.
    let failed = of("failed") + of("error");
    let (passed, left_out) = (of("passed"), of("skipped"));
    format!("test result: pytest. {passed} passed; {failed} failed; {left_out} ignored")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_of_pytest_are_read() {
        let summary = |line| as_summary(line);
        let expected = "test result: pytest. 70 passed; 0 failed; 0 ignored";
        assert_eq!(summary("70 passed in 3.20s"), expected);
        let expected = "test result: pytest. 70 passed; 0 failed; 2 ignored";
        assert_eq!(summary("70 passed, 2 skipped in 3.20s"), expected);
        let expected = "test result: pytest. 70 passed; 3 failed; 0 ignored";
        assert_eq!(summary("1 failed, 70 passed, 2 errors in 3.20s"), expected);
        assert_eq!(
            summary("no tests ran in 0.1s"),
            "test result: pytest. 0 passed; 0 failed; 0 ignored"
        );
    }
}
