//! The project's own checks: `cargo xtask check` and its parts.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "reporting is this program's job")]

mod asserts;
mod c;
mod check;
mod checkers;
mod dax;
mod elsewhere;
mod first_put;
mod fuzz;
mod house;
mod mariadb;
mod measure_build;
mod media;
mod mutants;
mod object;
mod package;
mod peers;
mod python;
mod reference;
mod setup;
mod tidy;
mod tour;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;

use check::Scope;

const USAGE: &str = "\
usage: cargo xtask check            what passes on a fresh machine, in minutes; it lists at the
                                    end what failed and what this machine lacks
       cargo xtask check --quick    format, tidy, clippy and the unit tests
       cargo xtask check --full     what continuous integration runs; nothing may be lacking
       cargo xtask check --long     every check, at length
       cargo xtask check --only STAGE
                                    one stage, such as tests, by the name that a check prints
       cargo xtask setup            install what `check --full` needs: MariaDB's packages, Rust's
                                    components and targets (root, Debian 12)
       cargo xtask tidy             check the house rules alone
       cargo xtask asserts          count assertions by part of the engine
       cargo xtask house [TREE]     circles between files, the largest types, assertions; of
                                    another checkout, where its root is given
       cargo xtask measure-build    print the seconds from a changed line to the first test
       cargo xtask first-put [PROGRAM]
                                    print the time and the disk of the first put; of another
                                    build of the command, where its path is given
       cargo xtask dax              kill a database on a virtual NVDIMM under QEMU, thrice
       cargo xtask mutants [--only N | --from N]
                                    make each slip of a list in a copy of the engine, and say
                                    which tests find it
       cargo xtask media            shut down, fill and fail real file systems (root only)
       cargo xtask object [--long]  try the object store's client on S3 servers of this machine
       cargo xtask fuzz [--minutes N] [TARGET]
                                    fuzz every decoder, or one, for a minute or N each
       cargo xtask corpora          make what fuzzing starts from, out of real databases
       cargo xtask header           make the header of the C interface out of its source
       cargo xtask reference        make docs/reference.md and api.txt out of the source
       cargo xtask python [--test]  build the wheel, install it below target, and test it
       cargo xtask package c DIR    build the C interface for release, and install it in DIR
       cargo xtask package python DIR
                                    build the wheel for release, and leave it in DIR
       cargo xtask package crate DIR
                                    make the crate, and leave it in DIR
       cargo xtask mariadb [HOW]    the engine inside MariaDB: a client; --help says the rest
       cargo xtask peers            install and build the bench's rivals (minutes)

--long runs the tests at length (TERRACE_LONG=1), the checkers of what threads share (loom,
ThreadSanitizer), `dax`, `media`, `object`, ten minutes of fuzzing for each decoder, and a tour of
twenty rounds.";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["check"] => check::run(&root(), Scope::Check),
        ["check", "--full"] => check::run(&root(), Scope::Full),
        ["check", "--quick"] => check::run(&root(), Scope::Quick),
        ["check", "--long"] => check::run(&root(), Scope::Long),
        ["check", "--only", stage] => check::run_only(&root(), stage),
        ["setup"] => setup::run(&root()),
        ["tidy"] => tidy_alone(),
        ["dax"] => dax::run(&root()),
        ["fuzz", rest @ ..] => fuzz::run(&root(), rest),
        ["asserts"] => asserts::run(&root()),
        ["house"] => house::run(&root()),
        ["house", tree] => house::run(Path::new(tree)),
        ["first-put"] => first_put::run(&root(), None),
        ["first-put", program] => first_put::run(&root(), Some(program)),
        ["measure-build"] => measure_build::run(&root()),
        ["media"] => media::run(&root()),
        ["mutants", rest @ ..] => mutants::run(&root(), rest),
        ["object"] => object::run(&root(), false),
        ["object", "--long"] => object::run(&root(), true),
        ["corpora"] => fuzz::corpora(&root()),
        ["header"] => c::header(&root()),
        ["reference"] => reference::run(&root()),
        ["python", rest @ ..] => python::run(&root(), rest),
        ["package", what, folder] => package::run(&root(), what, Path::new(folder)),
        ["mariadb", rest @ ..] => mariadb::run(&root(), rest),
        ["peers"] => peers::run(&root()),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(true)
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn tidy_alone() -> Result<bool> {
    let findings = tidy::run(&root())?;
    if findings == 0 {
        println!("tidy");
    }
    Ok(findings == 0)
}

/// The root of the repository: the folder above this crate.
fn root() -> PathBuf {
    // Cargo sets the variable at run time too, and then it is right even in a moved checkout.
    let this_crate = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    this_crate.parent().map_or_else(PathBuf::new, PathBuf::from)
}
