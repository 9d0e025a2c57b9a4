//! `cargo xtask house`: how the engine's source is divided. It prints the parts, circles between
//! files, the largest `impl`, the largest struct, the overview's size, and assertions by part.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::asserts;
use crate::tidy::{
    files,
    layers::first_names,
    source::{Source, identifier, is_word},
};

const ROOT: &str = "engine/src/";

/// A file as a module: its path in the crate.
type Module = Vec<String>;

/// Prints the figures.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let mut sources = Vec::new();
    for path in files::list(root)? {
        if path.starts_with(ROOT) && path.ends_with(".rs") {
            let text =
                fs::read_to_string(root.join(&path)).with_context(|| format!("reading {path}"))?;
            sources.push(Source::new(&path, &text));
        }
    }
    let modules: BTreeSet<Module> = sources.iter().map(|source| module(&source.path)).collect();
    let parts: BTreeSet<&String> = modules.iter().filter_map(|module| module.first()).collect();
    println!("parts of the engine: {}", parts.len());
    println!("files of the engine: {}", sources.len());
    let circles = circles(&uses(&sources, &modules));
    println!("circles between files: {}", circles.len());
    for circle in &circles {
        let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
        println!("  {}", names.join(", "));
    }
    let (name, functions) = largest(&sources, functions);
    println!("functions of the largest impl: {functions} ({name})");
    let (name, fields) = largest(&sources, fields);
    println!("fields of the largest struct: {fields} ({name})");
    let overview = fs::metadata(root.join("ARCHITECTURE.md")).context("reading the overview")?;
    println!("bytes of ARCHITECTURE.md: {}", overview.len());
    println!();
    asserts::run(root)
}

/// The module of a file.
fn module(path: &str) -> Module {
    let below = path.strip_prefix(ROOT).unwrap_or(path);
    let names = below.trim_end_matches(".rs").split('/');
    names.filter(|name| *name != "mod" && *name != "lib").map(str::to_owned).collect()
}

/// Which files each file uses, but for those above and below it in its own folder's line: a facade
/// and what is behind it are one thing.
fn uses(sources: &[Source], modules: &BTreeSet<Module>) -> BTreeMap<Module, BTreeSet<Module>> {
    let mut uses = BTreeMap::new();
    for source in sources {
        let own = module(&source.path);
        let mut used = BTreeSet::new();
        for (at, word) in
            ["crate", "super"].iter().flat_map(|w| source.words(w).map(move |at| (at, *w)))
        {
            let is_inner = source.code[..at].ends_with("::");
            if is_inner || source.is_test_line(source.line_of(at)) {
                continue;
            }
            let mut base = if word == "crate" { Vec::new() } else { own.clone() };
            let mut from = at + word.len();
            base.truncate(if word == "super" { own.len().saturating_sub(1) } else { 0 });
            while source.code[from..].starts_with("::super") {
                base.pop();
                from += "::super".len();
            }
            targets(source, (base, from), modules, &mut used);
        }
        let is_apart = |other: &Module| !own.starts_with(other) && !other.starts_with(&own);
        used.retain(is_apart);
        uses.insert(own, used);
    }
    uses
}

/// The deepest modules that the names behind `from` lead to.
fn targets(
    source: &Source,
    (base, from): (Module, usize),
    modules: &BTreeSet<Module>,
    found: &mut BTreeSet<Module>,
) {
    for (at, name) in first_names(source, from) {
        let deeper = [base.as_slice(), &[name.to_owned()]].concat();
        if modules.contains(&deeper) {
            targets(source, (deeper, at + name.len()), modules, found);
        } else if modules.contains(&base) {
            found.insert(base.clone());
        }
    }
    if first_names(source, from).is_empty() && modules.contains(&base) {
        found.insert(base);
    }
}

/// The sets of files that use each other around, each sorted.
fn circles(uses: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<Vec<Module>> {
    let reach = |from: &Module| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(next) = open.pop() {
            let new =
                uses.get(next).into_iter().flatten().filter(|used| seen.insert((*used).clone()));
            let new: Vec<&Module> = new.collect();
            open.extend(new);
        }
        seen
    };
    let reached: BTreeMap<&Module, BTreeSet<Module>> =
        uses.keys().map(|from| (from, reach(from))).collect();
    let around = |from: &&&Module| reached[**from].contains(**from);
    let circle = |from: &Module| {
        let others = reached[from]
            .iter()
            .filter(|other| reached.get(other).is_some_and(|back| back.contains(from)));
        others.cloned().collect()
    };
    reached.keys().filter(around).map(|from| circle(from)).collect()
}

/// The type with the most of something, and how many that are.
fn largest(sources: &[Source], count: fn(&Source) -> Vec<(String, usize)>) -> (String, usize) {
    let mut by_type: BTreeMap<(String, String), usize> = BTreeMap::new();
    for source in sources {
        let part = module(&source.path).first().cloned().unwrap_or_default();
        for (name, n) in count(source) {
            *by_type.entry((part.clone(), name)).or_default() += n;
        }
    }
    let most = by_type.into_iter().max_by_key(|(_, n)| *n);
    most.map_or_else(Default::default, |((part, name), n)| (format!("{part}::{name}"), n))
}

/// How many functions each inherent `impl` of a file has.
fn functions(source: &Source) -> Vec<(String, usize)> {
    blocks(source, "impl")
        .filter(|(header, _)| !header.contains(" for "))
        .map(|(header, body)| {
            let functions = body.match_indices("fn ");
            let is_whole = |at: usize| !body[..at].ends_with(is_word);
            (type_name(header), functions.filter(|(at, _)| is_whole(*at)).count())
        })
        .collect()
}

/// How many fields each struct of a file has.
fn fields(source: &Source) -> Vec<(String, usize)> {
    let is_field = |line: &&str| {
        let line = line.trim_start();
        let line = line
            .strip_prefix("pub")
            .map_or(line, |line| line.trim_start_matches(|c: char| c != ' '));
        let line = line.trim_start();
        let name = identifier(line);
        !name.is_empty() && line[name.len()..].starts_with(": ")
    };
    blocks(source, "struct")
        .map(|(header, body)| (type_name(header), body.lines().filter(is_field).count()))
        .collect()
}

/// The items of a kind outside tests: what is between the word and the brace, and the braces.
fn blocks<'a>(source: &'a Source, word: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> + 'a {
    source.words(word).filter_map(move |at| {
        let starts = source.code[..at].rsplit('\n').next().unwrap_or_default();
        let is_item = starts.trim().is_empty() || starts.trim().starts_with("pub");
        let (open, byte) = source.body_or_end(at)?;
        let is_test = source.is_test_line(source.line_of(at));
        (is_item && byte == b'{' && !is_test).then(|| {
            (&source.code[at + word.len()..open], &source.code[open..source.behind_closing(open)])
        })
    })
}

/// The name of the type in the header of an `impl` or a struct.
fn type_name(header: &str) -> String {
    let mut rest = header.trim_start();
    if rest.starts_with('<') {
        let mut depth = 0_usize;
        let end = rest.char_indices().find(|(at, c)| {
            match c {
                '<' => depth += 1,
                '>' if !rest[..*at].ends_with('-') => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        rest = end.map_or("", |(at, _)| &rest[at + 1..]).trim_start();
    }
    let path = rest.find(|c: char| !is_word(c) && c != ':').map_or(rest, |end| &rest[..end]);
    path.rsplit("::").next().unwrap_or(path).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(files: &[(&str, &str)]) -> Vec<Source> {
        files.iter().map(|(path, text)| Source::new(&format!("{ROOT}{path}"), text)).collect()
    }

    fn found(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let sources = sources(files);
        let modules = sources.iter().map(|source| module(&source.path)).collect();
        let circles = circles(&uses(&sources, &modules));
        let names = |circle: Vec<Module>| circle.iter().map(|m| m.join("::")).collect();
        circles.into_iter().map(names).collect()
    }

    #[test]
    fn files_that_use_each_other_around_are_a_circle() {
        let files = [
            ("db/mod.rs", "mod a; mod b; mod c; mod d; use a::A;"),
            ("db/a.rs", "use super::b::{self, B};"),
            ("db/b.rs", "use crate::db::c;"),
            ("db/c.rs", "fn f() { super::a::g() }"),
            ("db/d.rs", "use super::{a::A, D};"),
        ];
        assert_eq!(found(&files), [["db::a", "db::b", "db::c"]]);
    }

    #[test]
    fn a_facade_and_tests_make_no_circle() {
        let files = [
            ("db/mod.rs", "mod a; mod b; pub use a::A;"),
            ("db/a.rs", "use super::B;\n#[cfg(test)]\nmod tests {\n    use crate::db::b::C;\n}\n"),
            ("db/b.rs", "use super::a::A;"),
        ];
        assert!(found(&files).is_empty());
    }

    #[test]
    fn the_largest_impl_is_that_of_a_type_over_all_its_files() {
        let text = "impl<T: Fn() -> u8> Big<T> {\n    fn a() {}\n    pub fn b() {}\n}\n\
                    impl Clone for Big<u8> {\n    fn clone(&self) {}\n}\n";
        let sources =
            sources(&[("db/a.rs", text), ("db/b.rs", "impl super::Big<u8> { fn c() {} }")]);
        assert_eq!(largest(&sources, functions), ("db::Big".to_owned(), 3));
    }

    #[test]
    fn fields_are_counted_and_code_is_not() {
        let text = "pub(crate) struct A<T> {\n    /// Doc: not a field.\n    a: T,\n    \
                    pub(crate) b: Vec<u8>,\n}\nstruct B(u8);\n";
        assert_eq!(largest(&sources(&[("db/a.rs", text)]), fields), ("db::A".to_owned(), 2));
    }
}
