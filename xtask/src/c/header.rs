//! The header, made out of the source of the C interface.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use cbindgen::{Builder, Config};

use super::CRATE;

const HEADER: &str = "bindings/c/include/terrace.h";

/// The types of the source that have the ABI of a pointer, and the pointer that each stands for.
const POINTERS: &[(&str, &str)] = &[
    ("Data", "const void *"),
    ("Text", "const char *"),
    ("Buffer", "void *"),
    ("Slices", "const struct terrace_slice *"),
    ("Values", "struct terrace_value *"),
    ("StatisticsOut", "struct terrace_statistics *"),
];

/// Writes the header.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let header = root.join(HEADER);
    let folder = header.parent().context("the header lies in no folder")?;
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    fs::write(&header, generate(root)?).with_context(|| format!("writing {}", header.display()))?;
    println!("{HEADER}");
    Ok(true)
}

/// Fails if the header is not what the source gives.
pub(super) fn check(root: &Path) -> Result<()> {
    let header = root.join(HEADER);
    let there =
        fs::read_to_string(&header).with_context(|| format!("reading {}", header.display()))?;
    if there != generate(root)? {
        bail!("{HEADER} is not what the source gives: run `cargo xtask header`, and commit it");
    }
    Ok(())
}

/// The text of the header.
fn generate(root: &Path) -> Result<String> {
    let folder = root.join(CRATE);
    let config = Config::from_file(folder.join("cbindgen.toml"));
    let config = config.map_err(|e| anyhow::anyhow!("cbindgen.toml: {e}"))?;
    let builder = sources(&folder)?.into_iter().fold(Builder::new(), Builder::with_src);
    let bindings = builder.with_config(config).generate().context("reading the source")?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    let text = String::from_utf8(text).context("the header is no text")?;
    let lines = without_pointer_types(&text).into_iter();
    Ok(lines.map(|line| format!("{}\n", with_pointers(line).trim_end())).collect())
}

/// The lines of the header but those that define types of pointers, with their comments.
fn without_pointer_types(text: &str) -> Vec<&str> {
    let is_pointer_type = |line: &str| {
        let name = line.strip_prefix("typedef ").and_then(|rest| rest.strip_suffix(';'));
        let name = name.and_then(|rest| rest.rsplit([' ', '*']).next());
        POINTERS.iter().any(|(pointer, _)| name == Some(pointer))
    };
    let mut lines: Vec<&str> = Vec::new();
    for line in text.lines() {
        if is_pointer_type(line) {
            let comment = lines.iter().rposition(|line| line.trim_end() == "/**");
            // The blank line above the comment goes too.
            lines.truncate(comment.map_or(lines.len(), |at| at.saturating_sub(1)));
        } else {
            lines.push(line);
        }
    }
    lines
}

/// A line of the header with pointers in the place of the types that stand for them.
fn with_pointers(line: &str) -> String {
    let mut line = line.to_owned();
    if line.trim_start().starts_with(['*', '/']) {
        return line;
    }
    for (name, pointer) in POINTERS {
        for before in [' ', '('] {
            line = line.replace(&format!("{before}{name} "), &format!("{before}{pointer}"));
        }
    }
    line
}

/// The files of the crate, in the order in which its root names them: so is the header.
fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let root = folder.join("src/lib.rs");
    let text = fs::read_to_string(&root).with_context(|| format!("reading {}", root.display()))?;
    let modules = text.lines().filter_map(|line| {
        let module = line.strip_prefix("pub ").unwrap_or(line).strip_prefix("mod ")?;
        Some(folder.join("src").join(format!("{}.rs", module.strip_suffix(';')?)))
    });
    Ok(modules.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_what_the_source_gives() {
        check(&crate::root()).unwrap();
    }

    #[test]
    fn pointers_take_the_place_of_their_types() {
        assert_eq!(with_pointers("f(Data key,"), "f(const void *key,");
        assert_eq!(with_pointers("  Text name, Data x);"), "  const char *name, const void *x);");
        assert_eq!(with_pointers(" * Values and Data last."), " * Values and Data last.");
    }

    #[test]
    fn types_of_pointers_are_left_out_with_their_comments() {
        let text = "a\n\n/**\n * Bytes.\n */\ntypedef const void *Data;\n\nb";
        assert_eq!(without_pointer_types(text), ["a", "", "b"]);
        assert_eq!(without_pointer_types("typedef struct x x;"), ["typedef struct x x;"]);
    }

    /// A handle that a function does not change is const: a program that has it as const can call
    /// the function without a cast.
    #[test]
    fn handles_are_const_but_for_those_that_are_changed() {
        const CHANGED: &[&str] = &["batch", "bulk_load", "cursor", "merged"];
        let text = generate(&crate::root()).unwrap();
        let text: String = text.split("/**").filter_map(|part| part.split("*/").last()).collect();
        let mut handles = 0;
        for function in text.split(';').filter(|function| function.contains('(')) {
            let (head, arguments) = function.split_once('(').unwrap();
            let name = head.rsplit([' ', '*']).next().unwrap();
            for argument in arguments.split(',').map(str::trim) {
                let Some((class, argument)) = argument.split_once(" *") else { continue };
                let class = class.trim_start_matches("struct ");
                // What is no handle has fields.
                let is_handle = text.contains(&format!("typedef struct {class} {class}"));
                let class = class.trim_start_matches("terrace_");
                let is_changed = CHANGED.contains(&class) || class.ends_with("options");
                if is_handle && !argument.starts_with('*') && !name.ends_with("_free") {
                    handles += 1;
                    assert!(is_changed, "{name} has a {class} that is not const");
                }
            }
        }
        assert!(handles > 20, "{handles} handles");
    }

    #[test]
    fn every_function_is_documented() {
        let text = generate(&crate::root()).unwrap();
        let mut before = "";
        let mut functions = 0;
        for line in text.lines() {
            let is_function = line.contains(" terrace_") || line.contains("*terrace_");
            if is_function && line.contains('(') && !line.starts_with([' ', '*', '/', '#']) {
                assert_eq!(before.trim(), "*/", "no comment above: {line}");
                functions += 1;
            }
            before = line;
        }
        assert!(functions > 90, "{functions} functions");
    }
}
