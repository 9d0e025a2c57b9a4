//! A thread that is stopped between its ticket and its finish holds up later LSNs, and nothing
//! else: stopped at each step, on both media.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use super::super::Group;
use super::super::floor::Floor;
use super::super::publisher::Goal;
use super::super::sequencer::{Step, stop_at};
use super::Fixture;
use super::rules::first_incarnation;
use crate::base::error::{Error, ErrorKind};
use crate::base::options::Durability::{Durable, Relaxed};
use crate::base::record::Lsn;
use crate::commit::committer::Ticket;
use crate::pm::alloc::Frees;
use terrace_testkit::{Explored, Explorer, Machine, Site, Survive, Trace};

/// How long something that must happen is given to happen.
const LONG: Duration = Duration::from_secs(60);

const STEPS: [Step; 6] =
    [Step::Ticket, Step::Flushed, Step::FloorStored, Step::Fenced, Step::Indexed, Step::Finishing];

/// Commits before the one that carries the floor.
const BEFORE: Lsn = 16;

/// Has this thread, when it comes to `step`, say so and wait until `go` is sent or dropped.
fn stop_here(step: Step, stopped: mpsc::Sender<()>, go: mpsc::Receiver<()>) {
    stop_at(step, move || {
        stopped.send(()).unwrap();
        go.recv().ok();
    });
}

impl Fixture {
    fn ticket(&self, key: &str) -> (Group, Ticket<'_>) {
        let group = self.group(&self.batch(&[(key, "1")]));
        let ticket = self.ticket_of(&group);
        (group, ticket)
    }

    /// Goes the rest of the way, which its ticket is the beginning of.
    fn go_on(&self, (mut group, mut ticket): (Group, Ticket<'_>)) -> Lsn {
        let lsn = ticket.lsn;
        self.committer.fill(&mut group, &mut ticket, Durable);
        self.committer.publisher.wait(lsn, Goal::Durable).unwrap();
        lsn
    }

    fn floor_after_cut(&self) -> (Machine, Lsn) {
        let after = self.machine.crash(Survive::Nothing);
        let (floor, damage) = Floor::load(&self.region_on(&after)).unwrap();
        assert_eq!(damage, None, "no slot is torn by a floor that is on its way");
        (after, floor.lsn)
    }
}

/// Of LSNs 17 to 20, 19 is stopped at `step`: 17 and 18, which took their tickets before it, become
/// visible and durable, and are settled; 20 waits.
fn earlier_ones_return_while_stopped_at(step: Step, dax: bool) {
    let fixture = &Fixture::new(dax);
    (1..=BEFORE).for_each(|lsn| assert_eq!(fixture.commit(&[("before", "1")]), lsn));
    let (ticket_taken, tickets) = mpsc::channel();
    let (stopped, at_step) = mpsc::channel();
    let (go, told_to_go) = mpsc::channel();
    let (begin, told_to_begin) = mpsc::channel::<()>();
    let (done, earlier) = mpsc::channel();
    std::thread::scope(|scope| {
        // Dropped first where an assertion fails: then no thread waits for ever.
        let (go, begin) = (go, begin);
        scope.spawn(move || {
            let both = ["first", "second"].map(|key| fixture.ticket(key));
            ticket_taken.send(()).unwrap();
            told_to_begin.recv().ok();
            both.into_iter().for_each(|one| done.send(fixture.go_on(one)).unwrap());
        });
        tickets.recv_timeout(LONG).expect("both have their tickets");
        scope.spawn(move || {
            let held = fixture.ticket("held");
            stop_here(step, stopped, told_to_go);
            assert_eq!(fixture.go_on(held), BEFORE + 3);
        });
        at_step.recv_timeout(LONG).expect("it comes by the step");
        begin.send(()).unwrap();
        let returned = [(); 2].map(|()| earlier.recv_timeout(LONG));
        assert_eq!(returned, [Ok(BEFORE + 1), Ok(BEFORE + 2)], "{step:?}, dax {dax}");
        let later =
            fixture.committer.enqueue(&mut &fixture.batch(&[("later", "1")]), Durable).unwrap();
        assert_eq!(fixture.committer.sync_floor().unwrap(), BEFORE + 2, "{step:?}, dax {dax}");
        let committer = &fixture.committer;
        assert_eq!((committer.visible(), committer.durable()), (BEFORE + 2, BEFORE + 2));
        // What is settled is on the media, whichever thread carried it there.
        let (after, floor) = fixture.floor_after_cut();
        assert_eq!(floor, BEFORE + 2, "{step:?}, dax {dax}");
        let found = fixture.recover_on(&after, &first_incarnation()).unwrap().last;
        let is_fenced = dax && !matches!(step, Step::Ticket | Step::Flushed | Step::FloorStored);
        assert_eq!(found, if is_fenced { BEFORE + 4 } else { BEFORE + 2 }, "{step:?}, dax {dax}");
        go.send(()).unwrap();
        assert_eq!(later.wait().unwrap(), BEFORE + 4);
    });
    assert_eq!(fixture.committer.sync_floor().unwrap(), BEFORE + 4);
    assert!(fixture.committer.is_floor_current());
    let (after, floor) = fixture.floor_after_cut();
    assert_eq!(floor, BEFORE + 4);
    assert_eq!(fixture.recover_on(&after, &first_incarnation()).unwrap().last, BEFORE + 4);
}

#[test]
fn a_thread_stopped_at_any_step_on_a_file_delays_later_lsns_only() {
    let steps = STEPS.into_iter().filter(|step| *step != Step::FloorStored);
    steps.for_each(|step| earlier_ones_return_while_stopped_at(step, false));
}

#[test]
fn a_thread_stopped_at_any_step_on_persistent_memory_delays_later_lsns_only() {
    STEPS.into_iter().for_each(|step| earlier_ones_return_while_stopped_at(step, true));
}

/// Bug: a thread that was stopped while it carried the floor, between its store and its fence, held
/// up the publisher, and with it every commit before its own. Cause: it kept the floor's mutex
/// until its fence, and the publisher waited for that with its stage taken. Fix: the mutex is
/// free while a floor is on its way; the publisher does not wait for it, and leaves its note to the
/// next run or to a settle.
#[test]
fn who_carries_the_floor_holds_up_no_publisher() {
    earlier_ones_return_while_stopped_at(Step::FloorStored, true);
}

/// Bug: zones could be released before the floor and the words that let them go were on the media.
/// Recovery would then have looked for LSNs below its floor that were gone. Cause: a floor that a
/// run had stored counted as written before the run was. Fix: the writer tells what is pending from
/// what has arrived, and a caller that needs the floor on the media writes it itself.
#[test]
fn a_floor_in_a_run_that_is_not_written_yet_is_not_taken_for_written() {
    let fixture = &Fixture::new(false);
    (1..=BEFORE).for_each(|lsn| assert_eq!(fixture.commit(&[("a", "1")]), lsn));
    let (stopped, at_step) = mpsc::channel();
    let (go, told_to_go) = mpsc::channel();
    std::thread::scope(|scope| {
        let go = go;
        scope.spawn(move || {
            stop_here(Step::FloorInRun, stopped, told_to_go);
            assert_eq!(fixture.commit(&[("b", "1")]), BEFORE + 1);
        });
        at_step.recv_timeout(LONG).expect("the run takes the floor along");
        assert_eq!(fixture.floor_after_cut().1, 0, "it is on its way");
        assert_eq!(fixture.committer.publisher.write_floor().unwrap(), BEFORE);
        assert_eq!(fixture.floor_after_cut().1, BEFORE);
        go.send(()).unwrap();
    });
    assert_eq!(fixture.committer.sync_floor().unwrap(), BEFORE + 1);
}

/// Bug: a drain, or a backup, got a floor below what was visible and durable. Cause: a publisher
/// raises both before it tells the floor writer, and a caller that found all durable in between
/// wrote the floor of before. Fix: the caller takes the syncer, which the publisher has until it
/// has told the floor writer.
#[test]
fn a_floor_that_is_asked_for_covers_what_another_thread_has_just_made_durable() {
    let fixture = &Fixture::new(false);
    (1..=BEFORE).for_each(|lsn| assert_eq!(fixture.commit(&[("a", "1")]), lsn));
    let (stopped, at_step) = mpsc::channel();
    let (go, told_to_go) = mpsc::channel();
    let (answer, floor) = mpsc::channel();
    std::thread::scope(|scope| {
        let go = go;
        scope.spawn(move || {
            stop_here(Step::SaidDurable, stopped, told_to_go);
            assert_eq!(fixture.commit(&[("b", "1")]), BEFORE + 1);
        });
        at_step.recv_timeout(LONG).expect("the publisher has synced its run");
        assert_eq!(fixture.committer.visible(), BEFORE + 1);
        scope.spawn(move || answer.send(fixture.committer.sync_floor().unwrap()).unwrap());
        // It answers at once, or waits for the publisher.
        let at_once = floor.recv_timeout(Duration::from_millis(500)).ok();
        go.send(()).unwrap();
        let floor = at_once.unwrap_or_else(|| floor.recv_timeout(LONG).expect("it goes on"));
        assert_eq!(floor, BEFORE + 1);
    });
}

/// A floor is carried by a thread that is stopped before its fence; two commits that took their
/// tickets before it go on, and then a caller needs the floor on the media. That caller must bring
/// home the one that is on its way before it stores the next. What happened, with a mark for each
/// commit and for the floor.
fn recorded_with_a_floor_on_its_way() -> (Fixture, Trace) {
    let fixture = Fixture::new(true);
    (1..=BEFORE).for_each(|lsn| assert_eq!(fixture.commit(&[("before", "1")]), lsn));
    fixture.machine.record();
    let (stopped, at_step) = mpsc::channel();
    let (go, told_to_go) = mpsc::channel();
    std::thread::scope(|scope| {
        let (go, fixture) = (go, &fixture);
        let both = ["first", "second"].map(|key| fixture.ticket(key));
        scope.spawn(move || {
            let held = fixture.ticket("held");
            stop_here(Step::FloorStored, stopped, told_to_go);
            assert_eq!(fixture.go_on(held), BEFORE + 3);
            fixture.machine.mark();
        });
        at_step.recv_timeout(LONG).expect("it carries the floor");
        for one in both {
            fixture.go_on(one);
            fixture.machine.mark();
        }
        assert_eq!(fixture.committer.sync_floor().unwrap(), BEFORE + 2);
        fixture.machine.mark();
        go.send(()).unwrap();
    });
    let trace = fixture.machine.recorded().unwrap();
    (fixture, trace)
}

/// Cuts the power before each store, flush and fence: one slot of the floor is whole, it says what
/// was settled, and every commit that was acknowledged is found.
fn cut_everywhere(explorer: &Explorer, fixture: &Fixture, trace: &Trace) -> Explored {
    // Commits, and the floor, that are owed after so many marks.
    let owed = [(0, 0), (1, 0), (2, 0), (2, BEFORE + 2), (3, BEFORE + 2)];
    let explored = explorer.explore(trace, |machine, moment| {
        let floor = Floor::load(&fixture.region_on(machine));
        let floor = floor.map_err(|e| format!("the floor: {e}"))?.0.lsn;
        let found = fixture.recover_on(machine, &first_incarnation());
        let found = found.map_err(|e| format!("recovery: {e}"))?.last;
        let (commits, settled) = owed[moment.acknowledged];
        match found >= BEFORE + commits && floor >= settled {
            true => Ok(()),
            false => Err(format!("{found} commits, and the floor is {floor}")),
        }
    });
    explored.unwrap_or_else(|violation| panic!("{violation}"))
}

/// The fence that brings home what another thread carries is a place that a thread alone does not
/// come to, hence the simulator does not: this is where it is cut.
#[test]
fn a_floor_that_is_brought_home_leaves_one_slot_whole_wherever_it_is_cut() {
    let (fixture, trace) = recorded_with_a_floor_on_its_way();
    let sites: Vec<Site> = trace.sites().into_keys().collect();
    let explorer = Explorer::new("a floor that another thread carries", 1).most(400);
    for explorer in [explorer.clone(), explorer.arm()] {
        let explored = cut_everywhere(&explorer, &fixture, &trace);
        assert!(explored.sites.keys().eq(&sites), "each place is cut at");
        assert!(explored.checked > 300, "{} images", explored.checked);
    }
    let here = |site: &&Site| site.file.ends_with("commit/pending_floor.rs");
    assert_eq!(sites.iter().filter(here).count(), 4, "two flushes and two fences: {sites:?}");
}

/// Bug: a durable commit behind an enqueued one slept until some other thread came by to publish.
/// Cause: the enqueued one finished its slot last, and its thread went on without a look whether
/// another one slept behind that slot. Fix: a pending commit that no thread waits for looks, and
/// wakes one sleeper to publish.
#[test]
fn an_enqueued_commit_wakes_a_sleeper_behind_it() {
    for (dax, goal) in [(false, Durable), (true, Durable), (false, Relaxed), (true, Relaxed)] {
        let fixture = &Fixture::new(dax);
        let (stopped, at_step) = mpsc::channel();
        let ((go, told_to_go), (done, behind)) = (mpsc::channel(), mpsc::channel());
        std::thread::scope(|scope| {
            let go = go;
            scope.spawn(move || {
                stop_here(Step::Finishing, stopped, told_to_go);
                // Its thread waits for nothing from here on.
                fixture.committer.enqueue(&mut &fixture.batch(&[("first", "1")]), Relaxed).unwrap();
            });
            at_step.recv_timeout(LONG).expect("it is about to finish its slot");
            scope.spawn(move || {
                let batch = fixture.batch(&[("behind", "1")]);
                done.send(fixture.committer.commit(&mut &batch, goal)).unwrap();
            });
            let begun = Instant::now();
            while fixture.committer.publisher.sleepers() == 0 {
                assert!(begun.elapsed() < LONG, "the one behind sleeps");
                std::thread::yield_now();
            }
            go.send(()).unwrap();
            let found = behind.recv_timeout(LONG).map(|lsn| lsn.unwrap());
            // Where it sleeps on, the scope would wait for it.
            fixture.committer.wake_all();
            assert_eq!(found, Ok(2), "{goal:?}, dax {dax}");
        });
    }
}

/// Bug: a durable commit slept until some other commit came. Cause: a thread that took the second
/// stage, and found that another one had just made all of it durable, gave the stage back without a
/// look whether another thread had found it taken meanwhile. Fix: the thread passes on each stage
/// that it has taken.
#[test]
fn a_second_stage_that_was_taken_for_nothing_is_passed_on() {
    let fixture = &Fixture::new(false);
    fixture.commit(&[("first", "1")]);
    fixture.committer.commit(&mut &fixture.batch(&[("second", "1")]), Relaxed).unwrap();
    let publisher = &fixture.committer.publisher;
    let (stopped, at_step) = mpsc::channel();
    let ((go, told_to_go), (done, behind)) = (mpsc::channel(), mpsc::channel());
    std::thread::scope(|scope| {
        let go = go;
        let writer = publisher.writer.lock();
        scope.spawn(move || {
            stop_here(Step::SyncTarget, stopped, told_to_go);
            publisher.wait(2, Goal::Durable).unwrap();
        });
        let begun = Instant::now();
        while !publisher.syncer.is_locked() {
            assert!(begun.elapsed() < LONG, "it takes the second stage");
            std::thread::yield_now();
        }
        publisher.say_durable(2);
        drop(writer);
        at_step.recv_timeout(LONG).expect("it has read up to where its run goes");
        scope.spawn(move || {
            let batch = fixture.batch(&[("behind", "1")]);
            done.send(fixture.committer.commit(&mut &batch, Durable)).unwrap();
        });
        while publisher.sleepers() == 0 {
            assert!(begun.elapsed() < LONG, "the one behind sleeps");
            std::thread::yield_now();
        }
        assert!(!fixture.committer.is_floor_current(), "the background would sync");
        go.send(()).unwrap();
        let found = behind.recv_timeout(LONG).map(|lsn| lsn.unwrap());
        // Where it sleeps on, the scope would wait for it.
        fixture.committer.wake_all();
        assert_eq!(found, Ok(3));
    });
}

/// Bug: after a failure a closing gave the directory's lock back while a commit that had its ticket
/// went on to write to the region, which the next opening used by then. Cause: a closing waited for
/// tickets as commits wait, and that wait ends with the failure. Fix: it waits until each of their
/// threads has finished its slot or died, whatever has failed.
#[test]
fn a_closing_after_a_failure_waits_for_who_has_a_ticket() {
    for (dax, dies) in [(false, false), (true, false), (false, true), (true, true)] {
        for step in STEPS.into_iter().filter(|step| *step != Step::FloorStored) {
            closed_after_a_failure_while_stopped_at(step, dax, dies);
        }
    }
}

fn closed_after_a_failure_while_stopped_at(step: Step, dax: bool, dies: bool) {
    let fixture = &Fixture::new(dax);
    let left = &Arc::new(AtomicBool::new(false));
    let (stopped, at_step) = mpsc::channel();
    let (go, told_to_go) = mpsc::channel();
    std::thread::scope(|scope| {
        let go = go;
        let writer = scope.spawn(move || {
            let (mut group, mut ticket) = fixture.ticket("held");
            let left = Arc::clone(left);
            stop_at(step, move || {
                stopped.send(()).unwrap();
                told_to_go.recv().ok();
                left.store(true, Ordering::SeqCst);
                assert!(!dies, "it dies with its ticket");
            });
            fixture.committer.fill(&mut group, &mut ticket, Durable);
        });
        at_step.recv_timeout(LONG).expect("it comes by the step");
        fixture.committer.stop(&Error::invalid("a failure"));
        let closing = scope.spawn(move || {
            fixture.committer.shut();
            assert!(left.load(Ordering::SeqCst), "a thread still writes: {step:?}, dax {dax}");
        });
        let begun = Instant::now();
        while !fixture.committer.sequencer.lock().is_shut {
            assert!(begun.elapsed() < LONG, "the closing begins");
            std::thread::yield_now();
        }
        (0..100).for_each(|_| std::thread::yield_now());
        let was_early = closing.is_finished();
        go.send(()).unwrap();
        closing.join().unwrap();
        assert!(!was_early);
        assert_eq!(writer.join().is_err(), dies);
    });
    let error = fixture.committer.poison.check().unwrap_err();
    assert!(error.to_string().contains("a failure"), "{error}");
    let written = fixture.region.counts().total(|counts| &counts.flushes);
    assert!(
        fixture.committer.make_standby(0, 1 << 20, Frees::Nothing).is_err(),
        "no zone is linked"
    );
    assert_eq!(fixture.region.counts().total(|counts| &counts.flushes), written);
    assert_eq!(fixture.committer.visible(), 0, "nothing is published after a failure");
}

/// Bug: a thread that was to link a zone did so after the failure, and after the closing where that
/// failed early. Cause: it asked whether the sequencer was shut, and not whether the database had
/// stopped. Fix: it asks for both.
#[test]
fn no_zone_is_linked_after_a_failure() {
    let fixture = Fixture::new(true);
    fixture.committer.stop(&Error::invalid("a failure"));
    let error = fixture.committer.make_standby(0, 1024, Frees::Nothing).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}
