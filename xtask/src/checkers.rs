//! The long checks of what threads share: the smallest parts of commit under a model checker; the
//! index, the persistent trees, the stress of snapshots and programs in C under ThreadSanitizer.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::c;
use crate::check::{Setting, cargo, passes};

/// Where the sanitizer's builds go: they share nothing with others.
const FOLDER: &str = "tsan";

/// The build of the model checker, unrun: no other short stage has it, and it would rot.
pub(crate) fn builds(setting: &mut Setting) -> Result<()> {
    let mut command = cargo(setting);
    command.args(["clippy", "--package", "terrace", "--lib", "--profile", "test"]);
    command.args(["--features", "loom", "--", "-D", "warnings"]);
    passes(command)
}

/// What events give to `tracing`. No other build has that feature: with it each database has a
/// thread that tells of events, and a closing waits for that. It is for one short test, so it is
/// built fast.
pub(crate) fn tracing(setting: &mut Setting) -> Result<()> {
    let mut command = cargo(setting);
    command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "0");
    command.args(["test", "--package", "terrace", "--features", "tracing", "--test", "tracing"]);
    passes(command)
}

/// The smallest parts of commit, in every schedule.
pub(crate) fn loom(setting: &mut Setting) -> Result<()> {
    let mut command = cargo(setting);
    command.args(["test", "--package", "terrace", "--lib", "--features", "loom"]);
    command.args(["--", "commit::tests::loom"]);
    passes(command)
}

/// ThreadSanitizer. The standard library is built with it too, else its own fences are reported;
/// that takes a nightly toolchain with the library's source.
pub(crate) fn thread_sanitizer(setting: &mut Setting) -> Result<()> {
    if let Some(missing) = missing() {
        setting.leave_out(missing);
        return Ok(());
    }
    let suppressions = setting.root.join("engine").join("tsan.suppressions");
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(
        || setting.root.join("target").join(FOLDER),
        |target| Path::new(&target).join(FOLDER),
    );
    let options = format!("suppressions={}", suppressions.display());
    let built_with_it = |what: &str| {
        let mut command = Command::new("cargo");
        command
            .current_dir(&setting.root)
            .args(["+nightly", what, "-Zbuild-std", "--target", &host()])
            .env("TERRACE_LONG", "1")
            .env("RUSTFLAGS", "-Zsanitizer=thread")
            .env("CARGO_TARGET_DIR", &target)
            .env("TSAN_OPTIONS", &options)
            .env("RUST_TEST_THREADS", "1")
            // The cargo that runs this program names its own toolchain.
            .env_remove("RUSTUP_TOOLCHAIN")
            .env_remove("CARGO")
            .env_remove("RUSTC");
        command
    };
    let mut command = built_with_it("test");
    command
        .args(["--package", "terrace", "--lib", "--test", "stepped", "--", "index::tests::stress"])
        .args(["cache::tests::frames_come_and_go"])
        .args(["any_snapshot", "so_it_is_with_the_index_in_persistent_memory"])
        .arg("pindex::tests::stress::every_thread");
    passes(command)?;
    println!("programs in C, under the thread sanitizer");
    let built = target.join(host());
    let runtime = sysroot().unwrap_or_default().join(runtime());
    c::under_thread_sanitizer(setting, built_with_it("rustc"), &built, (&runtime, &options))
}

fn host() -> String {
    format!("{}-unknown-linux-gnu", env::consts::ARCH)
}

/// What the nightly toolchain has of the sanitizer for programs that it does not link.
fn runtime() -> PathBuf {
    Path::new("lib/rustlib").join(host()).join("lib/librustc-nightly_rt.tsan.a")
}

/// The folder of the nightly toolchain, if it is there.
fn sysroot() -> Option<PathBuf> {
    let mut command = Command::new("rustc");
    command.args(["+nightly", "--print", "sysroot"]).env_remove("RUSTUP_TOOLCHAIN");
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}

/// What the sanitizer needs and is not there.
fn missing() -> Option<String> {
    let Some(sysroot) = sysroot() else {
        return Some("there is no nightly toolchain; `rustup toolchain install nightly`".into());
    };
    let library = sysroot.join("lib/rustlib/src/rust/library/Cargo.lock");
    (!library.exists()).then(|| {
        "the standard library's source is missing; `rustup component add rust-src --toolchain \
         nightly`"
            .into()
    })
}
