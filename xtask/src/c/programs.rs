//! Programs in C that use the library: the tests and the examples.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{CRATE, is_there};
use crate::check::{Setting, passes};

/// What programs are compiled with: no warning is let pass.
const STRICT: &[&str] = &["-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror", "-pthread", "-g"];

/// What a static library of Rust needs of the system.
const SYSTEM: &[&str] = &["-lpthread", "-ldl", "-lm", "-lrt", "-lutil"];

/// The C compiler: that of the environment, or `cc`.
pub(super) fn compiler() -> Option<String> {
    let name = env::var("CC").unwrap_or_else(|_| "cc".into());
    is_there(&name).then_some(name)
}

/// The tests and the examples, sorted.
pub(super) fn sources(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for folder in ["tests/programs", "examples"] {
        let folder = root.join(CRATE).join(folder);
        let listed =
            fs::read_dir(&folder).with_context(|| format!("listing {}", folder.display()))?;
        for entry in listed {
            files.push(entry?.path());
        }
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "c"));
    files.sort();
    Ok(files)
}

/// The header compiles as C11 and as C++17, by itself and without a warning.
pub(super) fn check_header(setting: &Setting, compiler: &str, installed: &Path) -> Result<()> {
    let header = installed.join("include/terrace.h");
    let check = |compiler: &str, language: &str, standard: &str| {
        let mut command = Command::new(compiler);
        command.args(["-fsyntax-only", "-x", language, standard]);
        command.args(["-Wall", "-Wextra", "-pedantic", "-Werror"]);
        // The header of a program is no header that is included.
        command.args(["-include"]).arg(&header).arg("/dev/null");
        passes(command)
    };
    check(compiler, "c", "-std=c11")?;
    let cpp = env::var("CXX").unwrap_or_else(|_| "c++".into());
    if !is_there(&cpp) {
        setting.leave_out(format!("the header as C++, without `{cpp}`; install g++ or clang++"));
        return Ok(());
    }
    check(&cpp, "c++", "-std=c++17")
}

/// Each program with the shared library, as it is.
pub(super) fn run_plain(setting: &Setting, compiler: &str, installed: &Path) -> Result<()> {
    let library = installed.join("lib");
    let mut link = vec![format!("-L{}", library.display()), "-lterrace".into()];
    link.push(format!("-Wl,-rpath,{}", library.display()));
    run_all(setting, compiler, installed, &[], &link, None)
}

/// Each program with the static library, under the sanitizers of the C compiler and, where it is
/// there, valgrind.
pub(super) fn run_sanitized(setting: &Setting, compiler: &str, installed: &Path) -> Result<()> {
    let mut link = vec![installed.join("lib/libterrace.a").display().to_string()];
    link.extend(SYSTEM.iter().map(|name| (*name).to_owned()));
    // Leaks are among what the address sanitizer finds. The thread sanitizer has a stage of its
    // own: it has to see the locks inside the library, which is compiled with it there.
    println!("programs in C, under the sanitizers of addresses and undefined behaviour");
    let flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    let flags = [&flags[..], &["-fno-omit-frame-pointer"]].concat();
    run_all(setting, compiler, installed, &flags, &link, None)?;
    if !is_there("valgrind") {
        setting.leave_out("programs in C under valgrind; install valgrind");
        return Ok(());
    }
    println!("programs in C, under valgrind");
    let valgrind = ["valgrind", "--quiet", "--error-exitcode=99", "--leak-check=full"];
    let rest = ["--errors-for-leak-kinds=definite", "--show-leak-kinds=definite"];
    run_all(setting, compiler, installed, &[], &link, Some(&[&valgrind[..], &rest].concat()))
}

/// Each program but the one that forks, with a static library that is compiled with the thread
/// sanitizer, and with `runtime`, that of the compiler of the library. `options` is what the
/// sanitizer reads of its environment.
pub(super) fn run_thread_sanitized(
    setting: &Setting,
    compiler: &str,
    installed: &Path,
    (runtime, options): (&Path, &str),
) -> Result<()> {
    let mut link = vec![installed.join("lib/libterrace.a").display().to_string()];
    link.extend(["-Wl,--whole-archive".into(), runtime.display().to_string()]);
    link.extend(["-Wl,--no-whole-archive", "-rdynamic"].map(str::to_owned));
    link.extend(SYSTEM.iter().map(|name| (*name).to_owned()));
    let options = format!("TSAN_OPTIONS={options}");
    for source in sources(&setting.root)? {
        if source.file_stem().is_some_and(|name| name != "misuse") {
            // To compile and to link at once would link the runtime of the C compiler too.
            let flags = ["-fsanitize=thread", "-c"];
            let object = compile(compiler, &source, installed, &flags, &[])?;
            let program = object.with_extension("sanitized");
            let mut command = Command::new(compiler);
            command.args(["-pthread", "-o"]).arg(&program).arg(&object);
            passes(command.args(&link))?;
            run(&program, Some(&["env", &options]))?;
        }
    }
    Ok(())
}

/// Compiles and runs each program, in a folder of its own, under a tool if there is one.
fn run_all(
    setting: &Setting,
    compiler: &str,
    installed: &Path,
    flags: &[&str],
    link: &[String],
    tool: Option<&[&str]>,
) -> Result<()> {
    for source in sources(&setting.root)? {
        let program = compile(compiler, &source, installed, flags, link)?;
        run(&program, tool)?;
    }
    Ok(())
}

/// Compiles one program beside the installation.
pub(super) fn compile(
    compiler: &str,
    source: &Path,
    installed: &Path,
    flags: &[&str],
    link: &[String],
) -> Result<PathBuf> {
    let folder = installed.join("programs");
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let program = folder.join(source.file_stem().context("a program without a name")?);
    let mut command = Command::new(compiler);
    command.args(STRICT).args(flags).arg("-I").arg(installed.join("include"));
    command.arg("-o").arg(&program).arg(source).args(link);
    passes(command)?;
    Ok(program)
}

/// Runs a program, which gets an empty folder as its argument and has to succeed in a minute or so.
pub(super) fn run(program: &Path, tool: Option<&[&str]>) -> Result<()> {
    let folder = program.with_extension("data");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let mut command = match tool {
        Some([tool, arguments @ ..]) => {
            let mut command = Command::new(tool);
            command.args(arguments).arg(program);
            command
        }
        _ => Command::new(program),
    };
    let output = command.arg(&folder).output().with_context(|| format!("starting {command:?}"))?;
    if !output.status.success() {
        bail!(
            "{}: {}\n{}{}",
            program.display(),
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))
}
