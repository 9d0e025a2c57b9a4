//! The long checks of what threads share: the index under a model checker; the index, the
//! persistent trees and the stress of snapshots under ThreadSanitizer.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::check::{Setting, cargo, passes};

/// Where the sanitizer's builds go: they share nothing with others.
const FOLDER: &str = "tsan";

/// The builds of the model checkers, unrun: no other short stage has them, and they would rot.
pub(crate) fn builds(setting: &mut Setting) -> Result<()> {
    for checker in ["shuttle", "loom"] {
        let mut command = cargo(setting);
        command.args(["clippy", "--package", "terrace", "--lib", "--profile", "test"]);
        command.args(["--features", checker, "--", "-D", "warnings"]);
        passes(command)?;
    }
    Ok(())
}

/// What `os/sync` has the primitives of, model-checked, in as many schedules as there is time for.
pub(crate) fn shuttle(setting: &mut Setting) -> Result<()> {
    if !setting.long {
        return skip("it runs with --long");
    }
    let mut command = cargo(setting);
    command.args(["test", "--package", "terrace", "--lib", "--features", "shuttle"]);
    command.args(["--", "index::tests::model", "commit::tests::model", "locks::tests::model"]);
    command.args(["ptree::tests::interleaved", "mvcc::tests"]);
    command.env("TERRACE_LONG", "1");
    passes(command)
}

/// The smallest parts of commit, in every schedule.
pub(crate) fn loom(setting: &mut Setting) -> Result<()> {
    if !setting.long {
        return skip("it runs with --long");
    }
    let mut command = cargo(setting);
    command.args(["test", "--package", "terrace", "--lib", "--features", "loom"]);
    command.args(["--", "commit::tests::loom"]);
    passes(command)
}

/// ThreadSanitizer. The standard library is built with it too, else its own fences are reported;
/// that takes a nightly toolchain with the library's source.
pub(crate) fn thread_sanitizer(setting: &mut Setting) -> Result<()> {
    if !setting.long {
        return skip("it runs with --long");
    }
    if let Some(missing) = missing() {
        return skip(&missing);
    }
    let suppressions = setting.root.join("engine").join("tsan.suppressions");
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(
        || setting.root.join("target").join(FOLDER),
        |target| Path::new(&target).join(FOLDER),
    );
    let mut options = OsString::from("suppressions=");
    options.push(suppressions);
    let mut command = Command::new("cargo");
    command
        .current_dir(&setting.root)
        .args(["+nightly", "test", "-Zbuild-std", "--package", "terrace", "--target", &host()])
        .args(["--lib", "--test", "stepped", "--", "index::tests::stress"])
        .args(["any_snapshot", "so_it_is_with_the_index_in_persistent_memory"])
        .args(["ptree::tests::stress::every_thread", "ptree::tests::bytes::every_thread"])
        .env("TERRACE_LONG", "1")
        .env("RUSTFLAGS", "-Zsanitizer=thread")
        .env("CARGO_TARGET_DIR", target)
        .env("TSAN_OPTIONS", options)
        .env("RUST_TEST_THREADS", "1")
        // The cargo that runs this program names its own toolchain.
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO")
        .env_remove("RUSTC");
    passes(command)
}

#[expect(clippy::unnecessary_wraps, reason = "the outcome of a stage")]
fn skip(why: &str) -> Result<()> {
    println!("skipped: {why}");
    Ok(())
}

fn host() -> String {
    format!("{}-unknown-linux-gnu", env::consts::ARCH)
}

/// What the sanitizer needs and is not there.
fn missing() -> Option<String> {
    let output = Command::new("rustc")
        .args(["+nightly", "--print", "sysroot"])
        .env_remove("RUSTUP_TOOLCHAIN")
        .output()
        .ok()
        .filter(|output| output.status.success());
    let Some(output) = output else {
        return Some("there is no nightly toolchain; `rustup toolchain install nightly`".into());
    };
    let sysroot = String::from_utf8_lossy(&output.stdout).trim().to_string();
    let library = Path::new(&sysroot).join("lib/rustlib/src/rust/library/Cargo.lock");
    (!library.exists()).then(|| {
        "the standard library's source is missing; `rustup component add rust-src --toolchain \
         nightly`"
            .into()
    })
}
