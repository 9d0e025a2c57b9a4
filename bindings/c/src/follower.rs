//! Databases that several machines share through an object store: takeovers, followers, standbys.

use std::mem::MaybeUninit;
use std::ops::Deref;

use crate::database::{Database, open};
use crate::error::{Error, OwnedText, Status};
use crate::guard::{self, ErrorOut, Failure, Result, need};
use crate::options::Options;
use crate::pointers::Text;
use crate::statistics::json;

/// A database that shows what the writer of a shared store commits: a follower, or a standby, which
/// can become the writer. Any thread may use it, several at once.
#[derive(Debug)]
pub struct Follower(Node);

#[derive(Debug)]
enum Node {
    Follower(terrace::Follower),
    Standby(terrace::Standby),
}

impl Deref for Follower {
    type Target = terrace::Follower;

    fn deref(&self) -> &terrace::Follower {
        match &self.0 {
            Node::Follower(follower) => follower,
            Node::Standby(standby) => standby,
        }
    }
}

/// How far a follower or a standby is.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NodeStatus {
    /// Its last commit, by the numbers of the writer. It only grows.
    pub commit: u64,
    /// The last entry of the log that it has applied.
    pub entry: u64,
    /// Milliseconds since it last knew that there is no more; UINT64_MAX until it has come to the
    /// end once.
    pub lag_ms: u64,
    /// How often it has started from a checkpoint.
    pub restarts: u64,
    /// How often the writer had deleted what it had not yet applied, or what it reads.
    pub missed: u64,
    /// Reads of the store.
    pub gets: u64,
}

/// Takes the shared database of the store url over, whichever machine writes to it, and opens it to
/// write in the directory path, which is missing or empty. The other writer stops with
/// TERRACE_FENCED. It has every TERRACE_REMOTE commit, and of the rest what had been shipped. Later
/// openings of path need the options share and object_store. As terrace_open.
///
/// Errors: TERRACE_INVALID when there is no shared database; TERRACE_EXISTS when path is not empty;
/// TERRACE_BUSY when it is open elsewhere; TERRACE_UNAVAILABLE when the store does not answer;
/// TERRACE_CORRUPT; TERRACE_FULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_open_shared(
    url: Text,
    path: Text,
    options: Option<&Options>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<Database>> {
    open(options, error, |options| Ok(options.open_shared(url.text("url")?, path.path("path")?)?))
}

/// Follows the shared database of the store url, with data of its own in the directory path, or in
/// the store with the option object_cache. It costs two requests a second while nothing is
/// committed. Options may be NULL for the defaults. NULL after an error. End it with
/// terrace_follower_close, then free it with terrace_follower_free.
///
/// Errors: as terrace_open_shared; TERRACE_UNAVAILABLE also where the shared database has no
/// checkpoint yet.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_follow(
    url: Text,
    path: Text,
    options: Option<&Options>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<Follower>> {
    node(url, path, options, error, |options, url, path| {
        options.follow(url, path).map(Node::Follower)
    })
}

/// Stands by for the shared database of the store url, with all of its data in the directory path.
/// As terrace_follow; terrace_follower_promote makes it the writer.
///
/// Errors: as terrace_follow.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_standby(
    url: Text,
    path: Text,
    options: Option<&Options>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<Follower>> {
    node(url, path, options, error, |options, url, path| {
        options.standby(url, path).map(Node::Standby)
    })
}

fn node(
    url: Text,
    path: Text,
    options: Option<&Options>,
    error: ErrorOut<'_>,
    how: impl FnOnce(terrace::Options, &str, &std::path::Path) -> terrace::Result<Node>,
) -> Option<Box<Follower>> {
    guard::made(error, || {
        let options = Options::or_default(options);
        Ok(Follower(how(options, url.text("url")?, path.path("path")?)?))
    })
}

/// The database of a follower or a standby, to read. Its handles keep what they show where the
/// follower had to start from a checkpoint: ask again now and then, and when a read fails with
/// TERRACE_UNAVAILABLE. terrace_close does nothing to it: the follower closes it. NULL after an
/// error. Free it with terrace_database_free.
///
/// Errors: TERRACE_CLOSED; TERRACE_UNAVAILABLE when it has to start from a checkpoint, and the
/// store has none or does not answer.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_follower_database(
    follower: Option<&Follower>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<Database>> {
    guard::made(error, || Ok(Database(need(follower, "follower")?.database()?)))
}

/// Writes how far a follower or a standby is to *status.
///
/// Errors: TERRACE_INVALID for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_follower_get_status(
    follower: Option<&Follower>,
    status: Option<&mut MaybeUninit<NodeStatus>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let found = need(follower, "follower")?.status();
        need(status, "status")?.write(NodeStatus {
            commit: found.commit,
            entry: found.entry,
            lag_ms: found.lag_ms,
            restarts: found.restarts,
            missed: found.missed,
            gets: found.gets,
        });
        Ok(())
    })
}

/// Why a follower or a standby does not go on, though it tries again; empty text while it goes on.
/// NULL after an error. Free it with terrace_string_free.
///
/// Errors: TERRACE_INVALID for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_follower_note(
    follower: Option<&Follower>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<OwnedText>> {
    guard::made(error, || {
        Ok(OwnedText::new(need(follower, "follower")?.status().note.unwrap_or_default()))
    })
}

/// Makes a standby the writer: it applies what is left, claims the shared store, and opens the
/// database to write, in the directory that terrace_database_path names. Handles of the standby's
/// database are closed by it, and the standby too. As terrace_open_shared.
///
/// Errors: TERRACE_INVALID for a follower, which may lack data, and inside of a merge function:
/// both go on then. Otherwise as terrace_open_shared. Those close the standby. Open it again and
/// promote that.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_follower_promote(
    follower: Option<&Follower>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<Database>> {
    guard::made(error, || match &need(follower, "follower")?.0 {
        Node::Standby(standby) => Ok(Database(standby.promote()?)),
        Node::Follower(follower) => Err(Failure::Invalid(format!(
            "{} is a follower, and a standby alone can be promoted; open it with terrace_standby",
            follower.status().directory.display()
        ))),
    })
}

/// Ends following. The next follower in the same directory goes on where it was. A second call does
/// nothing.
///
/// Errors: as terrace_close.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_follower_close(
    follower: Option<&Follower>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || Ok(need(follower, "follower")?.close()?))
}

/// Frees the handle, and ends following if it was not closed; an error of that is lost. NULL is no
/// error.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_follower_free(follower: Option<Box<Follower>>) {
    guard::free(follower);
}

/// How far the shared database of the store url is, as a JSON object with the names of the Rust
/// type SharedStatus. It costs about twenty small requests, and changes nothing. Options may be
/// NULL. NULL after an error. Free it with terrace_string_free.
///
/// Errors: TERRACE_INVALID when there is none; TERRACE_UNAVAILABLE when the store does not answer.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_shared_status_json(
    url: Text,
    options: Option<&Options>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<OwnedText>> {
    guard::made(error, || json(&Options::or_default(options).shared_status(url.text("url")?)?))
}

/// Forgets a follower that was registered by the option follower_name: the store keeps nothing for
/// it any more. A name that is not registered is no error. Options may be NULL.
///
/// Errors: TERRACE_INVALID for a name that follower_name does not take; TERRACE_UNAVAILABLE when
/// the store does not answer.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_forget_follower(
    url: Text,
    name: Text,
    options: Option<&Options>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || -> Result<()> {
        let options = Options::or_default(options);
        Ok(options.forget_follower(url.text("url")?, name.text("name")?)?)
    })
}
