//! `tour`: the demonstration. It imports real data, kills the process that commits in the middle
//! of its work again and again, and each time looks, in a new process, for every commit that had
//! been acknowledged. With `--lost-machine` it deletes the directory of the process too: the new
//! one takes the shared database over from an object store.

mod batch;
mod chance;
pub(crate) mod child;
pub(crate) mod examine;
mod judge;
mod kill;
mod ledger;
mod machine;
mod show;
mod source;

use std::fs::{self, OpenOptions};
use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::args::TourArguments;
use crate::failure::{Failure, Outcome};
use crate::import::{Loaded, Loader};
use crate::session::Session;
use crate::watch;
use chance::Chance;
use examine::Examined;
use kill::{Plan, Told};
use machine::Machine;
use show::{Round, Summary};
use source::Source;

/// Acknowledged commits over all rounds, at least.
const COMMITS: u64 = 10_000;

/// Acknowledged commits in a round, at least.
const COMMITS_A_ROUND: u64 = 2_200;

/// The same of commits that wait for the shared store: one of each thread in a tenth of a second.
const REMOTE_A_ROUND: u64 = 240;

/// The size of the region: a sixteenth of the default, so that records step down to disk while
/// one watches, and the kills hit that work too.
const REGION: u64 = 16 << 20;

/// Rows in a batch of the import.
const BATCH: usize = 1_000;

/// Gives the tour.
pub(crate) fn run(session: &mut Session, arguments: &TourArguments) -> Result<Outcome, Failure> {
    let seed = arguments.seed.unwrap_or_else(any_seed);
    let mut place = Place::prepare(arguments)?;
    let dir = place.dir.clone();
    let mut machine = Machine::new(&dir, arguments.lost_machine.then_some(0));
    if let (true, Ok(store)) = (arguments.lost_machine, session.store()) {
        machine.share(&store, seed)?;
    }
    show::opening(session, machine, &dir, seed)?;

    let watch = arguments.watch.then(watch::address).transpose()?;
    if let Some(address) = watch {
        watch::say(session, address);
    }
    let source = source::find(arguments.input.as_deref())?;
    let (loaded, took) = import(session, (machine, watch), &source)?;
    show::imported(session, &source, &loaded, took)?;

    let mut chance = Chance::new(seed);
    let mut rounds = Vec::new();
    show::before_rounds(session, machine, arguments.rounds)?;
    let mut examined = None;
    for round in 0..arguments.rounds {
        let told = kill::run(&Plan {
            dir: &dir,
            round,
            source: source.table,
            seed: chance.number(),
            machine: machine.number(),
            watch,
            commits: commits_of_a_round(machine, arguments.rounds, &mut chance),
            delay: Duration::from_micros(chance.below(1_000)),
        })?;
        append(&ledger_of(&dir), &told)?;
        machine.lose()?;
        machine = machine.next();
        let before: Option<Examined> = examined;
        let now = examine(&dir, (machine, round + 1), source.table)?;
        let round = Round::new(&told, before.as_ref(), &now);
        show::round(session, rounds.len() + 1, &round)?;
        rounds.push(round);
        examined = Some(now);
        if !now.verdict.is_good() {
            break;
        }
    }
    let verdict = examined.map(|examined| examined.verdict).unwrap_or_default();

    let database = machine.open()?;
    let stats = database.stats();
    show::tiers(session, &stats, &rounds)?;
    show::records(session, &database, source.table)?;
    database.close()?;
    let summary = Summary { stats, source, loaded, took, seed, rounds, verdict };
    show::closing(session, machine, &summary)?;
    if verdict.is_good() {
        return Ok(Outcome::Good);
    }
    place.remove = false;
    session.output.remark(&format!("the database is left in {}", place.dir.display()));
    Ok(Outcome::Negative)
}

/// Where the tour works.
struct Place {
    dir: PathBuf,
    remove: bool,
}

impl Place {
    /// A new temporary directory, or the one asked for if it is empty.
    fn prepare(arguments: &TourArguments) -> Result<Place, Failure> {
        let dir = match &arguments.dir {
            Some(dir) => dir.clone(),
            None => {
                let name = format!("terrace-tour-{}-{:08x}", std::process::id(), any_seed() as u32);
                std::env::temp_dir().join(name)
            }
        };
        let doing = || format!("make {}", dir.display());
        fs::create_dir_all(&dir).map_err(|error| Failure::io(doing(), &error))?;
        let mut entries = fs::read_dir(&dir).map_err(|error| Failure::io(doing(), &error))?;
        if entries.next().is_some() {
            let dir = dir.display();
            return Err(Failure::Invalid(format!("{dir} is not empty; name a new directory")));
        }
        Ok(Place { dir, remove: arguments.dir.is_none() && !arguments.keep })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.remove {
            // Nothing is left to be done about what cannot be removed.
            drop(fs::remove_dir_all(&self.dir));
        }
    }
}

/// The file of acknowledged commits of a tour in `dir`.
fn ledger_of(dir: &Path) -> PathBuf {
    dir.join("acknowledged")
}

/// This program, to be started again.
fn this_program() -> Result<Command, Failure> {
    let path = std::env::current_exe().map_err(|error| Failure::io("find this program", &error))?;
    Ok(Command::new(path))
}

fn any_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Chance::new(since.as_nanos() as u64 ^ u64::from(std::process::id()) << 40).number()
}

/// How many commits to wait for: a number that differs from round to round, and is large enough
/// for the rounds together.
fn commits_of_a_round(machine: Machine<'_>, rounds: u32, chance: &mut Chance) -> u64 {
    let least = match machine.number() {
        None => COMMITS.div_ceil(u64::from(rounds)).max(COMMITS_A_ROUND),
        Some(_) => REMOTE_A_ROUND,
    };
    least + chance.below(least * 6 / 10)
}

fn import(
    session: &Session,
    (machine, watch): (Machine<'_>, Option<SocketAddr>),
    source: &Source,
) -> Result<(Loaded, Duration), Failure> {
    let total = source.records.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
    let bar = session.output.byte_bar(Some(total as u64));
    let begin = Instant::now();
    let database = machine.open()?;
    let _page = watch::serve_at(&database, watch)?;
    let table = database.table(source.table)?;
    let mut loader = Loader::new(&database, &table, BATCH);
    for (key, value) in &source.records {
        loader.add(key, value)?;
        bar.inc((key.len() + value.len()) as u64);
    }
    loader.commit()?;
    let (loaded, took) = (loader.loaded, begin.elapsed());
    database.close()?;
    bar.finish_and_clear();
    Ok((loaded, took))
}

/// Adds what a child told to the file that the next process reads.
fn append(path: &Path, told: &Told) -> Result<(), Failure> {
    let failed = |error| Failure::io(format!("write {}", path.display()), &error);
    let file = OpenOptions::new().append(true).create(true).open(path).map_err(failed)?;
    let mut file = BufWriter::new(file);
    for line in &told.lines {
        line.write(&mut file).map_err(failed)?;
    }
    file.flush().map_err(failed)
}

/// Has a new process open the database and look for everything.
fn examine(
    dir: &Path,
    (machine, rounds): (Machine<'_>, u32),
    source: &str,
) -> Result<Examined, Failure> {
    let mut command = this_program()?;
    command.arg("tour-check").arg("--dir").arg(dir);
    if let Some(number) = machine.number() {
        command.args(["--machine", &number.to_string()]);
    }
    command.args(["--rounds", &rounds.to_string(), "--source", source]);
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().map_err(|error| Failure::io("start the checker", &error))?;
    serde_json::from_slice(&output.stdout).map_err(|error| {
        Failure::Outside(format!("the checker did not finish ({}): {error}", output.status))
    })
}
