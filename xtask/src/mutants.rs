//! `cargo xtask mutants [--only N | --from N]`: small slips in the engine, each of which some test
//! has to find.
//!
//! A copy of the sources is built once with all of them in it. Each stands behind a question: is it
//! this one? An environment variable answers it for each run of a test.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// The slips.
const LIST: &str = include_str!("mutants/list.toml");

/// Says which slip is made.
const VARIABLE: &str = "TERRACE_MUTANT";

/// What each slip asks whether it is made.
const QUESTION: &str = r#"
/// Which slip a run of the tests makes.
pub(crate) mod mutants {
    pub(crate) fn is(n: u32) -> bool {
        static MADE: std::sync::LazyLock<u32> = std::sync::LazyLock::new(|| {
            std::env::var("TERRACE_MUTANT").ok().and_then(|n| n.parse().ok()).unwrap_or(0)
        });
        *MADE == n
    }
}
"#;

/// A test that has no end has found something. One has none if it lasts so much longer than without
/// a slip, and so many times as long.
const LONGEST: (Duration, u32) = (Duration::from_secs(300), 5);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    mutant: Vec<Mutant>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mutant {
    file: String,
    /// What stands there, the first time after `after`, and what stands there instead.
    #[serde(default)]
    after: String,
    was: String,
    now: String,
    /// Binaries with filters, such as `lib locks::`, in the order in which they are tried.
    tests: Vec<String>,
    /// Why no test finds it.
    survives: Option<String>,
}

/// Makes each slip, one, or those from one on, and says whether a test fails; whether all fared as
/// the list says.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> Result<bool> {
    let number = |n: &str| n.parse::<usize>().context("a slip has a number");
    let meant = match arguments {
        [] => 1..=usize::MAX,
        ["--only", n] => number(n)?..=number(n)?,
        ["--from", n] => number(n)?..=usize::MAX,
        _ => bail!("usage: cargo xtask mutants [--only N | --from N]"),
    };
    let mutants = listed()?;
    let tree = root.join("target/mutants");
    copy(root, &tree)?;
    for (n, mutant) in (1..).zip(&mutants) {
        mutant.plant(&tree, n)?;
    }
    let library = tree.join("engine/src/lib.rs");
    let text = fs::read_to_string(&library)?;
    fs::write(&library, text + QUESTION)?;
    let mut tests = Tests { binaries: build(root, &tree)?, tree, longest: BTreeMap::new() };
    let (mut killed, mut all, mut as_listed) = (0, 0, true);
    for (n, mutant) in (1..).zip(&mutants).filter(|(n, _)| meant.contains(n)) {
        let mut fate = None;
        for test in &mutant.tests {
            fate = tests.fails(test, n)?;
            if fate.is_some() {
                break;
            }
        }
        all += 1;
        killed += usize::from(fate.is_some());
        as_listed &= fate.is_some() != mutant.survives.is_some();
        let fate = fate.unwrap_or_else(|| "survived".into());
        println!("{n:3} {}: {} → {}: {fate}", mutant.file, short(&mutant.was), short(&mutant.now));
    }
    println!("{killed} of {all} killed");
    let unsound = tests.longest.values().filter(|longest| longest.is_none()).count();
    Ok(as_listed && unsound == 0)
}

fn listed() -> Result<Vec<Mutant>> {
    let List { mutant } = toml::from_str(LIST).context("reading the list")?;
    Ok(mutant)
}

fn short(text: &str) -> String {
    let text: Vec<&str> = text.split_whitespace().collect();
    let text = text.join(" ");
    text.chars().take(60).collect()
}

/// What git has in its index, so that nothing that is built is copied.
fn copy(root: &Path, tree: &Path) -> Result<()> {
    if tree.exists() {
        fs::remove_dir_all(tree)?;
    }
    let prefix = format!("--prefix={}/", tree.display());
    let status = Command::new("git")
        .args(["checkout-index", "--all", &prefix])
        .current_dir(root)
        .status()
        .context("starting git")?;
    if !status.success() {
        bail!("git checkout-index ended with {status}");
    }
    Ok(())
}

impl Mutant {
    /// Its file, and where the slip is in it.
    fn place(&self, tree: &Path, n: usize) -> Result<(String, usize)> {
        let text = fs::read_to_string(tree.join(&self.file)).with_context(|| self.file.clone())?;
        let from = text.find(&self.after).with_context(|| format!("{n}: no {:?}", self.after))?;
        let at = text[from..].find(&self.was).with_context(|| format!("{n}: no {:?}", self.was))?;
        Ok((text, from + at))
    }

    /// Puts the slip beside what stands there.
    fn plant(&self, tree: &Path, n: usize) -> Result<()> {
        let path = tree.join(&self.file);
        let (text, at) = self.place(tree, n)?;
        let (head, tail) = text.split_at(at);
        let (was, now, rest) = (&self.was, &self.now, &tail[self.was.len()..]);
        // A statement stays one.
        let is_statement = was.ends_with([';', '}']);
        let (open, close) = if is_statement { ("", "") } else { ("(", ")") };
        let slip = format!("{open}if crate::mutants::is({n}) {{ {now} }} else {{ {was} }}{close}");
        fs::write(&path, format!("{head}{slip}{rest}")).map_err(Into::into)
    }
}

/// What is built: the tests of the engine, and the simulator, as the list names them.
const BUILT: [&str; 2] = [
    "test --no-run -p terrace --lib --test suite --test stepped --test processes",
    "build -p terrace-sim --bin terrace-sim",
];

/// Builds what the list names; the programs by name.
fn build(root: &Path, tree: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut binaries = BTreeMap::new();
    for arguments in BUILT {
        let output = Command::new(&cargo)
            .args(arguments.split(' '))
            .arg("--message-format=json")
            // A folder of its own: cargo takes two trees of one name in one folder for the same.
            .env("CARGO_TARGET_DIR", root.join("target/mutants-build"))
            .env_remove("CARGO_MANIFEST_DIR")
            .current_dir(tree)
            .stderr(Stdio::inherit())
            .output()
            .context("starting cargo")?;
        if !output.status.success() {
            bail!("the slips do not compile");
        }
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else { continue };
            let Some(program) = message["executable"].as_str() else { continue };
            let name = match message["target"]["kind"][0].as_str() {
                Some("lib") => "lib",
                _ => message["target"]["name"].as_str().unwrap_or_default(),
            };
            binaries.insert(name.to_string(), PathBuf::from(program));
        }
    }
    Ok(binaries)
}

/// The tests that are built.
struct Tests {
    binaries: BTreeMap<String, PathBuf>,
    tree: PathBuf,
    /// How long each that was tried may last with a slip. None if it fails without one.
    longest: BTreeMap<String, Option<Duration>>,
}

impl Tests {
    /// How a test finds a slip, if it does. One that fails without a slip finds none.
    fn fails(&mut self, test: &str, slip: usize) -> Result<Option<String>> {
        let longest = match self.longest.get(test) {
            Some(longest) => *longest,
            None => {
                let begin = Instant::now();
                let passes = self.start(test, 0)?.wait()?.success();
                let (more, times) = LONGEST;
                let longest = passes.then(|| begin.elapsed() * times + more);
                if !passes {
                    println!("{test} fails without a slip");
                }
                self.longest.insert(test.into(), longest);
                longest
            }
        };
        let Some(longest) = longest else { return Ok(None) };
        Ok(match ended(&mut self.start(test, slip)?, longest)? {
            Some(true) => None,
            Some(false) => Some(format!("killed by {test}")),
            None => Some(format!("killed by {test}, which has no end")),
        })
    }

    fn start(&self, test: &str, slip: usize) -> Result<Child> {
        let mut words = test.split_whitespace();
        let name = words.next().unwrap_or_default();
        let program = self.binaries.get(name).with_context(|| format!("no binary {name:?}"))?;
        let folder = self.tree.join(if name == "terrace-sim" { "sim" } else { "engine" });
        Command::new(program)
            .args(words)
            .env(VARIABLE, slip.to_string())
            .env("CARGO_MANIFEST_DIR", &folder)
            .current_dir(folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("starting {}", program.display()))
    }
}

/// Whether a test ends well; None if it has no end.
fn ended(child: &mut Child, longest: Duration) -> Result<Option<bool>> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        if begin.elapsed() >= longest {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bug: no slip could be made any more. Cause: what some of them replace had changed, and
    /// nothing said so before the next long run. Fix: this test.
    #[test]
    fn each_slip_has_a_place() {
        for (n, mutant) in (1..).zip(listed().unwrap()) {
            mutant.place(&crate::root(), n).unwrap();
        }
    }
}
