//! Layers point down: a part of the engine uses its own layer and those below, and no layer of
//! one wing uses the other wing.

use super::Finding;
use super::config::Layer;
use super::source::{Source, identifier, is_test_file};

const ROOT: &str = "engine/src/";
const RULE: &str = "layers";

/// Finds paths that point up, or across to the other wing.
pub(crate) fn check(source: &Source, layers: &[Layer], findings: &mut Vec<Finding>) {
    let Some(below) = source.path.strip_prefix(ROOT).filter(|below| *below != "lib.rs") else {
        return;
    };
    let module: Vec<&str> =
        below.trim_end_matches(".rs").split('/').filter(|name| *name != "mod").collect();
    let Some(own) = rank(layers, module[0]) else {
        let advice = format!("name the layer of `{}` in tidy.toml", module[0]);
        findings.push(Finding::new(&source.path, 1, RULE, advice));
        return;
    };
    let mut uses = through_crate(source);
    uses.extend(through_super(source, module.len()));
    // A test may make a whole database.
    uses.retain(|(at, _)| !is_test_file(&source.path) && !source.is_test_line(source.line_of(*at)));
    for (at, part) in uses {
        let advice = match rank(layers, part) {
            Some(_) if part == module[0] => continue,
            Some(used) => match objection(layers, own, used) {
                Some(why) => format!("`{}` may not use `{part}`: {why}", module[0]),
                None => continue,
            },
            None => format!("`crate::{part}` hides its layer: write the path with its part"),
        };
        findings.push(Finding::new(&source.path, source.line_of(at), RULE, advice));
    }
}

/// The layer that a part is in, counted from the ground.
fn rank(layers: &[Layer], part: &str) -> Option<usize> {
    layers.iter().position(|layer| layer.parts.iter().any(|name| name == part))
}

/// Why one layer may not use another, if it may not.
fn objection(layers: &[Layer], own: usize, used: usize) -> Option<String> {
    let (user, used_layer) = (&layers[own], &layers[used]);
    if used > own {
        return Some(format!("{} is above {}", used_layer.name, user.name));
    }
    match (&user.wing, &used_layer.wing) {
        (Some(own), Some(other)) if own != other => {
            Some(format!("the {own} wing does not know the {other} wing"))
        }
        _ => None,
    }
}

/// The parts named behind `crate::`, braces included, each with its offset.
fn through_crate(source: &Source) -> Vec<(usize, &str)> {
    source.words("crate").flat_map(|at| first_names(source, at + "crate".len())).collect()
}

/// The parts reached by climbing with `super::` to the root of the crate.
fn through_super(source: &Source, depth: usize) -> Vec<(usize, &str)> {
    let climb = "super::".repeat(depth);
    let climb = climb.trim_end_matches(':');
    let mut found = Vec::new();
    for (at, _) in source.code.match_indices(climb) {
        let before = source.code[..at].chars().next_back();
        // Inside an inline test module `super` is one step shorter.
        let is_whole = !before.is_some_and(|c| c == ':' || super::source::is_word(c));
        if is_whole && !source.is_test_line(source.line_of(at)) {
            found.extend(first_names(source, at + climb.len()));
        }
    }
    found
}

/// The first names behind a `::` at `at`: one, or several in braces.
pub(crate) fn first_names(source: &Source, at: usize) -> Vec<(usize, &str)> {
    let Some(rest) = source.code[at..].strip_prefix("::") else { return Vec::new() };
    let start = at + 2;
    if !rest.starts_with('{') {
        let name = identifier(rest);
        return if name.is_empty() { Vec::new() } else { vec![(start, name)] };
    }
    let end = source.behind_closing(start) - 1;
    let mut names = Vec::new();
    let (mut depth, mut expects_name) = (0_usize, true);
    for (offset, c) in source.code[start + 1..end].char_indices() {
        let at = start + 1 + offset;
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => expects_name = true,
            c if expects_name && super::source::is_word(c) => {
                names.push((at, identifier(&source.code[at..])));
                expects_name = false;
            }
            _ => {}
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(name: &str, wing: Option<&str>, parts: &[&str]) -> Layer {
        let parts = parts.iter().map(|&part| part.to_owned()).collect();
        Layer { name: name.to_owned(), wing: wing.map(str::to_owned), parts }
    }

    fn found(path: &str, text: &str) -> Vec<String> {
        let layers = [
            layer("ground", None, &["error", "record"]),
            layer("pm", Some("memory"), &["pm"]),
            layer("alloc", Some("memory"), &["alloc"]),
            layer("tier", Some("disk"), &["tier"]),
            layer("db", None, &["db"]),
        ];
        let mut findings = Vec::new();
        check(&Source::new(path, text), &layers, &mut findings);
        findings.into_iter().map(|finding| finding.advice).collect()
    }

    #[test]
    fn down_and_level_is_allowed() {
        let text = "use crate::{error::{Error, Result}, pm::Region, alloc};\nuse crate::record;";
        assert!(found("engine/src/alloc/zone.rs", text).is_empty());
        assert!(found("engine/src/error.rs", "use crate::record::A;").is_empty());
        assert!(found("engine/src/db/mod.rs", "use crate::{tier, alloc};").is_empty());
    }

    #[test]
    fn up_is_found() {
        assert_eq!(found("engine/src/pm/mod.rs", "fn a() { crate::alloc::zone() }").len(), 1);
        let text = "use crate::{\n    error::Error,\n    db::{self, Database},\n};";
        assert_eq!(found("engine/src/pm/x.rs", text), ["`pm` may not use `db`: db is above pm"]);
    }

    #[test]
    fn a_test_may_make_a_database() {
        let text = "#[cfg(test)]\nmod tests {\n    use crate::db::Database;\n}\n";
        assert!(found("engine/src/pm/x.rs", text).is_empty());
        assert!(found("engine/src/pm/tests.rs", "use crate::db::Database;").is_empty());
    }

    #[test]
    fn across_is_found() {
        let advice = found("engine/src/tier/mod.rs", "use crate::pm::Region;");
        assert_eq!(
            advice,
            ["`tier` may not use `pm`: the disk wing does not know the memory wing"]
        );
    }

    #[test]
    fn climbing_is_found() {
        assert_eq!(found("engine/src/pm/mod.rs", "use super::alloc::Zone;").len(), 1);
        assert_eq!(found("engine/src/pm/x.rs", "use super::super::alloc::Zone;").len(), 1);
        assert!(found("engine/src/pm/x.rs", "use super::alloc_helper::Zone;").is_empty());
    }

    #[test]
    fn every_part_has_a_layer_and_every_path_a_part() {
        assert_eq!(found("engine/src/new.rs", "").len(), 1);
        assert_eq!(found("engine/src/pm/mod.rs", "use crate::Database;").len(), 1);
    }

    #[test]
    fn other_crates_and_the_root_are_free() {
        assert!(found("engine/src/lib.rs", "pub use crate::db::Database;").is_empty());
        assert!(found("cli/src/a.rs", "use crate::db;").is_empty());
    }
}
