//! The options by name: what each takes, its default, and what it means.

use std::fmt::Write as _;

use anyhow::{Context, Result};

use super::declaration::{Declaration, block, cell, declarations};
use super::sources::Sources;

const NAMED: &str = "engine/src/base/options/named.rs";

/// A struct of options: its title, its file, its name.
struct Group {
    title: &'static str,
    path: &'static str,
    name: &'static str,
}

const GROUPS: &[Group] = &[
    Group {
        title: "Of a database, at each opening (`Options`)",
        path: "engine/src/base/options.rs",
        name: "Options",
    },
    Group {
        title: "Of commits, also while it is open (`CommitTuning`, `Database::tune_commits`)",
        path: "engine/src/base/options/tuning.rs",
        name: "CommitTuning",
    },
    Group {
        title: "Of the background, also while it is open (`BackgroundTuning`, \
                `Database::tune_background`)",
        path: "engine/src/base/options/tuning.rs",
        name: "BackgroundTuning",
    },
    Group {
        title: "Of a table (`TableOptions`)",
        path: "engine/src/base/options/table.rs",
        name: "TableOptions",
    },
    Group {
        title: "Of a transaction (`TxnOptions`)",
        path: "engine/src/txn/options.rs",
        name: "TxnOptions",
    },
];

/// Writes a table for each group.
pub(super) fn write(sources: &Sources, page: &mut String) -> Result<()> {
    page.push_str(
        "\n## Options\n\nIn Rust each is a method, and `Options::set` takes it by name, as\n\
         text. C and Python take the same names and texts, variables of MariaDB have `terrace_`\n\
         before them. A size is 4096, 64KiB, 256MiB or 2GiB, a time 500ms, 90s, 36h or 7d, a\n\
         switch on or off. Where no default is given, the meaning says it.\n",
    );
    for Group { title, path, name } in GROUPS {
        write!(page, "\n### {title}\n\n")?;
        page.push_str("| option | default | takes | meaning |\n|---|---|---|---|\n");
        let text = sources.text(path)?;
        let options =
            block(text, &format!("struct {name}:")).with_context(|| (*name).to_owned())?;
        for option in declarations(&options) {
            let is_hidden = option.attributes.contains("hidden");
            let Some((code, takes)) = option.code.split_once(", takes ").filter(|_| !is_hidden)
            else {
                continue;
            };
            let takes = takes.split(", get ").next().unwrap_or(takes);
            let takes = words(takes, &[text, sources.text(NAMED)?]);
            let takes = takes.with_context(|| format!("what {} takes", option.name()))?;
            let (meaning, default) = (meaning(&option, text), default(code, takes));
            let takes = cell(&short(takes));
            writeln!(page, "| `{}` | {default} | {takes} | {meaning} |", option.name())?;
        }
    }
    Ok(())
}

/// The meaning of an option: that of its entry, else that of the method of its name.
fn meaning(option: &Declaration, text: &str) -> String {
    if !option.meaning().is_empty() {
        return option.meaning();
    }
    let method = format!("pub fn {}(", option.name());
    let before = text.split_once(&method).map_or("", |(before, _)| before);
    let doc = before.rsplit_once("\n\n").map_or(before, |(_, doc)| doc);
    let doc = doc.rsplit_once("{\n").map_or(doc, |(_, doc)| doc);
    declarations(&format!("{doc}{method};")).first().map(Declaration::meaning).unwrap_or_default()
}

/// What an option takes, in words: the first literal of the value or the function in `takes`.
fn words<'a>(takes: &'a str, texts: &[&'a str]) -> Option<&'a str> {
    let literal = |text: &'a str| text.split('"').nth(1);
    if takes.contains('"') {
        return literal(takes);
    }
    let name = takes.trim_end_matches("()");
    texts.iter().find_map(|text| {
        let declared = [format!("const {name}: "), format!("fn {name}<")];
        let at = declared.iter().find_map(|declared| text.find(declared.as_str()))?;
        text[at..].split_once("OptionType::new(").and_then(|(_, behind)| literal(behind))
    })
}

/// The words without examples.
fn short(takes: &str) -> String {
    match takes.split_once(", such as ") {
        Some((what, examples)) if examples.ends_with(", or none") => format!("{what}, or none"),
        Some((what, examples)) if !examples.contains(';') && !what.contains(',') => what.to_owned(),
        _ => takes.to_owned(),
    }
}

/// The default as a user writes it, where the code has a plain value.
fn default(code: &str, takes: &str) -> String {
    let value = code.split_once(" = ").map_or("", |(_, value)| value);
    let value = value.split(" => ").next().unwrap_or(value).trim();
    // One variant, or a pair of the same one.
    let last = value.rsplit("::").next().filter(|last| !last.contains('('));
    let last = last.filter(|_| value.contains("::")).map(|last| last.trim_end_matches(')'));
    match value {
        "None" if takes.ends_with("database") => "database".to_owned(),
        "None" if takes.contains("none") => "none".to_owned(),
        "true" => "on".to_owned(),
        "false" => "off".to_owned(),
        "u64::MAX" => "no limit".to_owned(),
        "Duration::ZERO" => "0".to_owned(),
        _ if value.bytes().all(|byte| byte.is_ascii_digit()) => value.to_owned(),
        _ if value.strip_suffix(" * 1024").is_some() => value.replace(" * 1024", " KiB"),
        _ => match last {
            Some(variant) if variant.contains(char::is_lowercase) => super::kebab(variant),
            _ => String::new(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_defaults_are_told() {
        let told =
            |value: &str| default(&format!("name(a: u64): u64 = {value} => a"), "a size, or none");
        assert_eq!(told("None"), "none");
        assert_eq!(default("a(): A = None => a", "a number"), "", "it takes no word for it");
        assert_eq!(told("LockWait::AtMost(DEFAULT_WAIT)"), "");
        assert_eq!(told("16 * 1024"), "16 KiB");
        assert_eq!(told("Level0Container::GlobalIndex"), "global-index");
        assert_eq!(told("(Compression::Zstd, Compression::Zstd)"), "zstd");
        assert_eq!(told("limits::PM_INITIAL_SIZE"), "");
        assert_eq!(told("check::default_region(check::usable())"), "");
    }
}
