//! Builds `ha_terrace.so`: the handler in C++ and the C interface as a static library.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::SystemTime;

use anyhow::{Context, Result, anyhow};

use super::FOLDER;
use super::install::Found;
use crate::check::passes;

/// The handler's source.
const HANDLER: &str = "mariadb/handler";

/// What the plugin exports: its declaration, and what the server fills in.
const EXPORTS: &str = "{ global: _maria_plugin_interface_version_; \
    _maria_sizeof_struct_st_plugin_; _maria_plugin_declarations_; *_service; local: *; };\n";

const FLAGS: &[&str] = &[
    "-std=gnu++17",
    "-O2",
    "-g1",
    "-fPIC",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unused-parameter",
    "-Wno-invalid-offsetof",
    "-Wno-register",
    "-fno-strict-aliasing",
    "-DMYSQL_DYNAMIC_PLUGIN",
    "-DHAVE_CONFIG_H",
    "-DDBUG_OFF",
    "-DNDEBUG",
];

/// With these the handler finds its own accesses to memory that it does not have. The library in
/// Rust allocates by the same allocator, so memory that it lends is guarded too.
const SANITIZER: &[&str] = &["-fsanitize=address", "-fno-omit-frame-pointer"];

/// Sources with this have points at which the plugin for tests holds a connection.
const YIELD: &str = "YIELD(";

/// Stands between the handler and calls of the library that a test has fail, or not return.
const FAILING: &str = "mariadb/tests/failing";

/// These calls of the handler lead to `FAILING`, which calls the library.
const FAILING_CALLS: &[&str] = &[
    "-Wl,--wrap=terrace_database_enqueue",
    "-Wl,--wrap=terrace_database_enqueue_prepared",
    "-Wl,--wrap=terrace_database_commit_prepared",
    "-Wl,--wrap=terrace_database_roll_back_prepared",
    "-Wl,--wrap=terrace_error_status",
    "-Wl,--wrap=terrace_database_create_table",
    "-Wl,--wrap=terrace_database_drop_table",
    "-Wl,--wrap=terrace_database_rename_table",
    "-Wl,--wrap=terrace_database_truncate_table",
    "-Wl,--wrap=terrace_database_write",
    "-Wl,--wrap=terrace_table_put",
    "-Wl,--wrap=terrace_transaction_put",
    "-Wl,--wrap=terrace_database_set_table_options",
    "-Wl,--wrap=my_sync_dir_by_file",
];

/// Builds the plugin. Returns its folder.
pub(super) fn plugin(root: &Path, found: &Found) -> Result<PathBuf> {
    build(root, found, ("objects", "plugin"), &[])
}

/// Builds it with the sanitizer of addresses, which the server has to load first.
pub(super) fn sanitized_plugin(root: &Path, found: &Found) -> Result<PathBuf> {
    build(root, found, ("objects-sanitized", "plugin-sanitized"), SANITIZER)
}

/// Links the plugin once more, with calls that fail or kill the server while a file is there, and
/// with the points of the handler that a test can hold. The plugin has to be built.
pub(super) fn failing_plugin(root: &Path) -> Result<PathBuf> {
    let found = Found::at(root);
    let folder = root.join(FOLDER);
    let (objects, generated) = (folder.join("objects"), folder.join("generated"));
    let (failing, plugin) = (folder.join("objects-failing"), folder.join("plugin-failing"));
    for made in [&failing, &plugin] {
        fs::create_dir_all(made).with_context(|| format!("making {}", made.display()))?;
    }
    let mut more: Vec<String> = FAILING_CALLS.iter().map(|&call| call.to_owned()).collect();
    for source in files(&root.join(FAILING), "cc")? {
        let name = source.file_stem().context("a file has a name")?;
        let object = failing.join(name).with_extension("o");
        let mut command = compiler(root, &found, &generated);
        command.arg("-DTERRACE_YIELDS").arg("-I").arg(root.join(HANDLER));
        passes(command.arg(&source).arg("-o").arg(&object))?;
        more.push(object.to_str().context("a path in UTF-8")?.to_owned());
    }
    let mut made = Vec::new();
    let mut yielding = Vec::new();
    for source in sources(root)? {
        let text =
            fs::read_to_string(&source).with_context(|| format!("reading {}", source.display()))?;
        let folder = if text.contains(YIELD) { &failing } else { &objects };
        made.push(object_of(&source, folder)?);
        if text.contains(YIELD) {
            yielding.push(source);
        }
    }
    compile(root, &found, &yielding, (&failing, &generated), &["-DTERRACE_YIELDS"])?;
    let more: Vec<&str> = more.iter().map(String::as_str).collect();
    link(root, &made, (&generated.join("exports.map"), &plugin), &more)?;
    Ok(plugin)
}

fn build(
    root: &Path,
    found: &Found,
    (objects, plugin): (&str, &str),
    more: &[&str],
) -> Result<PathBuf> {
    let folder = root.join(FOLDER);
    let (objects, generated, plugin) =
        (folder.join(objects), folder.join("generated"), folder.join(plugin));
    for made in [&objects, &generated, &plugin] {
        fs::create_dir_all(made).with_context(|| format!("making {}", made.display()))?;
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut library = Command::new(cargo);
    library.current_dir(root).args(["build", "--release", "--package", "terrace-c"]);
    passes(library.args(["--features", "monitor,object"]))?;
    let probes = found.source.join("include/probes_mysql_nodtrace.h.in");
    fs::copy(&probes, generated.join("probes_mysql_nodtrace.h"))
        .with_context(|| format!("copying {}", probes.display()))?;
    let exports = generated.join("exports.map");
    fs::write(&exports, EXPORTS).with_context(|| format!("writing {}", exports.display()))?;
    let sources = sources(root)?;
    compile(root, found, &sources, (&objects, &generated), more)?;
    let made =
        sources.iter().map(|source| object_of(source, &objects)).collect::<Result<Vec<_>>>()?;
    link(root, &made, (&exports, &plugin), more)?;
    Ok(plugin)
}

/// Compiles what changed, as many files at a time as there are cores.
fn compile(
    root: &Path,
    found: &Found,
    sources: &[PathBuf],
    (objects, generated): (&Path, &Path),
    more: &[&str],
) -> Result<()> {
    let handler = root.join(HANDLER);
    let newest_header = files(&handler, "h")?
        .iter()
        .chain([&root.join("bindings/c/include/terrace.h")])
        .filter_map(|path| changed(path))
        .max();
    let mut stale: Vec<(PathBuf, PathBuf)> = Vec::new();
    for source in sources {
        let object = object_of(source, objects)?;
        let newest = newest_header.max(changed(source));
        if changed(&object).is_none_or(|made| Some(made) < newest) {
            stale.push((source.clone(), object));
        }
    }
    let workers = crate::check::at_a_time();
    for some in stale.chunks(workers.max(1)) {
        thread::scope(|scope| {
            let running: Vec<_> = some
                .iter()
                .map(|(source, object)| {
                    scope.spawn(move || {
                        let mut command = compiler(root, found, generated);
                        passes(command.args(more).arg(source).arg("-o").arg(object))
                    })
                })
                .collect();
            running
                .into_iter()
                .try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
        })?;
    }
    Ok(())
}

fn compiler(root: &Path, found: &Found, generated: &Path) -> Command {
    let mut command = Command::new("g++");
    command.args(FLAGS).arg("-I").arg(generated).arg("-I").arg(root.join("bindings/c/include"));
    for part in ["sql", "include", "wsrep-lib/include", "wsrep-lib/wsrep-API/v26"] {
        command.arg("-isystem").arg(found.source.join(part));
    }
    command.args(["-isystem", "/usr/include/mariadb/server", "-c"]);
    command
}

/// Links beside the old file and renames, because a server may have that one loaded.
fn link(
    root: &Path,
    objects: &[PathBuf],
    (exports, plugin): (&Path, &Path),
    more: &[&str],
) -> Result<()> {
    let (new, old) = (plugin.join("ha_terrace.so.new"), plugin.join("ha_terrace.so"));
    let mut command = Command::new("g++");
    command.args(more).arg("-shared").arg("-o").arg(&new);
    command.args(objects);
    command.arg(format!("-Wl,--version-script={}", exports.display()));
    command.arg(root.join("target/release/libterrace_c.a"));
    passes(command.args(["-lmysqlservices", "-lpthread", "-ldl", "-lm"]))?;
    fs::rename(&new, &old).with_context(|| format!("replacing {}", old.display()))
}

/// The handler's source files.
fn sources(root: &Path) -> Result<Vec<PathBuf>> {
    files(&root.join(HANDLER), "cc")
}

/// The object that a source file is compiled to.
fn object_of(source: &Path, objects: &Path) -> Result<PathBuf> {
    Ok(objects.join(source.file_stem().context("a file has a name")?).with_extension("o"))
}

fn changed(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

/// The files of a folder with an extension, in order.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry.with_context(|| format!("reading {}", folder.display()))?.path();
        if path.extension().is_some_and(|of_file| of_file == extension) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
