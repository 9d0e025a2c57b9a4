//! `cargo xtask package`: what others install.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::check::{Setting, cargo, passes};
use crate::{c, python};

/// The version of the packages.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Makes one package in a folder.
pub(crate) fn run(root: &Path, what: &str, folder: &Path) -> Result<bool> {
    match what {
        "c" => c::package(root, folder),
        "python" => python::package(root, folder),
        "crate" => {
            for made in library(root, folder)? {
                println!("{}", made.display());
            }
            Ok(true)
        }
        other => bail!("there is no package {other:?}; there are c, python and crate"),
    }
}

/// The library, and the crates of this repository that it is made of.
const CRATES: [&str; 3] = ["terrace-os", "terrace-testkit", "terrace"];

/// The program that the check builds against the crate.
const PROGRAM: &str = r#"
fn main() -> terrace::Result<()> {
    let folder = std::env::args().nth(1).expect("a folder");
    let db = terrace::Options::new().pm_size(4 << 20).open(folder)?;
    db.table("t")?.put("a", "1")?;
    assert_eq!(db.table("t")?.get("a")?.as_deref(), Some(&b"1"[..]));
    db.close()
}
"#;

/// The stage of the check, at length: a program in an empty directory builds against the crate, and
/// runs. The stages of C and Python install their packages.
pub(crate) fn check(setting: &mut Setting) -> Result<()> {
    let empty = setting.root.join("target/package-crate/empty");
    if empty.exists() {
        fs::remove_dir_all(&empty).with_context(|| format!("removing {}", empty.display()))?;
    }
    for made in library(&setting.root, &empty)? {
        let mut unpack = Command::new("tar");
        passes(unpack.arg("-xzf").arg(&made).arg("-C").arg(&empty))?;
    }
    let source = empty.join("src");
    fs::create_dir_all(&source).with_context(|| format!("making {}", source.display()))?;
    let place = |name| format!("{name} = {{ path = \"{name}-{VERSION}\" }}\n");
    let manifest = format!(
        "[package]\nname = \"program\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\n{}\n[patch.crates-io]\n{}",
        place("terrace"),
        CRATES[..2].iter().copied().map(place).collect::<String>()
    );
    for (path, text) in [(empty.join("Cargo.toml"), &*manifest), (source.join("main.rs"), PROGRAM)]
    {
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    let mut command = cargo(setting);
    command.current_dir(&empty).args(["run", "--quiet", "--target-dir"]);
    passes(command.arg(empty.join("target")).arg("--").arg(empty.join("db")))
}

/// Makes the crates of the library, as the registry would get them.
fn library(root: &Path, folder: &Path) -> Result<Vec<PathBuf>> {
    let mut command =
        std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let target = root.join("target/package-crate");
    command.current_dir(root).args(["package", "--no-verify"]);
    command.args(CRATES.iter().flat_map(|name| ["--package", name]));
    passes(command.args(["--allow-dirty", "--quiet", "--target-dir"]).arg(&target))?;
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let copy = |name: &&str| {
        let name = format!("{name}-{VERSION}.crate");
        let (from, to) = (target.join("package").join(&name), folder.join(&name));
        fs::copy(&from, &to)
            .with_context(|| format!("copying {} to {}", from.display(), to.display()))?;
        Ok(to)
    };
    CRATES.iter().map(copy).collect()
}
