//! `cargo xtask reference`: `docs/reference.md` and `docs/api.txt`, out of the source. So a name in
//! it exists, and what it says is what the documentation of the code says. `cargo xtask tidy`
//! compares.

mod api;
mod declaration;
mod options;
mod sources;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use declaration::{block, cell, declarations};
use sources::Sources;

/// Where the reference lies.
const PATH: &str = "docs/reference.md";

/// The environment variables of users and of those who test, with what they do. Each is read in the
/// source, and each that is read there is in this list.
const VARIABLES: &[(&str, &str)] = &[
    ("TERRACE_DB", "of the command: the directory of the database, where `--db` does not say it"),
    ("TERRACE_TOKEN", "of `terrace top`: the token of a page whose address does not have it"),
    ("TERRACE_OBJECT_STORE", "of the command: the URL of the object store, as `--object-store`"),
    (
        "TERRACE_FLUSH",
        "`clwb`, `clflushopt`, `clflush` or `none`: how lines are flushed to persistent memory, in \
         place of the best way that the processor has. `none` is refused in `dax` mode unless the \
         platform flushes its caches by itself",
    ),
    (
        "AWS_ALLOW_HTTP",
        "`true`: a store of S3's kind may be reached without TLS. Credentials, region and endpoint \
         come from the other variables of each cloud's tools, such as `AWS_ACCESS_KEY_ID`",
    ),
    ("AWS_ENDPOINT", "the address of a store of S3's kind that is not Amazon's"),
    ("TERRACE_LONG", "of the tests: `1` runs them at length"),
    ("TERRACE_SEED", "of the tests of the shared store: the first seed"),
    ("TERRACE_IMAGES", "of these tests: go on until so many states were looked at"),
    ("TERRACE_S3", "of the tests of object stores: the URL of a bucket that they may write to"),
    (
        "TERRACE_LEVEL0",
        "of the tests: `matrix`, `triangle` or `mixed`: each table keeps its level 0 in row tables",
    ),
];

const HEAD: &str = "\
# Reference

Each option, statistic, limit, error kind, command, exit code and environment variable. `cargo xtask
reference` makes this page out of the source, and `cargo xtask tidy` compares the two.
[operations.md](operations.md) says which of them to look at, and when.
";

/// Writes the pages.
pub(crate) fn run(root: &Path) -> Result<bool> {
    for (path, text) in pages(root)? {
        fs::write(root.join(path), text).with_context(|| format!("writing {path}"))?;
    }
    Ok(true)
}

/// The pages with their paths, as the source of the repository at `root` has them.
pub(crate) fn pages(root: &Path) -> Result<[(&'static str, String); 2]> {
    let sources = Sources::load(root)?;
    Ok([(PATH, text(&sources)?), (api::PATH, api::text(&sources)?)])
}

fn text(sources: &Sources) -> Result<String> {
    let mut page = HEAD.to_owned();
    options::write(sources, &mut page)?;
    statistics(sources, &mut page)?;
    limits(sources, &mut page)?;
    error_kinds(sources, &mut page)?;
    commands(sources, &mut page)?;
    exit_codes(sources, &mut page)?;
    variables(sources, &mut page)?;
    Ok(page)
}

fn statistics(sources: &Sources, page: &mut String) -> Result<()> {
    page.push_str(
        "\n## Statistics\n\n`Database::stats` in Rust, `db.stats()` in Python, \
         `terrace_database_get_statistics_json` in C, `terrace stats` and `terrace stats --json`. \
         Counters begin at the opening.\n\n| statistic | meaning |\n|---|---|\n",
    );
    fields(sources, ("Stats", ""), page)?;
    for (title, of, path) in [
        ("A follower or standby", "NodeStatus", ""),
        ("A shared database, by `terrace status`", "SharedStatus", ""),
        ("A shard of an executor, by `PerCore::stats`", "ShardStats", ""),
    ] {
        write!(page, "\n{title}:\n\n| statistic | meaning |\n|---|---|\n")?;
        fields(sources, (of, path), page)?;
    }
    Ok(())
}

/// The fields of a struct of statistics, and of those in it.
fn fields(sources: &Sources, (of, path): (&str, &str), page: &mut String) -> Result<()> {
    for field in sources.fields(of)? {
        let name = format!("{path}{}", field.name());
        let inner = field.field_type();
        let in_list = inner.strip_prefix("Vec<").and_then(|inner| inner.strip_suffix('>'));
        let in_option = inner.strip_prefix("Option<").and_then(|inner| inner.strip_suffix('>'));
        let inner = in_list.or(in_option).unwrap_or(inner);
        if sources.has_fields(inner) {
            let dot = if in_list.is_some() { "[]." } else { "." };
            fields(sources, (inner, &format!("{name}{dot}")), page)?;
        } else {
            writeln!(page, "| `{name}` | {} |", field.meaning())?;
        }
    }
    Ok(())
}

fn limits(sources: &Sources, page: &mut String) -> Result<()> {
    page.push_str("\n## Limits\n\n`terrace::limits` has them.\n\n| limit | meaning |\n|---|---|\n");
    let text = sources.text("engine/src/base/limits.rs")?;
    for limit in declarations(text).iter().filter(|limit| limit.code.starts_with("pub const ")) {
        let value = limit.code.rsplit(" = ").next().unwrap_or_default();
        writeln!(page, "| `{}` = {value} | {} |", limit.name(), limit.meaning())?;
    }
    Ok(())
}

fn error_kinds(sources: &Sources, page: &mut String) -> Result<()> {
    page.push_str(
        "\n## Error kinds\n\n`Error::kind` has them. In C they are `terrace_status`, in Python \
         exceptions.\n\n| kind | what to do |\n|---|---|\n",
    );
    let text = sources.text("engine/src/base/error.rs")?;
    let kinds = block(text, "pub enum ErrorKind {").context("ErrorKind")?;
    for kind in declarations(&kinds) {
        writeln!(page, "| `{}` | {} |", kind.name(), kind.meaning())?;
    }
    Ok(())
}

const ARGUMENTS: &str = "cli/src/args.rs";

fn commands(sources: &Sources, page: &mut String) -> Result<()> {
    page.push_str("\n## The command\n\nEach command takes:\n\n| option | meaning |\n|---|---|\n");
    for argument in sources.arguments("Global")? {
        let name = sources::written(&argument);
        writeln!(page, "| `{name}` | {} |", argument.meaning())?;
    }
    page.push_str("\n`terrace COMMAND --help` says what the arguments of a command mean.\n");
    page.push_str("\n| command | arguments | meaning |\n|---|---|---|\n");
    let text = sources.text(ARGUMENTS)?;
    let commands = block(text, "pub(crate) enum Command {").context("Command")?;
    for command in declarations(&commands) {
        if command.attributes.contains("hide = true") {
            continue;
        }
        let name = kebab(command.name());
        let of = command.code.split_once('(').map(|(_, of)| of.trim_end_matches(')'));
        let takes = match of {
            Some(of) if of.ends_with("Command") => {
                let inner = block(text, &format!("pub(crate) enum {of} {{")).context("commands")?;
                let names = declarations(&inner).into_iter().map(|it| kebab(it.name()));
                names.collect::<Vec<_>>().join(" or ")
            }
            Some(of) => sources.usage(of)?,
            None => String::new(),
        };
        let takes = if takes.is_empty() { takes } else { format!("`{takes}`") };
        writeln!(page, "| `{name}` | {takes} | {} |", command.meaning())?;
    }
    Ok(())
}

/// `TwoWords` as `two-words`.
fn kebab(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !out.is_empty() {
            out.push('-');
        }
        out.extend(letter.to_lowercase());
    }
    out.replace('_', "-")
}

fn exit_codes(sources: &Sources, page: &mut String) -> Result<()> {
    page.push_str("\n## Exit codes of the command\n\n| code | meaning |\n|---|---|\n");
    let text = sources.text(ARGUMENTS)?;
    let (_, codes) = text.split_once("Exit codes:\n").context("the exit codes of the command")?;
    let (codes, _) = codes.split_once("\n\n").context("the end of the exit codes")?;
    let mut rows: Vec<String> = Vec::new();
    for line in codes.lines().map(str::trim) {
        match line.split_once("  ").filter(|(code, _)| code.parse::<u8>().is_ok()) {
            Some((code, meaning)) => rows.push(format!("| {code} | {}", cell(meaning.trim()))),
            None => {
                let row = rows.last_mut().context("an exit code before what it means")?;
                write!(row, " {}", cell(line))?;
            }
        }
    }
    rows.iter().try_for_each(|row| writeln!(page, "{row} |"))?;
    Ok(())
}

fn variables(sources: &Sources, page: &mut String) -> Result<()> {
    page.push_str("\n## Environment\n\n| variable | meaning |\n|---|---|\n");
    for name in sources.variables() {
        ensure!(
            VARIABLES.iter().any(|(known, _)| *known == name),
            "the source reads {name}: say in xtask/src/reference/mod.rs what it does"
        );
    }
    for (name, meaning) in VARIABLES {
        ensure!(sources.variables().contains(*name), "no source reads {name}: remove it");
        writeln!(page, "| `{name}` | {meaning} |")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_commands_are_those_of_their_variants() {
        assert_eq!((kebab("TourChild"), kebab("Get")), ("tour-child".into(), "get".into()));
    }

    #[test]
    fn the_page_has_each_kind_of_row() {
        let page = text(&Sources::load(&crate::root()).unwrap()).unwrap();
        for row in [
            "| `pm_size` | ",
            "| `block_size` | 16 KiB | ",
            "| `commit.groups` | ",
            "| `tables[].levels[].bytes` | ",
            "| `background.zones_cleaned` | ",
            "| `MAX_BATCH_OPERATIONS` = 1 << 20 | ",
            "| `UnknownOutcome` | ",
            "[--skip-bad]",
            "| 130 | ",
            "| `TERRACE_FLUSH` | ",
        ] {
            assert!(page.contains(row), "{row} is missing in\n{page}");
        }
    }
}
