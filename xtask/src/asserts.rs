//! `cargo xtask asserts`: how many assertions each part of the engine has for its size.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::tidy::{files, source::Source};

const MACROS: &[&str] =
    &["assert", "assert_eq", "assert_ne", "debug_assert", "debug_assert_eq", "debug_assert_ne"];

/// What a part has outside its tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    lines: usize,
    asserts: usize,
}

impl Count {
    fn of(source: &Source) -> Count {
        let outside = |line: &usize| !source.is_test_line(*line);
        let lines = source.lines().map(|(number, _, _)| number).filter(outside).count();
        let calls = MACROS.iter().flat_map(|name| source.words(name).map(|at| at + name.len()));
        let calls = calls.filter(|at| source.code[*at..].starts_with('!'));
        let asserts = calls.map(|at| source.line_of(at)).filter(outside).count();
        Count { lines, asserts }
    }

    fn a_thousand_lines(self) -> f64 {
        self.asserts as f64 * 1000.0 / self.lines.max(1) as f64
    }
}

impl std::ops::AddAssign for Count {
    fn add_assign(&mut self, other: Count) {
        self.lines += other.lines;
        self.asserts += other.asserts;
    }
}

/// Prints a line for each part of the engine, and the sum.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let mut parts: BTreeMap<String, Count> = BTreeMap::new();
    let mut all = Count::default();
    for path in files::list(root)? {
        let Some(part) = part(&path) else { continue };
        let text =
            fs::read_to_string(root.join(&path)).with_context(|| format!("reading {path}"))?;
        let count = Count::of(&Source::new(&path, &text));
        *parts.entry(part.to_owned()).or_default() += count;
        all += count;
    }
    println!("{:<12} {:>7} {:>8} {:>16}", "part", "lines", "asserts", "a thousand lines");
    for (part, count) in parts.iter().chain([(&"all".to_owned(), &all)]) {
        let Count { lines, asserts } = count;
        println!("{part:<12} {lines:>7} {asserts:>8} {:>16.1}", count.a_thousand_lines());
    }
    Ok(true)
}

/// The folder or file of `engine/src` that a Rust file belongs to.
fn part(path: &str) -> Option<&str> {
    let below = path.strip_prefix("engine/src/")?.strip_suffix(".rs")?;
    below.split('/').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_and_its_folder_are_one_part() {
        assert_eq!(part("engine/src/engine/open/mod.rs"), Some("engine"));
        assert_eq!(part("engine/src/database.rs"), Some("database"));
        assert_eq!(part("engine/src/tsan.txt"), None);
        assert_eq!(part("sim/src/lib.rs"), None);
    }

    #[test]
    fn asserts_count_outside_tests_and_comments() {
        let text = "// assert!(a)\nfn f() {\n    assert!(a);\n    debug_assert_eq!(a, b);\n}\n\
                    #[cfg(test)]\nmod tests {\n    assert!(b);\n}\n";
        let count = Count::of(&Source::new("engine/src/a.rs", text));
        assert_eq!(count, Count { lines: 5, asserts: 2 });
        assert!((count.a_thousand_lines() - 400.0).abs() < 1e-9);
    }
}
