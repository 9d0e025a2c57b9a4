//! Whether what is read is the content at one moment, by the writes of the ledger.

use std::collections::BTreeSet;

use super::ledger::{Place, Seen, Stamp, State, Write};
use crate::violation::{Class, Violation};

/// The write of a stamp.
pub(super) fn of_stamp(writes: &[Write], stamp: u64) -> Option<&Write> {
    writes.get(usize::try_from(stamp.checked_sub(1)?).ok()?)
}

/// What a state shows.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// The writes that it shows for certain.
    pub writes: BTreeSet<u64>,
    /// Rows that only pops can have taken which had not ended.
    pub popped: BTreeSet<Place>,
}

/// Whether a state is the content at one moment, and what it shows.
pub(super) fn judge(
    writes: &[Write],
    cuts: &[u64],
    (state, seen): (&State, Seen),
) -> Result<Shown, Violation> {
    let mut shown = Shown::default();
    for (place, &found) in state {
        match shows(writes, place, found, seen) {
            Ok(show) => shown.writes.extend(show),
            Err(_) if found.is_none() && may_be_popped(writes, place, seen) => {
                shown.popped.insert(place.clone());
            }
            Err(what) => return Err(what),
        }
    }
    // What is shown, and all before it, must show in each place.
    for &stamp in &shown.writes {
        let later = &writes[stamp as usize - 1];
        for write in writes {
            let is_between = |cut: &u64| write.called < *cut && *cut < later.called;
            if write.durable.is_none() && cuts.iter().any(is_between) {
                // An earlier cut may have taken it.
                continue;
            }
            // A call that changes one of several places says of none that it must.
            if !write.is_one_of && (write.stamp == stamp || write.is_before(later)) {
                is_in(writes, (write, later), (state, seen), &mut shown.popped)?;
            }
        }
    }
    let open = writes.iter().filter(|pop| pop.is_open_pop() && seen.may_have(pop)).count();
    if shown.popped.len() > open {
        let rows: Vec<String> = shown.popped.iter().map(name).collect();
        let what = format!("{} are gone, and {open} pops had not ended", rows.join(", "));
        return Err(Class::Lost.violation(what));
    }
    Ok(shown)
}

/// Whether a pop that has not ended may have taken the row. Each takes one.
fn may_be_popped(writes: &[Write], place: &Place, seen: Seen) -> bool {
    let mut pops = writes.iter().filter(|write| write.is_open_pop() && seen.may_have(write));
    pops.any(|pop| pop.changes.contains_key(place))
}

/// The write that a place shows for certain. None if it may be one of several, or none. Pops that
/// have not ended excuse nothing here.
fn shows(
    writes: &[Write],
    place: &Place,
    found: Stamp,
    seen: Seen,
) -> Result<Option<u64>, Violation> {
    let here = |write: &&Write| write.changes.contains_key(place) && !write.is_open_pop();
    let may_be = |write: &&Write| {
        let newer = writes
            .iter()
            .filter(here)
            .find(|newer| write.is_before(newer) && seen.must_have(newer));
        write.changes[place] == found && seen.may_have(write) && newer.is_none()
    };
    let mut can_be = writes.iter().filter(here).filter(may_be);
    if let Some(first) = can_be.next() {
        // Nothing is also what was there first.
        let was_there = || writes.iter().filter(here).any(|write| seen.must_have(write));
        let is_certain = can_be.next().is_none() && (found.is_some() || was_there());
        return Ok(is_certain.then_some(first.stamp));
    }
    let hides = |write: &&Write| seen.must_have(write);
    let hidden = writes.iter().filter(here).rfind(hides);
    match (found, hidden) {
        (None, None) => Ok(None),
        (None, Some(write)) => Err(Class::Lost.violation(format!("{} lacks {write}", name(place)))),
        (Some(stamp), _) => {
            let shown = of_stamp(writes, stamp).map(ToString::to_string);
            let shown = shown.unwrap_or_else(|| format!("unknown write {stamp}"));
            let hidden = hidden.map(|write| format!(", though {write} is newer"));
            let hidden = hidden.unwrap_or_default();
            Err(Class::Changed.violation(format!("{} has {shown}{hidden}", name(place))))
        }
    }
}

/// Whether no place is older than `write`, since `later` is shown.
fn is_in(
    writes: &[Write],
    (write, later): (&Write, &Write),
    (state, seen): (&State, Seen),
    popped: &mut BTreeSet<Place>,
) -> Result<(), Violation> {
    for (place, change) in &write.changes {
        let Some(found) = state.get(place) else { continue };
        if found == change {
            continue;
        }
        let other = found.and_then(|stamp| of_stamp(writes, stamp));
        let is_older = match other {
            // Nothing is there, and no deletion can be the cause.
            None => !writes.iter().any(|deletion| {
                deletion.changes.get(place) == Some(&None)
                    && !deletion.is_before(write)
                    && !deletion.is_open_pop()
                    && seen.may_have(deletion)
            }),
            Some(other) => other.is_before(write),
        };
        if is_older && other.is_none() && may_be_popped(writes, place, seen) {
            popped.insert(place.clone());
        } else if is_older {
            let there = other.map_or("nothing".into(), ToString::to_string);
            let what = format!("{later} is there, and {} has {there} for {write}", name(place));
            return Err(Class::NotAPrefix.violation(what));
        }
    }
    Ok(())
}

pub(super) fn name((table, key): &Place) -> String {
    format!("{table}[{}]", String::from_utf8_lossy(key))
}
