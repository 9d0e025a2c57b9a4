//! A virtual environment below `target/python`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Error, Result, anyhow};

/// The oldest Python that the package is for.
const OLDEST: (u32, u32) = (3, 11);

/// Why there is no environment, or no package in it.
pub(crate) enum Missing {
    /// The machine lacks something, in words.
    Lacks(String),
    /// Something else went wrong.
    Failed(Error),
}

impl From<Error> for Missing {
    fn from(error: Error) -> Missing {
        Missing::Failed(error)
    }
}

/// A virtual environment.
pub(crate) struct Environment {
    folder: PathBuf,
}

impl Environment {
    /// The environment called `name`, which is made if it is missing.
    pub(crate) fn make(root: &Path, name: &str) -> Result<Environment, Missing> {
        let environment = Environment { folder: root.join("target/python").join(name) };
        if environment.works() {
            return Ok(environment);
        }
        Environment::make_anew(root, name)
    }

    /// The environment called `name`, without what was in it.
    pub(crate) fn make_anew(root: &Path, name: &str) -> Result<Environment, Missing> {
        let folder = root.join("target/python").join(name);
        let Some(python) = python() else {
            let (major, minor) = OLDEST;
            return Err(Missing::Lacks(format!("Python {major}.{minor} or later")));
        };
        if let Some(parent) = folder.parent() {
            fs::create_dir_all(parent).with_context(|| format!("making {}", parent.display()))?;
        }
        let mut command = Command::new(python);
        command.args(["-m", "venv", "--clear"]).arg(&folder).stdout(Stdio::null());
        let environment = Environment { folder };
        if !succeeds(&mut command)? || !environment.works() {
            return Err(Missing::Lacks("the module venv; install python3-venv".into()));
        }
        Ok(environment)
    }

    /// One of its programs.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.folder.join("bin").join(name)
    }

    pub(crate) fn pip(&self) -> Command {
        let mut command = Command::new(self.program("python"));
        command.args(["-m", "pip", "--quiet", "--disable-pip-version-check"]);
        command
    }

    /// Installs packages that are not there. It asks for nothing that is.
    pub(crate) fn provide(&self, packages: &[&str]) -> Result<(), Missing> {
        let note = self.folder.join("provided");
        let provided = fs::read_to_string(&note).unwrap_or_default();
        let is_there = |package: &&&str| !provided.lines().any(|line| line == **package);
        let wanted: Vec<&str> = packages.iter().filter(is_there).copied().collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let mut command = self.pip();
        if !succeeds(command.arg("install").args(&wanted))? {
            let names = wanted.join(", ");
            return Err(Missing::Lacks(format!("{names}, which pip could not install")));
        }
        fs::write(&note, format!("{provided}{}\n", wanted.join("\n")))
            .with_context(|| format!("writing {}", note.display()))?;
        Ok(())
    }

    /// Where its packages lie.
    pub(crate) fn packages(&self) -> Result<PathBuf> {
        let mut command = Command::new(self.program("python"));
        command.args(["-c", "import sysconfig; print(sysconfig.get_path('platlib'))"]);
        let output = command.output().with_context(|| format!("starting {command:?}"))?;
        let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if path.is_empty() { Err(anyhow!("{command:?} gave no path")) } else { Ok(path.into()) }
    }

    fn works(&self) -> bool {
        let mut command = Command::new(self.program("python"));
        command.args(["-m", "pip", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }
}

/// A Python that is recent enough.
fn python() -> Option<&'static str> {
    let test = format!("import sys; sys.exit(sys.version_info < {OLDEST:?})");
    ["python3", "python"].into_iter().find(|name| {
        let mut command = Command::new(name);
        command.args(["-c", &test]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    })
}

fn succeeds(command: &mut Command) -> Result<bool> {
    let status = command.status().with_context(|| format!("starting {command:?}"))?;
    Ok(status.success())
}
