//! Finds every place in the engine that stores to the region, flushes or fences, so that a run can
//! say which of them it never cut at.

#![allow(clippy::print_stdout, reason = "cargo reads it")]

use std::fs;
use std::path::{Path, PathBuf};

/// What makes something of the region durable, by name of the call.
const CALLS: [&str; 6] =
    ["region.write(", ".rewrite(", ".store_word(", ".persist(", "region.flush(", "region.fence("];

/// Parts of the engine that are no part of a database, or are below the region.
const APART: [&str; 8] = [
    "src/bench",
    "pindex/",
    "os/",
    "pm/region.rs",
    "pm/alloc/objects",
    // An index in memory has calls of the same names.
    "memtable/",
    // Cut in the tests of the engine: there is no database yet.
    "engine/open/create.rs",
    "/tests",
];

/// Functions that are no part of a database at work (creation, and what a figure switches on), or
/// work on a file alone, where to flush and to fence does nothing: the write and the sync of the
/// run are what can be cut.
const APART_FUNCTIONS: [&str; 3] =
    ["fn format(", "fn pay_for_published_rule(", "fn take_floor_along("];

/// Where it takes a thread that is stopped, and another one: cut in `commit/tests/held_up.rs`.
const OF_TWO_THREADS: [&str; 1] = ["self.region.fence(self.flush_stored("];

fn main() {
    let engine = PathBuf::from("../engine/src");
    println!("cargo::rerun-if-changed={}", engine.display());
    let mut sites = Vec::new();
    collect(&engine, &mut sites);
    sites.sort();
    let out = std::env::var_os("OUT_DIR").expect("cargo names a folder");
    let text = format!("/// Files and lines.\npub const SITES: &[(&str, u32)] = &{sites:#?};\n");
    fs::write(Path::new(&out).join("sites.rs"), text).expect("the folder can be written to");
}

fn collect(folder: &Path, sites: &mut Vec<(String, u32)>) {
    for entry in fs::read_dir(folder).expect("the engine is beside this crate").flatten() {
        let path = entry.path();
        let name = path.to_string_lossy().replace("../engine", "engine");
        if APART.iter().any(|part| name.contains(part)) {
            continue;
        }
        if path.is_dir() {
            collect(&path, sites);
            continue;
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        // Tests are at the end of a file.
        let code = text.split("\nmod tests {").next().unwrap_or_default();
        let mut is_apart = false;
        for (number, line) in (1u32..).zip(code.lines()) {
            if line.trim_start().starts_with("//") {
                continue;
            }
            if line.contains("fn ") {
                is_apart = APART_FUNCTIONS.iter().any(|function| line.contains(function));
            }
            let takes_two = OF_TWO_THREADS.iter().any(|call| line.contains(call));
            if !is_apart && !takes_two && CALLS.iter().any(|call| line.contains(call)) {
                sites.push((name.clone(), number));
            }
        }
    }
}
