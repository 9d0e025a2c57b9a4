//! The server's packages and the headers of its source, of one patch release: the interface of
//! engines has its number.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::FOLDER;
use crate::check::passes;

/// The release of the server and of its packages.
pub(super) const RELEASE: &str = "10.11.18";
const PACKAGE: &str = "1:10.11.18-0+deb12u1";

/// What is installed.
const PACKAGES: &[&str] = &[
    "mariadb-server",
    "mariadb-test",
    "mariadb-backup",
    "libmariadbd-dev",
    "libmariadb-dev",
    "libpcre2-dev",
    "mariadb-plugin-rocksdb",
    "mariadb-plugin-spider",
    "sysbench",
    "g++",
    "dpkg-dev",
];

/// The parts of the source that have headers.
const HEADERS: &[&str] = &["sql", "include", "wsrep-lib"];

/// Where what is needed lies.
pub(super) struct Found {
    /// The server's source, with its headers.
    pub(super) source: PathBuf,
}

impl Found {
    /// Where the source lies that was found or installed.
    pub(super) fn at(root: &Path) -> Found {
        Found { source: root.join(FOLDER).join("source").join(format!("mariadb-{RELEASE}")) }
    }
}

/// Finds the packages and the headers. The inner error says how to install them.
pub(super) fn find(root: &Path) -> Result<Found, String> {
    let found = Found::at(root);
    if server_is_there() && has_headers(&found) {
        return Ok(found);
    }
    Err(format!(
        "MariaDB {RELEASE} is not here: `cargo xtask setup` installs it, as root of a Debian 12 \
         (the packages {} in version {PACKAGE}; the source package's folders {} under {})",
        PACKAGES.join(" "),
        HEADERS.join(", "),
        found.source.display()
    ))
}

/// Installs the packages and the headers that are missing.
pub(crate) fn install(root: &Path) -> Result<()> {
    let found = Found::at(root);
    if !server_is_there() {
        if !can_install() {
            bail!("MariaDB {RELEASE}: its packages need root on a machine with apt-get");
        }
        packages()?;
    }
    if !has_headers(&found) {
        headers(root, &found.source)?;
    }
    Ok(())
}

fn has_headers(found: &Found) -> bool {
    found.source.join("sql/handler.h").is_file()
}

/// Whether the server of the release runs.
fn server_is_there() -> bool {
    let version = Command::new("mariadbd").arg("--version").output();
    let of_release = version
        .is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains(&format!("{RELEASE}-")));
    of_release && Path::new("/usr/include/mariadb/server/my_config.h").is_file()
}

/// Whether this is root on a machine with apt.
fn can_install() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|said| said.stdout == b"0\n") && Path::new("/usr/bin/apt-get").is_file()
}

fn apt(arguments: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").arg("-q").args(arguments);
    command
}

fn packages() -> Result<()> {
    println!("installing {}", PACKAGES.join(" "));
    let preferences =
        format!("Package: mariadb* libmariadb*\nPin: version {PACKAGE}\nPin-Priority: 1001\n");
    fs::write("/etc/apt/preferences.d/terrace-mariadb", preferences)
        .context("pinning the release")?;
    // Packages start a server of their own unless a policy forbids it.
    let policy = Path::new("/usr/sbin/policy-rc.d");
    let has_policy = policy.exists();
    if !has_policy {
        fs::write(policy, "#!/bin/sh\nexit 101\n").context("forbidding services")?;
        passes(Command::new("chmod").arg("+x").arg(policy))?;
    }
    let outcome = passes(apt(&["update"])).and_then(|()| {
        passes(apt(&["install", "--yes", "--no-install-recommends"]).args(PACKAGES))
    });
    if !has_policy {
        fs::remove_file(policy).context("allowing services again")?;
    }
    outcome
}

/// Fetches the source package and takes its headers.
fn headers(root: &Path, source: &Path) -> Result<()> {
    let folder = root.join(FOLDER).join("source");
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    add_sources()?;
    passes(apt(&["update"]))?;
    let package = format!("mariadb={PACKAGE}");
    passes(apt(&["source", "--download-only", &package]).current_dir(&folder))?;
    let archive = folder.join(format!("mariadb_{RELEASE}.orig.tar.gz"));
    let name = source.file_name().context("a folder has a name")?.to_string_lossy().into_owned();
    let mut tar = Command::new("tar");
    tar.arg("xzf").arg(&archive).args(HEADERS.iter().map(|part| format!("{name}/{part}")));
    passes(tar.current_dir(&folder))?;
    fs::remove_file(&archive).with_context(|| format!("removing {}", archive.display()))
}

/// Lets apt find source packages where it finds the others.
fn add_sources() -> Result<()> {
    let folder = Path::new("/etc/apt/sources.list.d");
    let mut of_source = String::new();
    for entry in fs::read_dir(folder).context("reading the sources of apt")? {
        let path = entry.context("reading the sources of apt")?.path();
        if path.extension().is_some_and(|extension| extension == "sources")
            && !path.ends_with("terrace-source.sources")
        {
            let text =
                fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            of_source.push_str(&text.replace("Types: deb\n", "Types: deb-src\n"));
            of_source.push_str("\n\n");
        }
    }
    if of_source.is_empty() {
        bail!("apt has no sources in {}; add those of source packages", folder.display());
    }
    fs::write(folder.join("terrace-source.sources"), of_source).context("adding sources to apt")
}
