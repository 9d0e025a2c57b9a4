//! The example at the head of the header: it compiles, and does what it says.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::programs;

/// What stands before each line of the example, which is part of a comment.
const MARGIN: &str = " *     ";

/// What the example prints.
const PRINTS: &str = "1815\n";

/// Compiles the example of the header that is installed, and runs it.
pub(super) fn check(compiler: &str, installed: &Path) -> Result<()> {
    let header = installed.join("include/terrace.h");
    let header =
        fs::read_to_string(&header).with_context(|| format!("reading {}", header.display()))?;
    let folder = installed.join("programs");
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let source = folder.join("header-example.c");
    let text = program(&header);
    fs::write(&source, text).with_context(|| format!("writing {}", source.display()))?;
    let library = installed.join("lib");
    let search = [format!("-L{}", library.display()), "-lterrace".into()];
    let link = [&search[..], &[format!("-Wl,-rpath,{}", library.display())]].concat();
    let program = programs::compile(compiler, &source, installed, &[], &link)?;
    let data = folder.join("header-example.data");
    if data.exists() {
        fs::remove_dir_all(&data).with_context(|| format!("removing {}", data.display()))?;
    }
    fs::create_dir_all(&data).with_context(|| format!("making {}", data.display()))?;
    let output = Command::new(&program).current_dir(&data).output();
    let output = output.with_context(|| format!("starting {}", program.display()))?;
    fs::remove_dir_all(&data).with_context(|| format!("removing {}", data.display()))?;
    ensure!(output.status.success(), "the example of the header: {}", output.status);
    let printed = String::from_utf8_lossy(&output.stdout);
    if printed != PRINTS {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("the example of the header prints {printed:?} instead of {PRINTS:?}: {error}");
    }
    Ok(())
}

/// A program of the lines of the example.
fn program(header: &str) -> String {
    let head = header.split("*/").next().unwrap_or_default();
    let lines: Vec<&str> = head.lines().filter_map(|line| line.strip_prefix(MARGIN)).collect();
    let includes = "#include <stdio.h>\n\n#include \"terrace.h\"\n";
    format!("{includes}\nint main(void) {{\n{}\nreturn 0;\n}}\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_what_is_indented_in_the_first_comment() {
        let text =
            program("/*\n * Words.\n *\n *     f();\n *     g();\n */\n/*\n *     h();\n */");
        assert!(text.contains("{\nf();\ng();\nreturn 0;"), "{text}");
        assert!(!text.contains("h()"));
    }
}
