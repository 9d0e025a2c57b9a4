//! `follow`, `standby`, `promote` and `status`: a shared database, its readers, and its end.

use std::time::{Duration, Instant};

use terrace::{Follower, NodeStatus, Options, Standby};

use super::table::Lasting;
use crate::args::{FollowArguments, ForgetArguments, NodeArguments, PromoteArguments};
use crate::failure::{Failure, Outcome};
use crate::interrupt;
use crate::session::Session;

/// A node says how far it is so often.
const REPORT: Duration = Duration::from_secs(1);

/// It looks for a signal, and whether it has all, so often.
const LOOK: Duration = Duration::from_millis(50);

/// With less lag than this a node has all that there is.
const CAUGHT_UP: u64 = 250;

/// What follows, and what stands by.
enum Node {
    Follower(Follower),
    Standby(Standby),
}

impl Node {
    fn status(&self) -> NodeStatus {
        match self {
            Node::Follower(node) => node.status(),
            Node::Standby(node) => node.status(),
        }
    }

    fn close(self) -> terrace::Result<()> {
        match self {
            Node::Follower(node) => node.close(),
            Node::Standby(node) => node.close(),
        }
    }
}

fn options(session: &Session, node: &NodeArguments) -> Options {
    match &node.name {
        Some(name) => session.options().follower_name(name),
        None => session.options(),
    }
}

/// Keeps nothing for a follower any more.
pub(crate) fn forget(
    session: &mut Session,
    follower: &ForgetArguments,
) -> Result<Outcome, Failure> {
    session.options().forget_follower(&session.store()?, &follower.name)?;
    Ok(Outcome::Good)
}

/// Follows until a signal comes.
pub(crate) fn follow(session: &mut Session, follow: &FollowArguments) -> Result<Outcome, Failure> {
    let FollowArguments { node, cache } = follow;
    let mut options = options(session, node);
    if let Some(cache) = cache {
        options.set("object_cache", cache)?;
    }
    let follower = options.follow(&session.store()?, &node.directory)?;
    watch(session, Node::Follower(follower), node.once)
}

/// Stands by until a signal comes.
pub(crate) fn stand_by(session: &mut Session, node: &NodeArguments) -> Result<Outcome, Failure> {
    let standby = options(session, node).standby(&session.store()?, &node.directory)?;
    watch(session, Node::Standby(standby), node.once)
}

/// Says how far a node is, until a signal comes or, with `once`, it has all that there is or cannot
/// go on.
fn watch(session: &mut Session, node: Node, once: bool) -> Result<Outcome, Failure> {
    interrupt::on_signals();
    let (mut told, mut told_at, mut lasting) = (None, Instant::now(), Lasting::default());
    loop {
        let status = node.status();
        if let Some(note) = lasting.look(status.note.as_ref()).filter(|_| once) {
            let failure = format!("{} cannot go on: {note}", status.directory.display());
            let closed = node.close();
            return Err(session.output.closed_behind(Failure::Outside(failure), closed));
        }
        let has_all = status.entry > 0 && status.lag_ms < CAUGHT_UP && status.note.is_none();
        let is_read = !session.output.reader_is_gone();
        let ends = interrupt::is_asked_for() || once && has_all || !is_read;
        let news = (status.commit, status.note.clone());
        let is_news = told.as_ref() != Some(&news) && told_at.elapsed() > REPORT;
        if ends || is_news || told.is_none() {
            report(session, &status)?;
            (told, told_at) = (Some(news), Instant::now());
        }
        if ends {
            node.close()?;
            return Ok(Outcome::Good);
        }
        std::thread::park_timeout(LOOK);
    }
}

fn report(session: &mut Session, status: &NodeStatus) -> Result<(), Failure> {
    let output = &mut session.output;
    if output.json {
        let mut object = serde_json::json!(status);
        if status.lag_ms == u64::MAX {
            object["lag_ms"] = serde_json::Value::Null;
        }
        output.object(&object)?;
    } else {
        let NodeStatus { commit, entry, lag_ms, restarts, missed, note, directory, .. } = status;
        let note = note.as_ref().map(|note| format!("; {note}")).unwrap_or_default();
        let missed = match missed {
            0 => "",
            _ => "; it was away for too long, and started from the newest checkpoint",
        };
        let lag = match lag_ms {
            &u64::MAX => "not yet at the end".to_string(),
            lag => format!("{lag} ms behind"),
        };
        output.line(&format!(
            "{}: commit {commit}, entry {entry}, {lag}, {restarts} checkpoints{missed}{note}",
            directory.display()
        ))?;
    }
    output.flush()
}

/// Makes a standby, or an empty directory, the writer.
pub(crate) fn promote(session: &mut Session, to: &PromoteArguments) -> Result<Outcome, Failure> {
    if !to.confirm {
        let why =
            "this takes the database over from its writer, which stops; say --confirm to do it";
        return Err(Failure::Invalid(why.to_string()));
    }
    let standby = session.options().standby(&session.store()?, &to.directory)?;
    let database = standby.promote()?;
    // Not where the standby was: a takeover may make a new one.
    let directory = database.path().to_path_buf();
    let stats = database.stats().share;
    let commit = stats.map_or(0, |stats| stats.shipped);
    let done = format!("{} writes from commit {commit} on", directory.display());
    let output = &mut session.output;
    output.done(&done);
    let directory = directory.display().to_string();
    let printed = match output.json {
        true => output.object(&serde_json::json!({ "directory": directory, "commit": commit })),
        false => output.line(&format!("{done}: open it with --share")),
    };
    let (printed, closed) = (printed.and_then(|()| output.flush()), database.close());
    if let Err(failure) = printed {
        return Err(output.closed_behind(failure, closed));
    }
    closed.map_err(Failure::closing(done))?;
    Ok(Outcome::Good)
}

/// Says how far the shared database of a store is.
pub(crate) fn status(session: &mut Session) -> Result<Outcome, Failure> {
    let status = session.options().shared_status(&session.store()?)?;
    let output = &mut session.output;
    if output.json {
        output.object(&status)?;
    } else {
        output.line(&format!(
            "{}: commit {}, entry {}, checkpoint {}, kept from entry {} on; written by {}",
            status.store,
            status.commit,
            status.entry,
            status.checkpoint,
            status.oldest,
            status.writer
        ))?;
        for follower in &status.followers {
            let reads = follower.base.map(|base| format!(", reads checkpoint {base}"));
            let starts = if follower.starts { " starts," } else { "" };
            output.line(&format!(
                "{}:{starts} has entry {}, {} behind{}",
                follower.name,
                follower.entry,
                status.entry.saturating_sub(follower.entry),
                reads.unwrap_or_default()
            ))?;
        }
    }
    Ok(Outcome::Good)
}
