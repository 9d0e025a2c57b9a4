//! Machines that work with objects as the engine does, and lose their power between any two
//! requests, while requests are lost, late, made twice, or refused.
//!
//! A machine has a journal that survives, which stands for the engine's. A job takes extents in,
//! writes others, and makes an edit. After each course the store must have what the journal names,
//! and after a collection nothing else. Planted bugs show that each rule is needed.

use std::collections::BTreeMap;

use super::*;

/// A rule of the engine's that a machine breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// The edit is made before the store has acknowledged what it names.
    EditBeforeAcknowledgement,
    /// Objects are deleted before the edit that removes them.
    DeleteBeforeEdit,
    /// The opening uses the epoch of the one before.
    ReuseOfName,
    /// No upload looks at the fence.
    UncheckedFence,
}

/// The durable part of a machine.
#[derive(Clone, Debug, Default)]
struct Disk {
    incarnation: u64,
    /// What the journal names, with the number that its content is made of.
    named: BTreeMap<ObjectId, u64>,
    /// The next extent id, as of the last edit.
    next_extent: u64,
}

struct Machine<'a> {
    disk: &'a mut Disk,
    tier: Arc<ObjectTier>,
    next_extent: u64,
    bug: Bug,
    random: u64,
}

/// How a course ended before its end.
#[derive(Debug)]
enum Stop {
    /// By an error of the store, which says so.
    Failed(Error),
    /// By what must not be.
    Wrong(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

type Course = std::result::Result<(), Stop>;

fn wrong(what: impl Into<String>) -> Stop {
    Stop::Wrong(what.into())
}

/// Bytes that differ for each writing, also of one extent id.
fn bytes_of(salt: u64) -> Vec<u8> {
    (0..64 + salt % 64).map(|at| (at * 31 + salt * 7) as u8).collect()
}

impl<'a> Machine<'a> {
    /// The next opening of what `disk` has.
    fn start(server: &Arc<MemoryServer>, disk: &'a mut Disk, bug: Bug, seed: u64) -> Machine<'a> {
        disk.incarnation += 1;
        let planted = Planted {
            same_epoch: bug == Bug::ReuseOfName,
            unchecked_fence: bug == Bug::UncheckedFence,
            ..Planted::default()
        };
        let nonce = (seed * 100 + disk.incarnation) as u8;
        let named: Vec<ObjectId> = disk.named.keys().copied().collect();
        let tier = built(server, claim(disk.incarnation, nonce), &named).with_planted(planted);
        let tier = Arc::new(tier);
        let next_extent = disk.next_extent;
        Machine { disk, tier, next_extent, bug, random: seed }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % below
    }

    /// A compaction: reads some extents, and writes others in their place.
    fn job(&mut self) -> Course {
        let from = self.draw(3) as usize;
        let named = self.disk.named.keys().rev();
        let inputs: Vec<ObjectId> = named.skip(from).take(2).copied().collect();
        for id in &inputs {
            self.check(*id)?;
        }
        let mut uploads = uploads(&self.tier);
        let mut added = Vec::new();
        for _ in 0..1 + self.draw(2) {
            let (extent, salt) = (self.next_extent, self.draw(1 << 20));
            self.next_extent += 1;
            // A few are under way at a time, so none waits for another one.
            let place = uploads.put(extent, &bytes_of(salt))?;
            added.push((place.object().unwrap(), salt));
        }
        let done = self.finish(uploads, &added, &inputs);
        if let Err(Stop::Failed(_)) = done {
            added.iter().for_each(|(id, _)| self.tier.release(*id));
        }
        done
    }

    fn finish(
        &mut self,
        uploads: Uploads,
        added: &[(ObjectId, u64)],
        inputs: &[ObjectId],
    ) -> Course {
        if self.bug == Bug::DeleteBeforeEdit {
            self.tier.delete_now(inputs)?;
        }
        if self.bug == Bug::EditBeforeAcknowledgement {
            self.edit(added, inputs);
        }
        uploads.finish().map_err(|error| {
            let is_taken = error.to_string().contains("other bytes");
            if is_taken { wrong(error.to_string()) } else { Stop::Failed(error) }
        })?;
        if self.bug != Bug::EditBeforeAcknowledgement {
            self.edit(added, inputs);
        }
        inputs.iter().for_each(|id| self.tier.release(*id));
        Ok(())
    }

    /// The journal's edit: durable at once, since its files lose nothing here.
    fn edit(&mut self, added: &[(ObjectId, u64)], removed: &[ObjectId]) {
        self.disk.named.retain(|id, _| !removed.contains(id));
        self.disk.named.extend(added.iter().copied());
        self.disk.next_extent = self.next_extent;
    }

    /// An extent that the journal names has its bytes.
    fn check(&self, id: ObjectId) -> Course {
        let expected = bytes_of(self.disk.named[&id]);
        let len = expected.len() as u32;
        match self.tier.read(id, len, (0, len)) {
            Ok(bytes) if bytes == expected => Ok(()),
            Ok(_) => Err(wrong(format!("{id:?} has other bytes"))),
            Err(error) if error.kind() == ErrorKind::Corrupt => Err(wrong(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    fn work(&mut self) -> Course {
        for n in 0..6 {
            self.job()?;
            if n % 2 == 1 {
                self.tier.delete_released()?;
            }
            if n == 3 {
                self.tier.collect(false)?;
            }
        }
        Ok(())
    }

    /// Everything is there, and after a collection nothing else.
    fn check_all(&self, server: &MemoryServer) -> Course {
        for id in self.disk.named.keys() {
            self.check(*id)?;
        }
        server.deliver();
        let lost = self.tier.collect(false)?.lost;
        let named = self.disk.named.keys();
        let mut expected: Vec<String> = named.map(|id| names().extent(*id)).collect();
        expected.push(names().fence());
        let found: Vec<String> = server.content().into_keys().collect();
        if !lost.is_empty() || found != expected {
            return Err(wrong(format!("the journal names {expected:?}, the store has {found:?}")));
        }
        Ok(())
    }
}

/// The course of one machine: two openings that work, of which effects hit one request each, and
/// one that checks. Says how many requests came.
fn course(bug: Bug, seed: u64, effects: &[(u64, Effect)]) -> (u64, Course) {
    let server = MemoryServer::new();
    for (at, effect) in effects {
        server.plan(*at, *effect);
    }
    let mut disk = Disk { next_extent: 1, ..Disk::default() };
    for opening in 0..2 {
        let mut machine = Machine::start(&server, &mut disk, bug, seed + opening);
        if let Err(Stop::Wrong(what)) = machine.work() {
            return (server.requests(), Err(wrong(what)));
        }
    }
    let requests = server.requests();
    server.forget_plans();
    let machine = Machine::start(&server, &mut disk, bug, seed + 2);
    (requests, machine.check_all(&server))
}

const EFFECTS: [Effect; 11] = [
    Effect::CutBefore,
    Effect::CutAfter,
    Effect::LoseRequest,
    Effect::LoseAnswer,
    Effect::Delay(1),
    Effect::Delay(7),
    Effect::Repeat(1),
    Effect::Repeat(9),
    Effect::Stale(9),
    Effect::Fail(FailureKind::Throttled),
    Effect::Fail(FailureKind::Refused),
];

/// Runs courses with each effect on each request, and with a late request and a cut soon after it;
/// the number of courses, and the first that went wrong.
fn explore(bug: Bug, seeds: u64) -> (u64, Option<String>) {
    let mut courses = 0;
    let mut run = |seed, effects: &[(u64, Effect)]| {
        courses += 1;
        match course(bug, seed, effects) {
            (_, Err(Stop::Wrong(what))) => Some(format!("seed {seed}, {effects:?}: {what}")),
            (_, Err(Stop::Failed(error))) => Some(format!("seed {seed}, {effects:?}: {error}")),
            (_, Ok(())) => None,
        }
    };
    for seed in 1..=seeds {
        let (requests, _) = course(Bug::None, seed, &[]);
        for at in 1..=requests {
            let mut courses: Vec<Vec<_>> = EFFECTS.iter().map(|e| vec![(at, *e)]).collect();
            for later in 1..4 {
                for cut in [Effect::CutBefore, Effect::CutAfter] {
                    courses.push(vec![(at, Effect::Delay(4)), (at + later, cut)]);
                }
            }
            if let Some(found) = courses.iter().find_map(|effects| run(seed, effects)) {
                return (0, Some(found));
            }
        }
    }
    (courses, None)
}

#[test]
fn nothing_is_lost_or_left_whatever_becomes_of_requests() {
    let (courses, found) = explore(Bug::None, 8);
    assert_eq!(found, None);
    assert!(courses > 5_000, "{courses}");
}

#[test]
fn planted_bugs_are_found() {
    for bug in [Bug::EditBeforeAcknowledgement, Bug::DeleteBeforeEdit, Bug::ReuseOfName] {
        let (courses, found) = explore(bug, 8);
        assert!(found.is_some(), "{bug:?} was not found in {courses} courses");
    }
}

/// Two machines with copies of one database. The first one does `jobs` jobs after the second one
/// was started and before that takes the store over. Says what the first one did after that.
fn takeover(bug: Bug, jobs: u64) -> Option<String> {
    let server = MemoryServer::new();
    let mut disk = Disk { next_extent: 1, ..Disk::default() };
    let mut one = Machine::start(&server, &mut disk, bug, 1);
    one.job().ok()?;
    one.job().ok()?;
    one.tier.delete_released().ok()?;
    let mut copy = one.disk.clone();
    let mut two = Machine::start(&server, &mut copy, Bug::None, 2);
    for _ in 0..jobs {
        one.job().ok()?;
    }
    let before = one.disk.named.clone();
    two.job().ok()?;
    let outcome = one.job();
    let deleted = one.tier.delete_released();
    let has_edit = one.disk.named != before;
    if outcome.is_ok() || has_edit || deleted.is_ok_and(|deleted| deleted > 0) {
        return Some(format!("after the takeover: {outcome:?}, an edit: {has_edit}"));
    }
    match two.check_all(&server) {
        Err(stop) => Some(format!("{stop:?}")),
        Ok(()) => None,
    }
}

#[test]
fn a_writer_that_was_taken_over_makes_no_edit_and_no_deletion() {
    for jobs in 0..4 {
        assert_eq!(takeover(Bug::None, jobs), None);
        assert!(takeover(Bug::UncheckedFence, jobs).is_some(), "the planted bug was not found");
    }
}
