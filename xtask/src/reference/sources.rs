//! The sources that the reference is made of.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::ARGUMENTS;
use super::declaration::{Declaration, block, declarations};
use crate::tidy::files;

/// What is searched: products, and the tests that the environment speaks to.
const FOLDERS: &[&str] = &["engine/", "cli/", "crates/", "bindings/", "sim/"];

/// Variables of these names are Terrace's, or chosen by it.
const OURS: &[&str] = &["TERRACE_", "AWS_"];

/// Variables with these beginnings are for processes that a test starts, or for the server of
/// MariaDB.
const INNER: &[&str] =
    &["TERRACE_CHILD_", "TERRACE_KILL_", "TERRACE_MUTANT", "TERRACE_HOLD", "TERRACE_FAILING"];

pub(super) struct Sources {
    texts: BTreeMap<String, String>,
    variables: BTreeSet<String>,
}

impl Sources {
    pub(super) fn load(root: &Path) -> Result<Sources> {
        let (mut texts, mut variables) = (BTreeMap::new(), BTreeSet::new());
        for path in files::list(root)? {
            if !path.ends_with(".rs") || !FOLDERS.iter().any(|folder| path.starts_with(folder)) {
                continue;
            }
            let text = fs::read_to_string(root.join(&path));
            let text = text.with_context(|| format!("reading {path}"))?;
            variables.extend(variables_of(&text).map(str::to_owned));
            texts.insert(path, text);
        }
        Ok(Sources { texts, variables })
    }

    /// The text of a file.
    pub(super) fn text(&self, path: &str) -> Result<&str> {
        self.texts.get(path).map(String::as_str).with_context(|| format!("no file {path}"))
    }

    /// The files of the engine with their paths.
    pub(super) fn engine(&self) -> impl Iterator<Item = (&str, &str)> {
        let files = self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        files.filter(|(path, _)| path.starts_with("engine/src/"))
    }

    /// The environment variables that are read.
    pub(super) fn variables(&self) -> &BTreeSet<String> {
        &self.variables
    }

    /// Whether a public struct of the engine has this name.
    pub(super) fn has_fields(&self, name: &str) -> bool {
        !name.contains(|c: char| !c.is_alphanumeric()) && self.fields(name).is_ok()
    }

    /// The public fields of a struct of the engine, or the counters that it is made of.
    pub(super) fn fields(&self, name: &str) -> Result<Vec<Declaration>> {
        for start in [format!("pub struct {name} {{"), format!("pub struct {name};")] {
            if let Some(found) = self.engine().find_map(|(_, text)| block(text, &start)) {
                // The rest is the counters' own.
                let found = found.split("@hidden").next().unwrap_or(&found);
                return Ok(declarations(found));
            }
        }
        anyhow::bail!("the engine has no public struct {name}")
    }

    /// The arguments of a command, those of the struct that it shares with others first.
    pub(super) fn arguments(&self, of: &str) -> Result<Vec<Declaration>> {
        let found = block(self.text(ARGUMENTS)?, &format!("pub(crate) struct {of} {{"));
        let mut arguments = Vec::new();
        for argument in declarations(&found.with_context(|| format!("no arguments {of}"))?) {
            match argument.attributes.contains("flatten") {
                true => arguments.extend(self.arguments(argument.field_type())?),
                false => arguments.push(argument),
            }
        }
        Ok(arguments)
    }

    /// The arguments of a command in a line.
    pub(super) fn usage(&self, of: &str) -> Result<String> {
        let arguments = self.arguments(of)?;
        let written = arguments.iter().map(|argument| match argument.field_type() {
            inner if inner.starts_with("Option<") || inner == "bool" => {
                format!("[{}]", written(argument))
            }
            inner if inner.starts_with("Vec<") => format!("[{}]…", written(argument)),
            _ => written(argument),
        });
        Ok(written.collect::<Vec<_>>().join(" "))
    }
}

/// An argument as it is written: `--name`, `--name VALUE`, or `NAME`.
pub(super) fn written(argument: &Declaration) -> String {
    let name = argument.name();
    if !argument.attributes.contains("long") {
        return name.to_uppercase();
    }
    let value = match argument.attributes.split_once("value_name = \"") {
        _ if argument.field_type() == "bool" => String::new(),
        Some((_, value)) => format!(" {}", value.split('"').next().unwrap_or_default()),
        None => format!(" {}", name.to_uppercase()),
    };
    format!("--{}{value}", name.replace('_', "-"))
}

/// The variables that a source reads.
fn variables_of(text: &str) -> impl Iterator<Item = &str> {
    let reads = ["env::var(\"", "env::var_os(\""];
    let found = reads.into_iter().flat_map(|read| text.split(read).skip(1));
    let names = found.filter_map(|behind| behind.split('"').next());
    names.filter(|name| {
        OURS.iter().any(|ours| name.starts_with(ours))
            && !INNER.iter().any(|inner| name.starts_with(inner))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_written_as_a_user_writes_them() {
        let found = declarations(
            "/// A.\n#[arg(long)]\npub(crate) skip_bad: bool,\n#[arg(long, value_name = \"N\")]\n\
             pub(crate) limit: Option<usize>,\npub(crate) key: OsString,\n",
        );
        let written: Vec<String> = found.iter().map(written).collect();
        assert_eq!(written, ["--skip-bad", "--limit N", "KEY"]);
    }

    #[test]
    fn variables_that_are_read_are_found() {
        let text = "env::var(\"TERRACE_DB\") env::var_os(\"PATH\") var_os(\"TERRACE_X\")";
        assert_eq!(variables_of(text).collect::<Vec<_>>(), ["TERRACE_DB"]);
    }
}
