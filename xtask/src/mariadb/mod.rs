//! `cargo xtask mariadb`: the engine inside MariaDB. Installs what it needs, builds the plugin,
//! starts a private server on a socket, and leaves a client's prompt; or tests, or measures.

mod astray;
mod bench;
mod between;
mod build;
mod builds;
mod chains;
mod cut_ddl;
mod definitions;
mod examples;
mod followed;
mod install;
mod kept;
mod kills;
mod lost;
mod nodes;
mod noted;
mod online;
mod orders;
mod orphans;
mod owed;
mod published;
mod random;
mod renamed;
mod replay;
mod scripts;
mod server;
mod sessions;
mod suites;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::check::{Setting, binaries};
pub(crate) use install::install;
use server::{Server, Start};

/// The folder of what is built, under the root of the repository.
const FOLDER: &str = "target/mariadb";

/// How many statements the random tester sends in the check, and at length.
const STATEMENTS: usize = 1_000;
const STATEMENTS_LONG: usize = 100_000;

/// How often the check kills the server, and how often at length.
const KILLS: usize = 3;
const KILLS_LONG: usize = 200;

/// How long the check adds indexes beside writers, and at length.
const ONLINE: Duration = Duration::from_secs(4);
const ONLINE_LONG: Duration = Duration::from_secs(60);

const USAGE: &str = "\
usage: cargo xtask mariadb              build, start a server, and open a client
       cargo xtask mariadb --test       scripts, sessions, random SQL and kills
       cargo xtask mariadb --scripts    scripts and sessions alone
       cargo xtask mariadb --random N [SEED]
                                        N random statements against InnoDB
       cargo xtask mariadb --online SECONDS
                                        indexes that are added while clients write
       cargo xtask mariadb --owed       commits that the binary log has, and that find no space
       cargo xtask mariadb --between    other connections between two steps of one
       cargo xtask mariadb --published  rows of definitions beside the server's files
       cargo xtask mariadb --orders     orders of two connections that are held at points
       cargo xtask mariadb --cut-ddl [--short | TEXT]
                                        kills at each step of statements that change tables, of
                                        those of the check, or of those with a text
       cargo xtask mariadb --chains [--short] [TEXT]
                                        chains of renames on a full disk, with kills or without,
                                        of those with a text
       cargo xtask mariadb --kills N    N kills of the server
       cargo xtask mariadb --cuts N     N losses of all that it has not synced (root, xfsprogs)
       cargo xtask mariadb --nodes      servers of a shared store
       cargo xtask mariadb --examples [NAME]
                                        the scripts of mariadb/examples, or one of them
       cargo xtask mariadb --sanitized  scripts and sessions, with the sanitizer of addresses
       cargo xtask mariadb --suites     mariadb-test's storage_engine, beside InnoDB
       cargo xtask mariadb --bench [SECONDS | --quick | --larger | --smoke]
                                        sysbench and TPC-C, beside InnoDB and MyRocks: 4 million
                                        rows, 200,000, or four times the memory";

/// Runs the command.
pub(crate) fn run(root: &Path, rest: &[&str]) -> Result<bool> {
    if rest.first() == Some(&"--help") {
        println!("{USAGE}");
        return Ok(true);
    }
    let found = install::find(root).map_err(anyhow::Error::msg)?;
    let plugin = build::plugin(root, &found)?;
    match rest {
        [] => prompt(root, &plugin).map(|()| true),
        ["--test"] => {
            on_one_server(root, &plugin, false)?;
            more(root, &plugin, &nodes::built(root)?, false).map(|()| true)
        }
        ["--scripts"] => {
            let server = Server::start(root, &plugin, &Start::fresh("scripts"))?;
            scripts::run(root, &server)?;
            sessions::run(root, &server)?;
            server.stop().map(|()| true)
        }
        ["--random", count] => {
            random::run(root, &plugin, count.parse()?, random::seed_of_the_day()?).map(|()| true)
        }
        ["--random", count, seed] => {
            random::run(root, &plugin, count.parse()?, seed.parse()?).map(|()| true)
        }
        ["--online", seconds] => {
            let server = Server::start(root, &plugin, &Start::fresh("online"))?;
            online::run(&server, Duration::from_secs(seconds.parse()?))?;
            server.stop().map(|()| true)
        }
        ["--owed"] => owed::run(root).map(|()| true),
        ["--between"] => {
            kept::run(root)?;
            between::run(root).map(|()| true)
        }
        ["--orders"] => orders::run(root).map(|()| true),
        ["--published"] => published::run(root).map(|()| true),
        ["--cut-ddl"] => {
            definitions::run(root, &plugin)?;
            published::run(root)?;
            cut_ddl::run(root, true, "").map(|()| true)
        }
        ["--cut-ddl", "--short"] => cut_ddl::run(root, false, "").map(|()| true),
        ["--cut-ddl", text] => cut_ddl::run(root, true, text).map(|()| true),
        ["--chains", "--short", text @ ..] if text.len() < 2 => {
            chains::run(root, false, text.first().copied().unwrap_or("")).map(|()| true)
        }
        ["--chains", text @ ..] if text.len() < 2 => {
            chains::run(root, true, text.first().copied().unwrap_or("")).map(|()| true)
        }
        ["--kills", count] => {
            kills::run(root, &plugin, count.parse()?, kills::End::Kill).map(|()| true)
        }
        ["--cuts", count] => {
            kills::run(root, &plugin, count.parse()?, kills::End::Cut).map(|()| true)
        }
        ["--nodes"] => nodes::run(root, &plugin, &nodes::built(root)?).map(|()| true),
        ["--examples"] => examples::run(root, &plugin, None).map(|()| true),
        ["--examples", name] => examples::run(root, &plugin, Some(*name)).map(|()| true),
        ["--sanitized"] => sanitized(root, &found).map(|()| true),
        ["--suites"] => suites::run(root, &plugin),
        ["--bench", size @ ..] if size.len() < 2 => {
            let size = bench::Size::named(size.first().copied())?;
            bench::run(root, &plugin, &size).map(|()| true)
        }
        _ => bail!("{USAGE}"),
    }
}

/// The stage of the check.
///
/// # Errors
///
/// When a test fails. Where MariaDB cannot be had, the stage is left out.
pub(crate) fn check(setting: &mut Setting) -> Result<()> {
    let found = match install::find(&setting.root) {
        Ok(found) => found,
        Err(reason) => {
            setting.leave_out(reason);
            return Ok(());
        }
    };
    let plugin = build::plugin(&setting.root, &found)?;
    on_one_server(&setting.root, &plugin, setting.is_long())?;
    if setting.is_full() {
        let terrace = binaries::find(setting.programs()?, "terrace")?.path.clone();
        more(&setting.root, &plugin, &terrace, setting.is_long())?;
    }
    if setting.is_long() { sanitized(&setting.root, &found) } else { Ok(()) }
}

/// Scripts and sessions on a handler that finds its own wrong accesses to memory.
fn sanitized(root: &Path, found: &install::Found) -> Result<()> {
    let plugin = build::sanitized_plugin(root, found)?;
    let asked = Command::new("g++").arg("-print-file-name=libasan.so").output();
    let runtime = String::from_utf8(asked.context("asking g++ for libasan")?.stdout)?;
    // The server frees nothing at its end, and some of its own memory is of other allocators. What
    // its headers say of freed memory is not taken back by its own code, which says nothing.
    let start =
        Start::fresh("sanitized").environment("LD_PRELOAD", runtime.trim().to_owned()).environment(
            "ASAN_OPTIONS",
            "detect_leaks=0:alloc_dealloc_mismatch=0:allow_user_poisoning=0".to_owned(),
        );
    let server = Server::start(root, &plugin, &start)?;
    scripts::run(root, &server)?;
    sessions::run(root, &server)?;
    online::run(&server, ONLINE)?;
    server.stop()
}

/// Each part in turn. What the servers of a part wrote goes before the next part: each server has
/// all of MariaDB's own tables.
fn more(root: &Path, plugin: &Path, terrace: &Path, long: bool) -> Result<()> {
    let statements = if long { STATEMENTS_LONG } else { STATEMENTS };
    let kills = if long { KILLS_LONG } else { KILLS };
    let seed = random::seed_of_the_day()?;
    let parts: &[&dyn Fn() -> Result<()>] = &[
        &|| owed::run(root),
        &|| between::run(root),
        &|| kept::run(root),
        &|| orders::run(root),
        &|| definitions::run(root, plugin),
        &|| published::run(root),
        &|| cut_ddl::run(root, long, ""),
        &|| chains::run(root, long, ""),
        &|| random::run(root, plugin, statements, seed),
        &|| kills::run(root, plugin, kills, kills::End::Kill),
        &|| nodes::run(root, plugin, terrace),
    ];
    let servers = root.join(FOLDER).join("servers");
    for part in parts {
        part()?;
        fs::remove_dir_all(&servers).context("removing the servers of a part")?;
    }
    if long {
        examples::run(root, plugin, None)?;
        if !suites::run(root, plugin)? {
            bail!("the suites of mariadb-test: Terrace differs from InnoDB without a reason");
        }
    }
    Ok(())
}

/// Scripts, sessions and online ALTER.
fn on_one_server(root: &Path, plugin: &Path, long: bool) -> Result<()> {
    let start = Start::fresh("test").with(&["--terrace-monitor-address=127.0.0.1:0"]);
    let server = Server::start(root, plugin, &start)?;
    serves_its_page(&server)?;
    scripts::run(root, &server)?;
    sessions::run(root, &server)?;
    online::run(&server, if long { ONLINE_LONG } else { ONLINE })?;
    server.stop()
}

/// The page of the database is served where the error log says.
fn serves_its_page(server: &Server) -> Result<()> {
    let log = fs::read_to_string(server.log()).context("reading the error log")?;
    let port = log.lines().find_map(|line| line.split_once("127.0.0.1:0, port "));
    let (_, port) = port.context("the error log names no page")?;
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).context("the page")?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let request =
        format!("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if !answer.contains("terrace_commit_groups_total ") {
        bail!("the page answers {answer}");
    }
    println!("the page of the database is served");
    Ok(())
}

/// Starts a server, and a client on the terminal. The server ends with the client.
fn prompt(root: &Path, plugin: &Path) -> Result<()> {
    let server = Server::start(root, plugin, &Start::kept("prompt"))?;
    println!(
        "the server listens on {}\nplugin: {}\ntry: CREATE TABLE t (id INT PRIMARY KEY) \
         ENGINE=Terrace;",
        server.socket().display(),
        plugin.display()
    );
    // The client's own exit code says nothing of the server.
    let status = server.client("test").status()?;
    println!("the client ended with {status}");
    server.stop()
}
