//! `top`: what the page of a running database shows, on a terminal.

mod blocks;
mod screen;

use std::env;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use terrace::Database;
use terrace_monitor::model::Picture;
use terrace_monitor::units::clock;
use terrace_monitor::{INTERVAL, Remote, Sampler};

use crate::args::TopArguments;
use crate::failure::{Failure, Outcome};
use crate::interrupt;
use crate::session::Session;
use crate::text::escape;

/// Beside a writer an opening is followed by the next one after so many times what it took.
const REST: u32 = 10;

/// What is looked at.
enum Source {
    Page(Remote),
    Opened(Box<Opened>),
}

/// A database that this process has open. Once there is a writer it is opened again and again: an
/// old handle would keep disk space that the writer frees.
struct Opened {
    sampler: Sampler,
    database: Database,
    refreshed: Instant,
    took: Duration,
}

/// A look: what the database is, or why there is no look, and what was seen last.
struct Look {
    state: String,
    picture: Option<Picture>,
}

impl Source {
    fn new(session: &Session, arguments: &TopArguments) -> Result<Source, Failure> {
        let place = arguments.place.as_deref();
        if let Some(url) = place.and_then(|place| place.to_str()).filter(|url| is_url(url)) {
            let page = Remote::new(url).map_err(|error| Failure::Invalid(error.to_string()))?;
            // Other users of the machine see the words of a command.
            let token = env::var("TERRACE_TOKEN").ok();
            return Ok(Source::Page(match token {
                Some(token) => page.token(token),
                None => page,
            }));
        }
        let began = Instant::now();
        let database = match place {
            Some(path) => session.read_at(path)?,
            None => session.read()?,
        };
        let (sampler, refreshed) = (Sampler::new(&database), Instant::now());
        let took = refreshed - began;
        Ok(Source::Opened(Box::new(Opened { sampler, database, refreshed, took })))
    }

    fn look(&mut self) -> io::Result<Look> {
        match self {
            Source::Page(page) => {
                page.look().map(|look| Look { state: look.state, picture: look.picture })
            }
            Source::Opened(opened) => opened.look().map_err(io::Error::other),
        }
    }
}

impl Opened {
    fn look(&mut self) -> terrace::Result<Look> {
        let (began, rest) = (Instant::now(), INTERVAL.max(REST * self.took));
        if self.refreshed.elapsed() >= rest {
            let fresh = match self.database.has_writer_come() {
                Ok(true) => self.database.refresh().map(Some),
                Ok(false) => Ok(None),
                Err(error) => Err(error),
            };
            // A failure has its rest too: it reads as much, and keeps the writer waiting.
            (self.refreshed, self.took) = (Instant::now(), began.elapsed());
            if let Some(fresh) = fresh? {
                self.database = fresh;
                // The new handle counts from 0.
                self.sampler = Sampler::new(&self.database);
            }
        }
        self.sampler.look();
        let stats = self.sampler.sample_of_last_look().map(|sample| &sample.stats);
        let beside = stats.filter(|stats| stats.open.beside_writer);
        let beside = beside.map(|stats| {
            let commit = stats.commit.visible;
            format!(" as of commit {commit}; only sizes are the service's")
        });
        let state = format!("{}{}", self.sampler.state(), beside.unwrap_or_default());
        Ok(Look { state, picture: self.sampler.picture().cloned() })
    }
}

impl Look {
    /// What the database is, and when it was looked at.
    fn heading(&self) -> String {
        let at = self.picture.as_ref().map(|picture| format!(", {}", clock(picture.at_ms)));
        format!("{}{}", self.state, at.unwrap_or_default())
    }
}

fn is_url(place: &str) -> bool {
    place.contains("://")
}

/// Shows it until a key or a signal ends it.
pub(crate) fn run(session: &mut Session, arguments: &TopArguments) -> Result<Outcome, Failure> {
    let mut source = Source::new(session, arguments)?;
    let first = source.look().map_err(|error| Failure::io("look at the page", &error))?;
    if io::stdout().is_terminal() && io::stdin().is_terminal() && !session.output.json {
        screen::run(source, first).map_err(|error| Failure::io("draw", &error))?;
        let is_ended = interrupt::is_asked_for();
        let ended = || Failure::Interrupted("a signal ended it".to_owned());
        return if is_ended { Err(ended()) } else { Ok(Outcome::Good) };
    }
    // The second look knows what moves.
    interrupt::on_signals();
    let began = Instant::now();
    while let Some(left) = INTERVAL.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
        if interrupt::is_asked_for() {
            return Err(Failure::Interrupted("nothing was shown".to_owned()));
        }
        std::thread::park_timeout(left.min(INTERVAL / 10));
    }
    let look = source.look().map_err(|error| Failure::io("look at the page", &error))?;
    let heading = look.heading();
    let Some(mut picture) = look.picture else {
        return Err(Failure::Outside("the database was closed before anybody looked".into()));
    };
    if session.output.json {
        picture.state = look.state;
        session.output.object(&picture)?;
        return Ok(Outcome::Good);
    }
    session.output.line(&escape(heading.as_bytes(), char::is_control))?;
    for block in blocks::of(&picture) {
        for line in [String::new(), block.title].into_iter().chain(block.lines) {
            session.output.line(&line)?;
        }
    }
    Ok(Outcome::Good)
}

#[cfg(test)]
mod tests {
    use terrace::Options;

    use super::*;

    /// Bug: where `top` came before the writer, it showed what it had found at first for ever.
    /// Cause: only a reader that had found a writer was opened again. Fix: each is.
    #[test]
    fn a_writer_that_comes_later_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let options = || Options::new().pm_size(4 << 20);
        options().open(dir.path()).unwrap().table("t").unwrap().put("k", "v").unwrap();
        let database = options().open_read_only(dir.path()).unwrap();
        let (sampler, took) = (Sampler::new(&database), Duration::ZERO);
        let long_ago = || Instant::now().checked_sub(2 * INTERVAL).unwrap();
        let mut opened = Opened { sampler, database, refreshed: long_ago(), took };
        assert_eq!(opened.look().unwrap().state, "read-only");
        let writer = options().open(dir.path()).unwrap();
        writer.table("t").unwrap().put("k", "w").unwrap();
        opened.refreshed = long_ago();
        let state = opened.look().unwrap().state;
        let commit = writer.stats().commit.visible;
        assert!(state.contains(&format!("as of commit {commit}; ")), "{state}");
    }
}
