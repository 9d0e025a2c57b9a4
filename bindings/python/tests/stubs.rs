//! The stubs and the engine have the same options. That there is a test makes cargo build the
//! library with the tests of the workspace, for the tests in Python.

use std::fs;
use std::path::Path;

/// The names in a dictionary of options of the stubs, in their order.
fn names(stubs: &str, class: &str) -> Vec<String> {
    let head = format!("class {class}(TypedDict, total=False):\n");
    let (_, body) = stubs.split_once(&head).expect("the stubs have the class");
    let fields = body.lines().take_while(|line| line.starts_with("    "));
    fields.filter_map(|line| Some(line.trim().split_once(':')?.0.to_owned())).collect()
}

#[test]
fn the_stubs_have_every_option_of_the_engine() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/terrace/_terrace.pyi");
    let stubs = fs::read_to_string(path).expect("the stubs are there");
    let engine = |names: &mut dyn Iterator<Item = (&'static str, &'static str)>| {
        names.map(|(name, _)| name.to_owned()).collect::<Vec<String>>()
    };
    let database = engine(&mut terrace::Options::names());
    assert_eq!(names(&stubs, "_DatabaseOptions"), database);
    assert_eq!(names(&stubs, "_TableOptions"), engine(&mut terrace::TableOptions::names()));
    assert_eq!(names(&stubs, "_TransactionOptions"), engine(&mut terrace::TxnOptions::names()));
}
