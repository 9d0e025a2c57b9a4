//! What library code does not do: panic on what can happen, throw results away, print, sleep.

use super::Finding;
use super::source::{Source, is_of_library};

const RULE: &str = "banned";

/// What is banned, and what to write in its place.
const BANNED: &[(&str, &str)] = &[
    (".unwrap()", "return the error, or use `expect` with a reason that starts with \"invariant\""),
    ("todo!", "write it, or return an error"),
    ("unimplemented!", "write it, or return an error"),
    ("let _ =", "handle the result, or name what is dropped with `drop`"),
    ("println!", "return it: a library does not print"),
    ("eprintln!", "return it: a library does not print"),
    ("print!", "return it: a library does not print"),
    ("eprint!", "return it: a library does not print"),
    ("dbg!", "remove it"),
    ("thread::sleep", "wait for the event: park, or use a condition variable"),
];

/// What a deterministic scheduler must see, and where the floor is that shows it.
const PAST_THE_FLOOR: &[(&str, &str)] = &[
    ("std::sync::atomic", "take it from `os::sync::atomic`"),
    ("std::sync::mpsc", "take it from `os::sync::channel`"),
    ("std::sync::OnceLock", "take it from `os::sync::shared`"),
    ("std::sync::Mutex", "take it from `os::sync::locks`"),
    ("std::sync::RwLock", "take it from `os::sync::locks`"),
    ("std::sync::Condvar", "take it from `os::sync::locks`"),
    ("parking_lot::", "take it from `os::sync::locks`"),
    ("arc_swap::ArcSwap", "take it from `os::sync::shared`"),
    ("thread::spawn", "take it from `os::thread`"),
    ("thread::scope", "take it from `os::thread`"),
    ("thread::Builder", "take it from `os::thread`"),
    ("thread::yield_now", "take it from `os::thread`"),
    ("Instant::now", "ask `os::time`"),
    ("RandomState", "take `os::RandomKeys`"),
];

/// What lies below the floor, or measures, or is of tests.
const BELOW: &[&str] = &[
    "crates/os/",
    "crates/testkit/",
    "engine/src/bench.rs",
    "engine/src/bench/",
    "engine/src/cache/model.rs",
    "engine/src/testing.rs",
    "engine/src/level0/matrix/walk.rs",
    // What the processor has: the first run finds it out, and no run may differ for that.
    "engine/src/sstable/heads/lanes.rs",
    // The policy of a scheduler looks at it, and may take no lock of the scheduler.
    "engine/src/storage/object/memory.rs",
    "engine/src/storage/object/testing.rs",
];

/// Finds what is banned in the library outside its tests.
pub(crate) fn check(source: &Source, findings: &mut Vec<Finding>) {
    if !is_of_library(&source.path) {
        return;
    }
    let mut report = |at: usize, advice: String| {
        let line = source.line_of(at);
        if !source.is_test_line(line) {
            findings.push(Finding::new(&source.path, line, RULE, advice));
        }
    };
    let is_below = BELOW.iter().any(|below| source.path.starts_with(below));
    let floor = PAST_THE_FLOOR.iter().filter(|_| !is_below);
    for (what, instead) in BANNED.iter().chain(floor) {
        for (at, _) in source.code.match_indices(what) {
            // `println!` also ends `eprintln!`, which has an entry of its own.
            let is_own = source.code[..at].ends_with("os::");
            let starts =
                what.starts_with('.') || !source.code[..at].ends_with(super::source::is_word);
            if starts && !is_own {
                report(at, format!("`{what}`: {instead}"));
            }
        }
    }
    for (at, list) in source.code.match_indices("std::sync::{").filter(|_| !is_below) {
        let names = source.code[at + list.len()..].split('}').next().unwrap_or_default();
        for name in names.split(',').map(str::trim) {
            let path = format!("std::sync::{name}");
            let found = PAST_THE_FLOOR.iter().find(|(what, _)| path.starts_with(what));
            if let Some((what, instead)) = found {
                report(at, format!("`{what}`: {instead}"));
            }
        }
    }
    for (at, call) in source.code.match_indices(".expect(") {
        if !source.text[at + call.len()..].trim_start().starts_with("\"invariant") {
            report(at, "`expect`: return the error, or start the reason with \"invariant\"".into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        let mut findings = Vec::new();
        check(&Source::new(path, text), &mut findings);
        findings.len()
    }

    #[test]
    fn banned_calls_are_found() {
        for (what, _) in BANNED {
            assert_eq!(found("engine/src/a.rs", &format!("fn a() {{ {what} }}")), 1, "{what}");
        }
    }

    #[test]
    fn what_goes_past_the_floor_is_found() {
        for (what, _) in PAST_THE_FLOOR {
            assert_eq!(found("engine/src/a.rs", &format!("use {what};")), 1, "{what}");
            assert_eq!(found("crates/os/src/a.rs", &format!("use {what};")), 0, "{what}");
        }
        assert_eq!(found("engine/src/a.rs", "use std::sync::{Arc, OnceLock, atomic};"), 2);
        assert_eq!(found("engine/src/a.rs", "crate::os::thread::scope(|_| {});"), 0);
    }

    #[test]
    fn an_invariant_may_be_expected() {
        assert_eq!(found("engine/src/a.rs", "a.expect(\"invariant: b holds\")"), 0);
        assert_eq!(found("engine/src/a.rs", "a.expect(\n    \"invariant: b\")"), 0);
        assert_eq!(found("engine/src/a.rs", "a.expect(\"works\")"), 1);
    }

    #[test]
    fn comments_strings_and_tests_are_free() {
        assert_eq!(found("engine/src/a.rs", "// .unwrap()\nlet a = \".unwrap()\";"), 0);
        assert_eq!(found("engine/src/a.rs", "#[cfg(test)]\nmod tests { a.unwrap() }"), 0);
        assert_eq!(found("engine/tests/a.rs", "a.unwrap()"), 0);
        assert_eq!(found("cli/src/a.rs", "println!()"), 0);
    }
}
