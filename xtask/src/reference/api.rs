//! The public interface of the crate, a line each: what a change of it shows in a review. What a
//! macro declares (options and statistics) is on the page of the reference.
//!
//! It goes by the form that rustfmt gives: items begin in the first column, members four behind it.

use std::collections::BTreeSet;

use anyhow::Result;

use super::sources::Sources;

/// Where it lies.
pub(crate) const PATH: &str = "docs/api.txt";

const HEAD: &str = "\
The public interface of the crate `terrace`. `cargo xtask reference` makes this list out of the
source, and `cargo xtask tidy` compares the two. docs/reference.md has options and statistics.

";

/// What an item is, as its first words say.
const KINDS: &[&str] = &["pub struct ", "pub enum ", "pub trait ", "pub fn ", "pub type "];

pub(super) fn text(sources: &Sources) -> Result<String> {
    let mut names = exported(sources.text("engine/src/lib.rs")?);
    let typed = |path: &str| path.starts_with("engine/src/typed/");
    for (_, source) in sources.engine().filter(|(path, _)| typed(path)) {
        names.extend(items(source).filter_map(|item| declared(item[0]).map(str::to_owned)));
    }
    let mut found = BTreeSet::new();
    for (_, source) in sources.engine() {
        for item in items(source) {
            members(&item, &names, &mut found);
        }
    }
    Ok(HEAD.to_owned() + &found.into_iter().map(|line| line + "\n").collect::<String>())
}

/// The names that the crate exports, but for hidden ones.
fn exported(lib: &str) -> BTreeSet<String> {
    let lines: Vec<&str> = lib.lines().collect();
    let mut names = BTreeSet::new();
    for at in (0..lines.len()).filter(|at| lines[*at].starts_with("pub use ")) {
        if is_hidden(&lines[..at]) {
            continue;
        }
        let used = until(&lines[at..], ';').replace(['{', '}', ';'], ",");
        let last = |name: &str| name.trim().rsplit("::").next().unwrap_or_default().to_owned();
        names.extend(used.split(',').map(last).filter(|name| !name.is_empty()));
    }
    names
}

/// The items of a source in front of its tests: their lines.
fn items(source: &str) -> impl Iterator<Item = Vec<&str>> {
    let source = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines: Vec<&str> = source.lines().collect();
    let is_first =
        |line: &str| line.starts_with("impl") || KINDS.iter().any(|kind| line.starts_with(kind));
    let starts: Vec<usize> =
        (0..lines.len()).filter(|at| is_first(lines[*at]) && !is_hidden(&lines[..*at])).collect();
    starts.into_iter().map(move |at| {
        let ends =
            |line: &str| line == "}" || line.ends_with([';', '}']) && !line.starts_with([' ', '}']);
        let len =
            lines[at..].iter().position(|line| ends(line)).map_or(lines.len() - at, |n| n + 1);
        lines[at..at + len].to_vec()
    })
}

/// Whether attributes above an item hide it, or leave it to tests.
fn is_hidden(above: &[&str]) -> bool {
    let attributes = above.iter().rev().map(|line| line.trim());
    let mut attributes =
        attributes.take_while(|line| line.starts_with("#[") || line.starts_with("//"));
    attributes.any(|line| line == "#[doc(hidden)]" || line.starts_with("#[cfg(any(test"))
}

/// The lines up to the one that ends with `end`, on one line, without it.
fn until(lines: &[&str], end: char) -> String {
    let len = lines.iter().position(|line| line.ends_with(end)).map_or(lines.len(), |at| at + 1);
    let joined = lines[..len].iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
    joined.trim_end_matches([end, ' ']).replace("( ", "(").replace(", )", ")").replace(",)", ")")
}

/// The name that an item declares.
fn declared(first: &str) -> Option<&str> {
    let rest = KINDS.iter().find_map(|kind| first.strip_prefix(kind))?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

/// What follows the parameters in angle brackets, if there are any.
fn behind_parameters(text: &str) -> &str {
    let mut depth = 0;
    let end = text.char_indices().find(|(_, c)| {
        depth += i32::from(*c == '<') - i32::from(*c == '>');
        depth == 0
    });
    end.map_or(text, |(at, c)| &text[at + c.len_utf8()..])
}

/// The lines of an item, if it is of the interface.
fn members(item: &[&str], names: &BTreeSet<String>, found: &mut BTreeSet<String>) {
    let head = until(item, '{').trim_end_matches(';').to_owned();
    let head = head.split(" where ").next().unwrap_or_default();
    let (of, is_inherent) = match head.strip_prefix("impl") {
        None => (declared(item[0]).unwrap_or_default(), true),
        Some(implemented) => {
            let target = match implemented.rsplit_once(" for ") {
                Some((_, target)) => target,
                None => behind_parameters(implemented).trim(),
            };
            let end = target.find(|c: char| !c.is_alphanumeric() && c != '_');
            (&target[..end.unwrap_or(target.len())], !implemented.contains(" for "))
        }
    };
    if !names.contains(of) {
        return;
    }
    if !head.starts_with("impl") || !is_inherent {
        let is_function = head.starts_with("pub fn");
        found.insert(if is_function { until(item, '{') } else { head.to_owned() });
    }
    let (is_enum, is_trait) = (head.starts_with("pub enum"), head.starts_with("pub trait"));
    for at in 1..item.len() {
        let line = item[at];
        let Some(member) =
            line.strip_prefix("    ").filter(|it| !it.starts_with([' ', '/', '#', '}', ')']))
        else {
            continue;
        };
        let is_public = is_inherent && member.starts_with("pub ") || is_enum || is_trait;
        if !is_public || is_hidden(&item[..at]) {
            continue;
        }
        let code = match member.contains("fn ") {
            true => {
                let rest = &item[at..];
                let len = rest.iter().position(|line| line.ends_with(['{', ';', '}']));
                until(&rest[..len.map_or(rest.len(), |at| at + 1)], '{')
            }
            false => member.trim_end_matches([',', ';', '{', ' ']).to_owned(),
        };
        found.insert(format!("{of}: {}", code.trim_end_matches([';', ' '])));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_each_kind_of_line_and_nothing_hidden() {
        let list = text(&Sources::load(&crate::root()).unwrap()).unwrap();
        for line in [
            "Database: pub fn write(&self, batch: WriteBatch) -> Result<()>\n",
            "ErrorKind: Conflict\n",
            "pub struct Transaction\n",
            "impl Drop for Transaction\n",
            "Options: pub fn verify(",
            "ReadTables: fn get(",
        ] {
            assert!(list.contains(line), "{line} is missing in\n{list}");
        }
        for hidden in ["pub(crate)", "fn held(", "ObjectServer"] {
            assert!(!list.contains(hidden), "{hidden} is no part of\n{list}");
        }
    }
}
