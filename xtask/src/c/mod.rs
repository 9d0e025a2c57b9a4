//! The C interface: its header, the symbols that it exports, what is installed of it, and programs
//! in C that use it.

mod example;
mod header;
mod package;
mod programs;
mod symbols;
mod ycsb;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::check::{Setting, passes};

pub(crate) use header::run as header;
pub(crate) use package::run as package;
pub(crate) use ycsb::check as ycsb;

/// The crate of the C interface.
const CRATE: &str = "bindings/c";

/// The libraries that a build gives.
pub(crate) struct Libraries {
    /// The shared one.
    shared: PathBuf,
    /// The static one.
    fixed: PathBuf,
}

impl Libraries {
    /// The libraries in a folder of build outputs.
    fn in_folder(folder: &Path) -> Result<Libraries> {
        let (shared, fixed) = (folder.join("libterrace_c.so"), folder.join("libterrace_c.a"));
        for file in [&shared, &fixed] {
            if !file.exists() {
                bail!("the build gave no {}", file.display());
            }
        }
        Ok(Libraries { shared, fixed })
    }
}

const NO_COMPILER: &str = "programs in C, without a C compiler `cc`; install gcc or clang";

/// The stage of the check: the header and the symbols are what the source says, an installation
/// works, and the programs do with it what they should.
pub(crate) fn check(setting: &mut Setting) -> Result<()> {
    header::check(&setting.root)?;
    let libraries = built_for_tests(setting)?;
    symbols::check(setting, &libraries)?;
    let Some(compiler) = programs::compiler() else {
        setting.leave_out(NO_COMPILER);
        return Ok(());
    };
    let installed = installed_for_tests(setting, &libraries)?;
    programs::check_header(setting, &compiler, &installed)?;
    example::check(&compiler, &installed)?;
    programs::run_plain(setting, &compiler, &installed)?;
    package::check(setting, &compiler, &installed)?;
    if setting.is_long() {
        programs::run_sanitized(setting, &compiler, &installed)?;
    }
    Ok(())
}

/// The programs under the thread sanitizer, part of its stage. `cargo` builds with it, in the
/// folder `target`. With it go the runtime and the options of the sanitizer.
pub(crate) fn under_thread_sanitizer(
    setting: &Setting,
    mut cargo: Command,
    target: &Path,
    sanitizer: (&Path, &str),
) -> Result<()> {
    let Some(compiler) = programs::compiler() else {
        setting.leave_out(NO_COMPILER);
        return Ok(());
    };
    passes(cargo.args(["--package", "terrace-c", "--lib", "--crate-type", "staticlib"]))?;
    let installed = target.join("c-installed");
    package::install_static(&setting.root, &target.join("debug/libterrace_c.a"), &installed)?;
    programs::run_thread_sanitized(setting, &compiler, &installed, sanitizer)
}

/// The libraries of the build that the tests use: no other build is made.
fn built_for_tests(setting: &mut Setting) -> Result<Libraries> {
    let program = setting
        .programs()?
        .iter()
        .find(|program| program.name == "sequences")
        .context("the build of the tests has no tests of the C interface")?;
    // Cargo leaves the libraries of a crate beside its tests.
    Libraries::in_folder(program.path.parent().context("a test binary lies in no folder")?)
}

/// Installs the libraries into an empty directory.
fn installed_for_tests(setting: &Setting, libraries: &Libraries) -> Result<PathBuf> {
    let folder = libraries.shared.parent().context("a library lies in no folder")?;
    let installed = folder.join("c-installed");
    if installed.exists() {
        let removing = || format!("removing {}", installed.display());
        std::fs::remove_dir_all(&installed).with_context(removing)?;
    }
    package::install(&setting.root, libraries, &installed)?;
    Ok(installed)
}

/// Whether a command is there.
fn is_there(name: &str) -> bool {
    Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
}
