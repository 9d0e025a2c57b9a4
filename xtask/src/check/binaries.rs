//! The programs that one build of the tests gives: test binaries, and the commands that integration
//! tests start. All stages that run code take it from here, so the engine is built once.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::{Setting, cargo};

/// One program that cargo built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// The name of its target: `suite`, or the crate for unit tests.
    pub(crate) name: String,
    /// The file.
    pub(crate) path: PathBuf,
    /// The folder of its crate, in which cargo runs tests.
    pub(crate) folder: PathBuf,
    /// Whether it is a test binary.
    pub(crate) is_test: bool,
}

impl Program {
    /// The program as a command, in the surroundings that cargo gives to tests.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }

    /// The names of its tests.
    pub(crate) fn tests(&self) -> Result<Vec<String>> {
        let mut command = self.command();
        let output = command.args(["--list", "--format", "terse"]).output();
        let output = output.with_context(|| format!("starting {}", self.path.display()))?;
        if !output.status.success() {
            bail!("{} --list: {}", self.name, output.status);
        }
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    }
}

/// Builds all tests of the workspace, with the commands that they start.
pub(crate) fn build(setting: &Setting) -> Result<Vec<Program>> {
    let mut command = cargo(setting);
    command.args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]);
    command.args(setting.features());
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("starting {command:?}"))?;
    if !output.status.success() {
        bail!("the tests do not build");
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut programs = Vec::new();
    for line in text.lines() {
        programs.extend(program(line)?);
    }
    Ok(programs)
}

#[derive(Deserialize)]
struct Message {
    reason: String,
}

#[derive(Deserialize)]
struct Artifact {
    manifest_path: PathBuf,
    target: Target,
    profile: Profile,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// The program that a message of cargo tells of, if it does. Examples are built, not run.
fn program(line: &str) -> Result<Option<Program>> {
    let message: Message = serde_json::from_str(line).context("reading a message of cargo")?;
    if message.reason != "compiler-artifact" {
        return Ok(None);
    }
    let Artifact { manifest_path, target, profile, executable } =
        serde_json::from_str(line).context("reading what cargo built")?;
    let is_command = target.kind.iter().any(|kind| kind == "bin");
    let Some(path) = executable.filter(|_| profile.test || is_command) else { return Ok(None) };
    let folder = manifest_path.parent().unwrap_or(Path::new("")).to_owned();
    Ok(Some(Program { name: target.name, path, folder, is_test: profile.test }))
}

/// The command called `name`.
pub(crate) fn find<'a>(programs: &'a [Program], name: &str) -> Result<&'a Program> {
    programs
        .iter()
        .find(|program| !program.is_test && program.path.file_stem() == Some(OsStr::new(name)))
        .with_context(|| format!("the build of the tests has no command {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(kind: &str, test: bool, executable: &str) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","manifest_path":"/a/Cargo.toml",
            "target":{{"kind":["{kind}"],"name":"n"}},"profile":{{"test":{test}}},
            "executable":{executable}}}"#
        )
    }

    #[test]
    fn tests_and_commands_are_programs_and_nothing_else_is() {
        let built = |line: &str| program(line).unwrap().map(|found| found.is_test);
        assert_eq!(built(&artifact("lib", true, "\"/t/n-1\"")), Some(true));
        assert_eq!(built(&artifact("test", true, "\"/t/n-1\"")), Some(true));
        assert_eq!(built(&artifact("bin", false, "\"/t/n\"")), Some(false));
        assert_eq!(built(&artifact("example", false, "\"/t/n\"")), None);
        assert_eq!(built(&artifact("lib", false, "null")), None);
        assert_eq!(built(r#"{"reason":"build-finished","success":true}"#), None);
        assert!(program("no message").is_err());
    }

    #[test]
    fn a_program_runs_in_the_folder_of_its_crate() {
        let found = program(&artifact("test", true, "\"/t/n-1\"")).unwrap().unwrap();
        assert_eq!(found.command().get_current_dir(), Some(Path::new("/a")));
    }

    #[test]
    fn a_command_is_found_by_its_name_and_its_unit_tests_are_not() {
        let programs: Vec<Program> = [("bin", true, "\"/t/n-1\""), ("bin", false, "\"/t/n\"")]
            .iter()
            .filter_map(|(kind, test, path)| program(&artifact(kind, *test, path)).unwrap())
            .collect();
        assert_eq!(find(&programs, "n").unwrap().path, Path::new("/t/n"));
        assert!(find(&programs, "m").is_err());
    }
}
