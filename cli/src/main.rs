//! The `terrace` command: import, look, verify, and a tour on real data.

mod args;
mod commands;
mod failure;
mod file;
mod grid;
mod import;
mod interrupt;
mod output;
mod session;
mod text;
mod tour;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use args::{Arguments, Command};
use failure::{Failure, Outcome};
use session::Session;

fn main() -> ExitCode {
    let line: Vec<OsString> = std::env::args_os().collect();
    let Arguments { global, command } = match Arguments::read(&line) {
        Ok(arguments) => arguments,
        Err(error) => return ExitCode::from(args::explain(&error, &line)),
    };
    let json = global.json;
    let outcome = Session::new(global).and_then(|mut session| {
        let outcome = run(&mut session, command)?;
        session.output.flush().map(|()| outcome)
    });
    match outcome {
        Ok(Outcome::Good) => ExitCode::SUCCESS,
        Ok(Outcome::Negative) => ExitCode::from(1),
        Err(failure) => {
            output::say(&failure.report(json));
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(session: &mut Session, command: Command) -> Result<Outcome, Failure> {
    match command {
        Command::Tour(arguments) => tour::run(session, &arguments),
        Command::Import(arguments) => import::run(session, &arguments),
        Command::Get(arguments) => commands::records::get(session, &arguments),
        Command::Put(arguments) => commands::records::put(session, &arguments),
        Command::Delete(arguments) => commands::records::delete(session, &arguments),
        Command::Scan(arguments) => commands::scan::run(session, &arguments),
        Command::Tables => commands::tables::run(session),
        Command::Table(arguments) => commands::table::run(session, &arguments),
        Command::Store(command) => commands::store::run(session, &command),
        Command::Follow(node) => commands::shared::follow(session, &node),
        Command::Forget(follower) => commands::shared::forget(session, &follower),
        Command::Standby(node) => commands::shared::stand_by(session, &node),
        Command::Promote(to) => commands::shared::promote(session, &to),
        Command::Status => commands::shared::status(session),
        Command::Prepared(command) => commands::prepared::run(session, &command),
        Command::Stats => commands::stats::run(session),
        Command::Metrics => commands::stats::metrics(session),
        Command::History(arguments) => commands::history::run(session, &arguments),
        Command::Top(arguments) => commands::top::run(session, &arguments),
        Command::Compact(arguments) => commands::compact::run(session, &arguments),
        Command::Verify(arguments) => commands::verify::run(session, &arguments),
        Command::Backup(arguments) => commands::backups::take(session, &arguments),
        Command::Backups(arguments) => commands::backups::list(session, &arguments),
        Command::Restore(arguments) => commands::backups::restore(session, &arguments),
        Command::Dump(arguments) => commands::dump::dump(session, &arguments),
        Command::Load(arguments) => commands::dump::load(session, &arguments),
        Command::Salvage(arguments) => commands::salvage::run(session, &arguments),
        Command::TourChild(arguments) => tour::child::run(&arguments),
        Command::TourCheck(arguments) => tour::examine::run(session, &arguments),
    }
}
