//! `top`: what the page of a running database shows, on a terminal.

mod blocks;
mod screen;

use std::io::{self, IsTerminal};
use std::time::Instant;

use terrace::Database;
use terrace_monitor::model::Picture;
use terrace_monitor::{INTERVAL, Remote, Sampler};

use crate::args::TopArguments;
use crate::failure::{Failure, Outcome};
use crate::interrupt;
use crate::session::Session;

/// What is looked at.
enum Source {
    Page(Remote),
    Opened { sampler: Box<Sampler>, _database: Database },
}

/// A look: `open`, `closed`, or why there is none, and what was seen last.
struct Look {
    state: String,
    picture: Option<Picture>,
}

impl Source {
    fn new(session: &Session, arguments: &TopArguments) -> Result<Source, Failure> {
        let place = arguments.place.as_deref();
        if let Some(url) = place.and_then(|place| place.to_str()).filter(|url| is_url(url)) {
            let page = Remote::new(url).map_err(|error| Failure::Invalid(error.to_string()))?;
            return Ok(Source::Page(page));
        }
        let database = match place {
            Some(path) => session.read_at(path)?,
            None => session.read()?,
        };
        let sampler = Box::new(Sampler::new(&database));
        Ok(Source::Opened { sampler, _database: database })
    }

    fn look(&mut self) -> io::Result<Look> {
        match self {
            Source::Page(page) => {
                page.look().map(|look| Look { state: look.state, picture: look.picture })
            }
            Source::Opened { sampler, .. } => {
                sampler.look();
                let picture = sampler.picture().cloned();
                Ok(Look { state: "open, read-only".to_owned(), picture })
            }
        }
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
        screen::run(&mut source, first).map_err(|error| Failure::io("draw", &error))?;
        return Ok(Outcome::Good);
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
    let Some(picture) = look.picture else {
        return Err(Failure::Outside("the database was closed before anybody looked".into()));
    };
    if session.output.json {
        session.output.object(&picture)?;
        return Ok(Outcome::Good);
    }
    for (at, block) in blocks::of(&picture).into_iter().enumerate() {
        let space = (at > 0).then(String::new);
        for line in space.into_iter().chain([block.title]).chain(block.lines) {
            session.output.line(&line)?;
        }
    }
    Ok(Outcome::Good)
}
