//! Holds what callers and openings have found against the ledger.

use terrace::Isolation;

use super::super::judge::{Shown, judge, name, of_stamp};
use super::super::rows::QUEUE;
use super::{Book, History, Ledger, Outcome, Place, Seen, Stamp, State, Write};
use crate::histories::{self, Done};
use crate::violation::Class;

impl Book {
    /// What an opening has found stays, and nothing else comes back: the opening has written again
    /// what it builds on. Prepared transactions are judged apart.
    fn settle(&mut self, (state, cut): (&State, u64), shown: Shown) {
        self.now += 1;
        let now = self.now;
        if self.lags {
            // Of what is not shown here other nodes may still show something.
            self.cuts.push(cut);
            for stamp in shown.writes {
                self.writes[stamp as usize - 1].durable.get_or_insert(now);
            }
            return;
        }
        let mut popped = shown.popped.into_iter();
        for write in &mut self.writes {
            if write.outcome.is_hidden() || write.is_prepared && write.is_open() {
                continue;
            }
            if write.is_open_pop() {
                let popped = popped.next();
                write.outcome = if popped.is_some() { write.outcome } else { Outcome::Refused };
                write.changes = popped.into_iter().map(|place| (place, None)).collect();
            }
            let stays = |place: &Place, change: &mut Stamp| {
                state.get(place).is_none_or(|found| found == change)
            };
            write.changes.retain(stays);
            if write.changes.is_empty() || write.outcome == Outcome::Refused {
                continue;
            }
            write.durable.get_or_insert(now);
            if write.is_open() {
                write.outcome = Outcome::Acknowledged(now);
            }
        }
    }
}

impl Ledger {
    /// Holds the transactions that an opening lists as prepared, and the rows that prepared ones
    /// write, against the ledger. What it has found stays.
    pub(in crate::schedules) fn judge_prepared(&self, listed: &[u64], rows: &State, who: &str) {
        let mut book = self.book();
        book.now += 1;
        let now = book.now;
        let mut wrong = Vec::new();
        for write in book.writes.iter_mut().filter(|write| write.is_prepared) {
            let is_listed = listed.contains(&write.stamp);
            let found = write.changes.keys().find_map(|place| rows.get(place).copied().flatten());
            // Its caller alone writes the row, in transactions that come one after the other.
            let is_shown = found.is_some_and(|found| found >= write.stamp);
            wrong.extend(
                match (write.outcome, is_listed) {
                    (Outcome::Prepared, false) => Some((Class::Lost, "is not prepared any more")),
                    (Outcome::Called | Outcome::Unknown, false) if !is_shown => {
                        Some((Class::Lost, "is neither prepared nor committed"))
                    }
                    (Outcome::Called | Outcome::Unknown, true) if found == Some(write.stamp) => {
                        Some((Class::Changed, "is prepared, and its row is there"))
                    }
                    (Outcome::Acknowledged(_) | Outcome::Refused, true) => {
                        Some((Class::Changed, "is prepared, and was resolved"))
                    }
                    _ => None,
                }
                .map(|(class, what)| class.violation(format!("{write} {what}; {who}"))),
            );
            match write.outcome {
                _ if is_listed => write.outcome = Outcome::Prepared,
                Outcome::Called | Outcome::Unknown => {
                    (write.outcome, write.durable) = (Outcome::Acknowledged(now), Some(now));
                }
                outcome if outcome.is_hidden() => write.outcome = Outcome::Refused,
                _ => {}
            }
        }
        let is_unknown =
            |stamp: &&u64| of_stamp(&book.writes, **stamp).is_none_or(|write| !write.is_prepared);
        wrong.extend(listed.iter().filter(is_unknown).map(|stamp| {
            Class::Changed.violation(format!("{stamp} is prepared, and no caller did it; {who}"))
        }));
        drop(book);
        wrong.into_iter().for_each(|what| self.violate(what));
    }

    /// What is wrong with a row that a pop has given which began at the moment.
    pub(in crate::schedules) fn judge_pop(
        &self,
        (pop, from, is_last): (u64, u64, bool),
        (key, stamp): (&[u8], u64),
    ) {
        let book = self.book();
        let place = (QUEUE, key.to_vec());
        let seen = Seen::Read(from, book.now + 1);
        let put =
            |write: &Write| write.changes.get(&place) == Some(&Some(stamp)) && seen.may_have(write);
        let is_put = of_stamp(&book.writes, stamp).is_some_and(put);
        let pops = || book.writes.iter().filter(|write| write.is_one_of && write.stamp != pop);
        let is_popped = |place: &Place| {
            pops().any(|pop| pop.acknowledged().is_some() && pop.changes.contains_key(place))
        };
        let comes_first = |(table, other): &&Place| {
            *table == QUEUE && if is_last { other.as_slice() > key } else { other.as_slice() < key }
        };
        let pushes = book.writes.iter().filter(|write| !write.is_one_of && seen.must_have(write));
        let skipped: Vec<_> = pushes
            .flat_map(|push| push.changes.keys().filter(comes_first))
            .filter(|place| !is_popped(place))
            .map(name)
            .collect();
        // Each pop that has not ended may have taken one.
        let open = pops().filter(|pop| pop.is_open_pop()).count();
        drop(book);
        let end = if is_last { "last" } else { "first" };
        if !is_put {
            let what = format!("write {pop} has popped {}, of write {stamp}", name(&place));
            self.violate(Class::Changed.violation(what));
        }
        if skipped.len() > open {
            let place = name(&place);
            let what = format!("write {pop} has popped {place} as the {end} row: {skipped:?}");
            self.violate(Class::Isolation.violation(what));
        }
    }

    /// Holds the order of operands, and that each is there once, against the ledger.
    pub(in crate::schedules) fn judge_order(&self, operands: &[u64]) {
        let book = self.book();
        let twice = operands.iter().enumerate().find(|(n, one)| operands[..*n].contains(one));
        let late = operands.iter().enumerate().find_map(|(n, later)| {
            let later = of_stamp(&book.writes, *later)?;
            let earlier = operands[..n].iter().filter_map(|one| of_stamp(&book.writes, *one));
            earlier.into_iter().find(|earlier| later.is_before(earlier)).map(|_| later.stamp)
        });
        drop(book);
        if let Some((_, stamp)) = twice {
            self.violate(Class::Changed.violation(format!("{stamp} is there twice: {operands:?}")));
        }
        if let Some(stamp) = late {
            let what = format!("{stamp} is behind a later operand: {operands:?}");
            self.violate(Class::NotAPrefix.violation(what));
        }
    }

    /// Holds the histories of transactions, and what lists are now, read by a call at the moment,
    /// against their level. After a cut those of readers do not count: what they read may be lost.
    pub(in crate::schedules) fn judge_histories(
        &self,
        (lists, called): (Vec<(u8, Vec<u32>)>, u64),
        level: Isolation,
        (is_cut, who): (bool, &str),
    ) {
        let is_there = |done: &Done| {
            let has = |(key, list): &(u8, Vec<u32>)| {
                done.appends.contains(key) && histories::times(list, done.id) > 0
            };
            lists.iter().any(has)
        };
        let mut book = self.book();
        let mut history = Vec::new();
        let mut lost = None;
        for History { done: meant, is_committed } in &mut book.histories {
            let Some(done) = meant else { continue };
            let counts = is_there(done) || (*is_committed && !(is_cut && done.appends.is_empty()));
            if counts {
                history.push(done.clone());
            }
            for &key in done.appends.iter().filter(|_| counts) {
                let list = lists.iter().find(|(of, _)| *of == key);
                let times = list.map_or(0, |(_, list)| histories::times(list, done.id));
                if times != done.times(key) {
                    lost = Some((done.id, key));
                }
            }
            if is_cut && !*is_committed {
                // What an opening has found stays, and what was not there does not come back.
                *is_committed = counts;
                *meant = meant.take().filter(|_| counts);
            }
        }
        drop(book);
        if let Some((id, key)) = lost {
            let what = format!("transaction {id} is not in list {key}: {lists:?} {who}");
            self.violate(Class::Lost.violation(what));
        }
        let id = u32::MAX;
        history.push(Done { id, reads: lists, called: Some(called), ..Done::default() });
        if let Err(what) = histories::check(&history, level) {
            self.violate(Class::Isolation.violation(format!("{what} {who}: {history:?}")));
        }
    }

    /// The least and the most that a row counts whose last write has this stamp, in what a cut at
    /// the moment has left.
    pub(in crate::schedules) fn counts_of(
        &self,
        what: &str,
        stamp: u64,
        cut: u64,
    ) -> (usize, usize) {
        let book = self.book();
        let all = || book.writes.iter().filter(|write| write.what == what);
        let Some(last) = of_stamp(&book.writes, stamp) else { return (0, 0) };
        let seen = Seen::AfterCut(cut);
        let before = all().filter(|write| write.is_before(last)).count();
        (before + 1, all().filter(|write| seen.may_have(write)).count())
    }

    /// Holds what was read at one moment against the ledger.
    pub(in crate::schedules) fn judge(&self, state: &State, seen: Seen, who: &str) {
        let found = {
            let book = self.book();
            judge(&book.writes, &book.cuts, (state, seen))
        };
        match (found, seen) {
            (Ok(shown), Seen::Read(_, to)) => {
                let mut book = self.book();
                for stamp in shown.writes {
                    let read = &mut book.writes[stamp as usize - 1].read;
                    *read = Some(read.map_or(to, |at| at.min(to)));
                }
            }
            (Ok(_), Seen::Stopped(..) | Seen::Taken(_)) => {}
            (Ok(shown), Seen::Behind(node, _)) => {
                let mut book = self.book();
                for stamp in shown.writes {
                    book.writes[stamp as usize - 1].shown_by.insert(node);
                }
            }
            (Ok(shown), Seen::AfterCut(cut)) => self.book().settle((state, cut), shown),
            (Err(what), _) => self.violate(format!("{what}; read by {who}")),
        }
    }
}
