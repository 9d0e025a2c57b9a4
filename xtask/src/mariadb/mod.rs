//! `cargo xtask mariadb`: the engine inside MariaDB. Installs what it needs, builds the plugin,
//! starts a private server on a socket, and leaves a client's prompt; or tests, or measures.

mod bench;
mod build;
mod install;
mod kills;
mod random;
mod scripts;
mod server;
mod sessions;
mod suites;

use std::path::Path;

use anyhow::{Result, bail};

use crate::check::Setting;
use server::{Server, Start};

/// The folder of what is built, under the root of the repository.
const FOLDER: &str = "target/mariadb";

/// How many statements the random tester sends in the check, and at length.
const STATEMENTS: usize = 1_000;
const STATEMENTS_LONG: usize = 100_000;

/// How often the check kills the server, and how often at length.
const KILLS: usize = 3;
const KILLS_LONG: usize = 200;

const USAGE: &str = "\
usage: cargo xtask mariadb              build, start a server, and open a client
       cargo xtask mariadb --test       scripts, sessions, random SQL and kills
       cargo xtask mariadb --random N [SEED]
                                        N random statements against InnoDB
       cargo xtask mariadb --kills N    N kills of the server
       cargo xtask mariadb --suites     mariadb-test's storage_engine, beside InnoDB
       cargo xtask mariadb --bench [SECONDS]
                                        sysbench, beside InnoDB and MyRocks";

/// Runs the command.
pub(crate) fn run(root: &Path, rest: &[&str]) -> Result<bool> {
    if rest.first() == Some(&"--help") {
        println!("{USAGE}");
        return Ok(true);
    }
    let found = match install::find_or_install(root)? {
        Ok(found) => found,
        Err(reason) => bail!("{reason}"),
    };
    let plugin = build::plugin(root, &found)?;
    match rest {
        [] => prompt(root, &plugin).map(|()| true),
        ["--test"] => test(root, &plugin, false).map(|()| true),
        ["--random", count] => random::run(root, &plugin, count.parse()?, 1).map(|()| true),
        ["--random", count, seed] => {
            random::run(root, &plugin, count.parse()?, seed.parse()?).map(|()| true)
        }
        ["--kills", count] => kills::run(root, &plugin, count.parse()?).map(|()| true),
        ["--suites"] => suites::run(root, &plugin),
        ["--bench"] => bench::run(root, &plugin, 30).map(|()| true),
        ["--bench", seconds] => bench::run(root, &plugin, seconds.parse()?).map(|()| true),
        _ => bail!("{USAGE}"),
    }
}

/// The stage of the check.
///
/// # Errors
///
/// When a test fails. Where MariaDB cannot be had, it says so and passes.
pub(crate) fn check(setting: &mut Setting) -> Result<()> {
    let found = match install::find_or_install(&setting.root)? {
        Ok(found) => found,
        Err(reason) => {
            println!("SKIPPED: the engine inside MariaDB: {reason}");
            return Ok(());
        }
    };
    let plugin = build::plugin(&setting.root, &found)?;
    test(&setting.root, &plugin, setting.long)
}

fn test(root: &Path, plugin: &Path, long: bool) -> Result<()> {
    let server = Server::start(root, plugin, &Start::fresh("test"))?;
    scripts::run(root, &server)?;
    sessions::run(root, &server)?;
    server.stop()?;
    random::run(root, plugin, if long { STATEMENTS_LONG } else { STATEMENTS }, 1)?;
    kills::run(root, plugin, if long { KILLS_LONG } else { KILLS })
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
