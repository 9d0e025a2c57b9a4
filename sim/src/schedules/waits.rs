//! Waits that nothing but time has ended: which of them say that a wake-up was missed.

use terrace::testing::schedule::{Blocked, TimedOut};

/// Where a caller rests. What it has enqueued others publish; other waits for it may be right.
const RESTS: &str = "operations/writes.rs";

/// Waits that nothing but time may end while all other tasks wait, and why.
const MAY_TIME_OUT: [(&str, &str); 7] = [
    (RESTS, "a caller rests with a commit that it has enqueued"),
    ("schedules/run.rs", "what is held at rest is looked at again"),
    ("schedules/bucket.rs", "so are the objects in a bucket"),
    ("operations/shared.rs", "so is how far another node is"),
    ("jobs/manual.rs", "the call asks its closure now and then whether it is cancelled"),
    ("scheduler/workers.rs", "so does a worker"),
    // The background rests, and looks again at what another had taken.
    ("table/pace.rs", "a writer is slowed down; one that finds no space is told so in the end"),
];

/// Where an answer of the store is waited for, or the time of the next attempt. No task brings
/// them.
const ASKS_STORE: [&str; 2] = ["storage/object/clock.rs", "storage/object/store.rs"];

/// Where an answer is on its way, or a thread waits for more that goes to the store or comes from
/// it.
const GOES_ON_IN_TIME: [&str; 4] =
    ["storage/object/slow.rs", FEED, "replication/node.rs", "replication/registration.rs"];

/// Where a caller waits until its commit was sent.
const FEED: &str = "commit/feed.rs";

/// The task that has begun the callers.
const FIRST: &str = "caller";

/// Where calls wait for locks of transactions.
const LOCKS: &str = "locks/manager.rs";

/// Who waits, and where.
#[derive(Clone, Debug)]
struct Waiting<'a> {
    name: &'a str,
    file: &'a str,
    line: u32,
}

impl Waiting<'_> {
    fn of(Blocked { task: (_, name), place }: &Blocked) -> Waiting<'_> {
        Waiting { name, file: place.file(), line: place.line() }
    }

    fn is_at(&self, file: &str) -> bool {
        self.file.ends_with(file)
    }

    fn may(&self) -> bool {
        MAY_TIME_OUT.iter().any(|(file, _)| self.is_at(file))
    }

    fn asks_store(&self) -> bool {
        ASKS_STORE.iter().any(|file| self.is_at(file))
    }

    /// A caller, or the thread that began them.
    fn is_caller(&self) -> bool {
        self.name.starts_with("caller")
    }

    /// In the caller's own code, and not in a call.
    fn is_outside(&self) -> bool {
        self.is_caller() && self.file.starts_with("sim")
    }
}

/// What is wrong with a wait that only time has ended.
pub(super) fn judge(TimedOut { waited, others, looked }: &TimedOut) -> Option<String> {
    let looked = looked.as_ref().map(Waiting::of);
    // What looks again and again inside of a call may wait for time, and others for it.
    if looked.as_ref().is_some_and(|looked| !looked.is_outside()) {
        return None;
    }
    let others: Vec<Waiting<'_>> = others.iter().map(Waiting::of).chain(looked).collect();
    judge_wait(&Waiting::of(waited), &others)
}

/// A thread of the engine may rest; but no caller waits then for what no thread does.
fn judge_wait(waited: &Waiting<'_>, others: &[Waiting<'_>]) -> Option<String> {
    let sends = |other: &Waiting<'_>| other.is_caller() && other.is_at(FEED);
    let is_asked = others.iter().any(|other| other.asks_store() || sends(other));
    let goes_on = GOES_ON_IN_TIME.iter().any(|file| waited.is_at(file));
    let rests = waited.is_at(RESTS);
    // A caller that looks again by itself ends no wait of the engine, and is no sign of one.
    let looks_again = waited.is_outside() && !rests;
    if is_asked || waited.asks_store() || goes_on || looks_again {
        return None;
    }
    // What a caller has locked that rests, or looks again, others wait for.
    let is_locked = others.iter().chain([waited]).any(|one| one.is_outside() && one.name != FIRST);
    let waits = |other: &&Waiting<'_>| {
        other.is_caller()
            && !(other.is_outside() || other.may() || is_locked && other.is_at(LOCKS))
            && (!rests || other.is_at("commit/ring.rs"))
    };
    let at = |one: &Waiting<'_>| format!("{}:{}", one.file, one.line);
    match others.iter().find(waits) {
        Some(other) => Some(format!(
            "{} waits at {}, until time wakes {} at {}",
            other.name,
            at(other),
            waited.name,
            at(waited)
        )),
        None if waited.may() || is_locked && waited.is_at(LOCKS) => None,
        None => {
            let all: Vec<String> =
                others.iter().map(|other| format!("{} at {}", other.name, at(other))).collect();
            let (name, place) = (waited.name, at(waited));
            Some(format!("nothing but time ended the wait of {name} at {place}, beside {all:?}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(name: &'static str, file: &'static str) -> Waiting<'static> {
        Waiting { name, file, line: 1 }
    }

    /// Bug: a caller that waited for a row lock or for the gate until time woke the background was
    /// not accused. Cause: where it waits was said to be in the floor, and places in the engine
    /// alone counted. Fix: a wait has the place of its caller, and all places but the callers' own
    /// code count.
    #[test]
    fn a_caller_that_waits_until_time_wakes_the_background_is_accused() {
        let first = waiting("caller", "sim/src/schedules/run.rs");
        let background = waiting("terrace-background", "engine/src/table/pace.rs");
        let (locks, gate) = ("engine/src/locks/manager.rs", "crates/os/src/gate.rs");
        for place in [locks, gate, "engine/src/commit/ring.rs"] {
            let other = waiting("caller 1", place);
            assert!(judge_wait(&background, &[first.clone(), other]).is_some(), "{place}");
        }
        // Locks, while a caller rests that has some.
        let rests = waiting("caller 0", "sim/src/schedules/operations/writes.rs");
        let other = waiting("caller 1", locks);
        assert_eq!(judge_wait(&background, &[rests.clone(), other.clone()]), None);
        assert_eq!(judge_wait(&rests, &[background.clone(), other.clone()]), None);
        assert_eq!(judge_wait(&other, &[background.clone(), rests]), None);
        // A deadline of a lock passes, and no thread would have given it.
        assert!(judge_wait(&other, &[first.clone(), background.clone()]).is_some());
        assert_eq!(judge_wait(&background, &[first]), None);
    }
}
