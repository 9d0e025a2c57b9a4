//! `cargo xtask fuzz`: every decoder, or one, under libFuzzer for so many minutes each; and
//! `cargo xtask corpora`, which makes what it starts from.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::check::{Setting, passes};

/// Minutes for each decoder in the long check.
const LONG: f64 = 10.0;

/// The most memory that an input may make a decoder ask for at once: more than the body of a block
/// and what goes around it.
const MEMORY: &str = "-malloc_limit_mb=16";

/// Ten minutes for each target, in the long suite only.
pub(crate) fn check(setting: &mut Setting) -> Result<()> {
    if let Some(missing) = missing() {
        setting.leave_out(missing);
        return Ok(());
    }
    targets(&setting.root)?.iter().try_for_each(|target| fuzz(&setting.root, target, LONG))
}

/// What `cargo xtask fuzz [--minutes N] [TARGET]` does.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> Result<bool> {
    let (minutes, only) = match arguments {
        ["--minutes", minutes, rest @ ..] => (minutes.parse().context("--minutes")?, rest),
        rest => (1.0, rest),
    };
    if let Some(missing) = missing() {
        bail!("{missing}");
    }
    let mut targets = targets(root)?;
    match only {
        [] => {}
        [only] => targets.retain(|target| target == only),
        _ => bail!("one target, or none for all of them"),
    }
    ensure!(!targets.is_empty(), "there is no target {only:?}: see fuzz/fuzz_targets");
    targets.iter().try_for_each(|target| fuzz(root, target, minutes))?;
    Ok(true)
}

/// Makes the corpora out of real databases.
pub(crate) fn corpora(root: &Path) -> Result<bool> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["run", "--quiet", "--package", "terrace", "--example", "corpora", "--"];
    passes(Command::new(cargo).current_dir(root).args(arguments).arg("fuzz/corpus"))?;
    Ok(true)
}

/// What is new in the corpus goes to `fuzz/found`, what fails to `fuzz/artifacts`.
fn fuzz(root: &Path, target: &str, minutes: f64) -> Result<()> {
    println!("fuzz: {target}, {minutes} minutes");
    let crate_of_targets = root.join("fuzz");
    let found = crate_of_targets.join("found").join(target);
    fs::create_dir_all(&found).with_context(|| format!("making {}", found.display()))?;
    let mut command = nightly("cargo");
    command.current_dir(&crate_of_targets).args(["fuzz", "run", target]);
    command.arg(found).arg(format!("corpus/{target}")).arg("--");
    command.arg(format!("-max_total_time={:.0}", minutes * 60.0));
    passes(command.args([MEMORY, "-max_len=65536", "-verbosity=0", "-print_final_stats=1"]))
        .with_context(|| format!("{target}: put what is in fuzz/artifacts into its corpus"))
}

/// The names of all targets.
fn targets(root: &Path) -> Result<Vec<String>> {
    let folder = root.join("fuzz/fuzz_targets");
    let entries = fs::read_dir(&folder).with_context(|| format!("{}", folder.display()))?;
    let names = entries
        .flatten()
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".rs")?.to_string()));
    let mut names: Vec<String> = names.collect();
    names.sort();
    Ok(names)
}

/// A program of the nightly toolchain. The cargo that runs this program names its own toolchain.
fn nightly(program: &str) -> Command {
    let mut command = Command::new(program);
    command.arg("+nightly");
    for variable in ["RUSTUP_TOOLCHAIN", "CARGO", "RUSTC"] {
        command.env_remove(variable);
    }
    command
}

/// What is needed and not there.
fn missing() -> Option<String> {
    let works = |command: &mut Command| command.output().is_ok_and(|out| out.status.success());
    if !works(nightly("cargo").arg("--version")) {
        return Some("there is no nightly toolchain; `rustup toolchain install nightly`".into());
    }
    let there = works(nightly("cargo").args(["fuzz", "--version"]));
    (!there).then(|| "cargo-fuzz is missing; `cargo install cargo-fuzz`".into())
}
