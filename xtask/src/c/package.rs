//! The installation: libraries, header, and what pkg-config and CMake read. And that a program
//! builds against it by each of them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::{CRATE, Libraries, is_there, programs};
use crate::check::{Setting, passes};

/// The version in the name of the shared library.
#[expect(unreachable_pub, reason = "the C interface exports it")]
#[path = "../../../bindings/c/src/abi.rs"]
mod abi;

use abi::TERRACE_ABI_VERSION as ABI;

/// The version of the packages.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// `cargo xtask package c DIR`: builds the libraries for release, and installs them.
pub(crate) fn run(root: &Path, folder: &Path) -> Result<bool> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).args(["build", "--release", "--package", "terrace-c"]);
    command.args(["--features", "object,monitor"]);
    command.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    if !output.status.success() {
        bail!("the libraries do not build");
    }
    let shared = shared_library(&String::from_utf8_lossy(&output.stdout))?;
    let target = shared.parent().context("a library lies in no folder")?;
    install(root, &Libraries::in_folder(target)?, folder)?;
    strip(folder)?;
    println!("{}", folder.display());
    Ok(true)
}

/// The shared library that messages of cargo tell of.
fn shared_library(messages: &str) -> Result<PathBuf> {
    for line in messages.lines() {
        let message: serde_json::Value = serde_json::from_str(line).context("reading a message")?;
        let files = message["filenames"].as_array().into_iter().flatten();
        let mut paths = files.filter_map(|file| file.as_str());
        if let Some(found) = paths.find(|path| path.ends_with("/libterrace_c.so")) {
            return Ok(PathBuf::from(found));
        }
    }
    bail!("the build gave no shared library")
}

/// Installs the libraries into a folder, which is made. What is there of an earlier installation is
/// replaced.
pub(super) fn install(root: &Path, libraries: &Libraries, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let folder = folder.canonicalize()?;
    let (lib, include) = (folder.join("lib"), folder.join("include"));
    for made in [lib.join("pkgconfig"), lib.join("cmake/Terrace"), include.clone()] {
        fs::create_dir_all(&made).with_context(|| format!("making {}", made.display()))?;
    }
    let full = format!("libterrace.so.{ABI}.{VERSION}");
    replace(&libraries.shared, &lib.join(&full))?;
    replace(&libraries.fixed, &lib.join("libterrace.a"))?;
    link(&full, &lib.join(format!("libterrace.so.{ABI}")))?;
    link(&format!("libterrace.so.{ABI}"), &lib.join("libterrace.so"))?;
    let source = root.join(CRATE);
    replace(&source.join("include/terrace.h"), &include.join("terrace.h"))?;
    for (template, to) in [
        ("terrace.pc", "pkgconfig/terrace.pc"),
        ("TerraceConfig.cmake", "cmake/Terrace/TerraceConfig.cmake"),
        ("TerraceConfigVersion.cmake", "cmake/Terrace/TerraceConfigVersion.cmake"),
    ] {
        let template = source.join("package").join(template);
        let text = fs::read_to_string(&template)
            .with_context(|| format!("reading {}", template.display()))?;
        let to = lib.join(to);
        fs::write(&to, text.replace("@VERSION@", VERSION).replace("@ABI@", &ABI.to_string()))
            .with_context(|| format!("writing {}", to.display()))?;
    }
    Ok(())
}

/// Takes what only debuggers read out of the installed shared library. It comes to lie in `.debug`
/// beside the library, where debuggers look for it. The library of the build stays as it is, and so
/// does the installed one where `objcopy` is missing.
fn strip(folder: &Path) -> Result<()> {
    if !is_there("objcopy") {
        println!("the library keeps its symbols, without `objcopy`; install binutils");
        return Ok(());
    }
    let lib = folder.join("lib");
    let name = format!("libterrace.so.{ABI}.{VERSION}");
    let (whole, stripped) = (lib.join(&name), lib.join(format!("{name}.stripped")));
    let symbols = lib.join(".debug").join(format!("{name}.debug"));
    fs::create_dir_all(lib.join(".debug")).context("making .debug")?;
    remove(&symbols)?;
    let mut keep = Command::new("objcopy");
    passes(keep.arg("--only-keep-debug").arg(&whole).arg(&symbols))?;
    let mut strip = Command::new("objcopy");
    strip.arg("--strip-unneeded").arg(format!("--add-gnu-debuglink={}", symbols.display()));
    passes(strip.arg(&whole).arg(&stripped))?;
    fs::rename(&stripped, &whole).with_context(|| format!("naming {}", whole.display()))
}

/// Puts a static library and the header into a folder, which is made: what programs of tests need.
pub(super) fn install_static(root: &Path, library: &Path, folder: &Path) -> Result<()> {
    let (lib, include) = (folder.join("lib"), folder.join("include"));
    for made in [&lib, &include] {
        fs::create_dir_all(made).with_context(|| format!("making {}", made.display()))?;
    }
    replace(library, &lib.join("libterrace.a"))?;
    replace(&root.join(CRATE).join("include/terrace.h"), &include.join("terrace.h"))
}

/// Copies a file to a name that may be taken: a program that has it loaded keeps the old one.
fn replace(from: &Path, to: &Path) -> Result<()> {
    remove(to)?;
    // A link takes no time and no room where both are on one file system.
    if fs::hard_link(from, to).is_err() {
        fs::copy(from, to)
            .with_context(|| format!("copying {} to {}", from.display(), to.display()))?;
    }
    Ok(())
}

fn link(to: &str, at: &Path) -> Result<()> {
    remove(at)?;
    symlink(to, at).with_context(|| format!("linking {}", at.display()))
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("removing {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// An example builds against the installation and runs: by pkg-config, with the static library, and
/// by CMake.
pub(super) fn check(setting: &Setting, compiler: &str, installed: &Path) -> Result<()> {
    let example = setting.root.join(CRATE).join("examples/hello.c");
    let flags = by_pkg_config(setting, installed)?;
    let mut shared = flags.shared;
    shared.push(format!("-Wl,-rpath,{}", installed.join("lib").display()));
    for link in [shared, flags.fixed] {
        let program = programs::compile(compiler, &example, installed, &[], &link)?;
        programs::run(&program, None)?;
    }
    by_cmake(setting, installed, &example)?;
    check_stripped(setting, compiler, &example, installed)
}

/// The example runs on the library as it is packaged, which is smaller by what lies beside it.
fn check_stripped(
    setting: &Setting,
    compiler: &str,
    example: &Path,
    installed: &Path,
) -> Result<()> {
    let library = installed.join(format!("lib/libterrace.so.{ABI}.{VERSION}"));
    let len = |file: &Path| fs::metadata(file).map(|metadata| metadata.len());
    let before = len(&library)?;
    strip(installed)?;
    let symbols = installed.join(format!("lib/.debug/libterrace.so.{ABI}.{VERSION}.debug"));
    if !symbols.exists() {
        setting.leave_out("a library without symbols, without `objcopy`; install binutils");
    } else if len(&library)? + len(&symbols)? / 2 > before {
        bail!("{} is not stripped: {} of {before} bytes", library.display(), len(&library)?);
    }
    let lib = installed.join("lib");
    let link = [format!("-L{}", lib.display()), "-lterrace".into()];
    let link = [&link[..], &[format!("-Wl,-rpath,{}", lib.display())]].concat();
    programs::run(&programs::compile(compiler, example, installed, &[], &link)?, None)
}

/// What pkg-config says about linking.
struct Flags {
    shared: Vec<String>,
    fixed: Vec<String>,
}

/// The flags of pkg-config, or plain ones where there is none.
fn by_pkg_config(setting: &Setting, installed: &Path) -> Result<Flags> {
    let lib = installed.join("lib");
    let fixed_library = lib.join("libterrace.a").display().to_string();
    let (shared, fixed) = if is_there("pkg-config") {
        (pkg_config(&lib, &["--cflags", "--libs"])?, pkg_config(&lib, &["--libs", "--static"])?)
    } else {
        setting.leave_out("pkg-config, which is missing; plain flags take its place");
        let plain = vec![format!("-L{}", lib.display()), "-lterrace".into()];
        let system = ["-lpthread", "-ldl", "-lm"].map(str::to_owned);
        (plain.clone(), [plain, system.to_vec()].concat())
    };
    // With the shared library beside it, -lterrace would not take the static one.
    let exact = |flag: String| if flag == "-lterrace" { fixed_library.clone() } else { flag };
    Ok(Flags { shared, fixed: fixed.into_iter().map(exact).collect() })
}

fn pkg_config(lib: &Path, arguments: &[&str]) -> Result<Vec<String>> {
    let output = Command::new("pkg-config")
        .args(arguments)
        .arg("terrace")
        .env("PKG_CONFIG_PATH", lib.join("pkgconfig"))
        .output()
        .context("starting pkg-config")?;
    if !output.status.success() {
        bail!("pkg-config: {}", String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

/// A project of CMake that finds the package, builds against the shared and the static library, and
/// runs.
fn by_cmake(setting: &Setting, installed: &Path, example: &Path) -> Result<()> {
    if !is_there("cmake") {
        setting.leave_out("CMake, which is missing");
        return Ok(());
    }
    let project = installed.join("cmake-project");
    if project.exists() {
        fs::remove_dir_all(&project)?;
    }
    fs::create_dir_all(&project)?;
    fs::write(
        project.join("CMakeLists.txt"),
        format!(
            "cmake_minimum_required(VERSION 3.13)\nproject(example C)\n\
             find_package(Terrace 0.1 REQUIRED)\n\
             add_executable(hello {example})\n\
             target_link_libraries(hello PRIVATE Terrace::terrace)\n\
             add_executable(hello_static {example})\n\
             target_link_libraries(hello_static PRIVATE Terrace::terrace_static)\n",
            example = example.display()
        ),
    )?;
    let build = project.join("build");
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(&project).arg("-B").arg(&build).stdout(Stdio::null());
    configure.arg(format!("-DCMAKE_PREFIX_PATH={}", installed.display()));
    passes(configure)?;
    let mut make = Command::new("cmake");
    passes(make.arg("--build").arg(&build).stdout(Stdio::null()))?;
    programs::run(&build.join("hello"), None)?;
    programs::run(&build.join("hello_static"), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shared_library_is_found_among_messages() {
        let messages = "{\"reason\":\"compiler-artifact\",\"filenames\":[\"/t/libx.rlib\"]}\n\
                        {\"reason\":\"compiler-artifact\",\"filenames\":[\"/t/libterrace_c.a\",\
                        \"/t/libterrace_c.so\"]}";
        assert_eq!(shared_library(messages).unwrap(), Path::new("/t/libterrace_c.so"));
        assert!(shared_library("{\"reason\":\"build-finished\"}").is_err());
    }

    #[test]
    fn a_file_takes_the_place_of_another() {
        let folder = std::env::temp_dir().join(format!("terrace-package-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (from, to) = (folder.join("from"), folder.join("to"));
        fs::write(&from, "new").unwrap();
        fs::write(&to, "old").unwrap();
        replace(&from, &to).unwrap();
        link("to", &folder.join("link")).unwrap();
        link("to", &folder.join("link")).unwrap();
        assert_eq!(fs::read_to_string(folder.join("link")).unwrap(), "new");
        fs::remove_dir_all(&folder).unwrap();
    }
}
