//! Random histories over a writer, two followers, a standby and takeovers on one store. Requests
//! and calls of files fail, lists are old, writers are paused and wake up, followers go away and
//! are forgotten, and the power of each machine is cut, in the midst of its work too. After each
//! step each node shows a state of the writers' order, nothing that was remote is lost, and nothing
//! void is read. `TERRACE_LONG=1` tries more seeds, `TERRACE_SEED` says which is the first one;
//! `TERRACE_IMAGES` goes on until so many states of nodes were looked at.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::nodes::{FAULTS, again, catch_up, visible};
use super::{
    Content, WORK, content, force_checkpoint, key, make_tables, of_machine, writer_options,
};
use crate::common::cuts::PATH;
use crate::common::{Chance, alone, rounds};
use terrace::testing::{Failpoint, Fault, Faulty, Machine, Survive};
use terrace::{
    Database, Durability, ErrorKind, Follower, ObjectServer, Options, Standby, StoreFault,
};

type History = BTreeMap<u64, Content>;

/// What reads the log.
enum Reader {
    Follower(Follower),
    Standby(Standby),
}

impl Reader {
    fn step(&self) -> terrace::Result<bool> {
        match self {
            Reader::Follower(node) => node.step(),
            Reader::Standby(node) => node.step(),
        }
    }

    fn database(&self) -> terrace::Result<Database> {
        match self {
            Reader::Follower(node) => node.database(),
            Reader::Standby(node) => node.database(),
        }
    }

    /// What it shows, and at which commit. `None` of one that was forgotten, until there is a newer
    /// checkpoint.
    fn shown(&self) -> Result<Option<(Content, u64)>, String> {
        let read = || self.database().and_then(|db| content(&db));
        // A follower that was away for too long says so, and is asked again.
        let shown = read().or_else(|error| match error.kind() {
            ErrorKind::Unavailable => read(),
            _ => Err(error),
        });
        let status = match self {
            Reader::Follower(node) => node.status(),
            Reader::Standby(node) => node.status(),
        };
        match shown {
            Ok(shown) => Ok(Some((shown, status.commit))),
            Err(error) if error.to_string().contains("is older than what the follower") => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// A reader's machine.
struct ReaderPlace {
    machine: Machine,
    reader: Reader,
    reads: ReadsAs,
    /// It only grows, but for power cuts.
    watermark: u64,
    /// After a cut it may have one table event more than its commit says, until it has the next.
    cut_at: Option<u64>,
}

/// Checkpoints come after so many bytes of segments, in every other history.
fn checkpointed(options: Options, seed: u64) -> Options {
    if seed.is_multiple_of(2) { options.checkpoint_bytes(4 << 10) } else { options }
}

/// All machines.
struct World {
    seed: u64,
    server: ObjectServer,
    bug: Option<Failpoint>,
    machine: Machine,
    /// That of the writer: each has its own.
    path: String,
    db: Database,
    paused: Vec<Database>,
    readers: Vec<ReaderPlace>,
    history: Arc<Mutex<History>>,
    /// The last commit that was acknowledged as remote.
    remote: Arc<Mutex<u64>>,
    round: u64,
    images: u64,
    chance: Chance,
}

fn any_survive(chance: &mut Chance) -> Survive {
    [Survive::Nothing, Survive::Everything][chance.below(2) as usize]
}

/// What a machine reads for.
#[derive(Clone, Copy)]
enum ReadsAs {
    Follower,
    /// One that has a bound, and reads data in the store.
    Far,
    Standby,
}

fn read(server: &ObjectServer, machine: &Machine, reads: ReadsAs) -> Result<Reader, String> {
    let url = server.url();
    again(|| {
        let options = of_machine(machine, None);
        match reads {
            ReadsAs::Standby => options.standby(url, "/reader").map(Reader::Standby),
            ReadsAs::Follower => options.follow(url, "/reader").map(Reader::Follower),
            ReadsAs::Far => {
                let options = options.object_cache(100 << 10).follower_name("far");
                options.follow(url, "/reader").map(Reader::Follower)
            }
        }
    })
}

impl World {
    fn new(seed: u64, bug: Option<Failpoint>) -> Result<World, String> {
        let (server, machine) = (ObjectServer::new(), Machine::with_files());
        let options = checkpointed(writer_options(&machine, &server, bug), seed);
        let db = again(|| options.clone().open(PATH))?;
        let history: Arc<Mutex<History>> = Arc::default();
        let note = || drop(history.lock().insert(visible(&db), content(&db).unwrap()));
        note();
        make_tables(&db, &note);
        catch_up(|| db.step())?;
        let mut readers = Vec::new();
        for reads in [ReadsAs::Follower, ReadsAs::Far, ReadsAs::Standby] {
            let machine = Machine::with_files();
            let reader = read(&server, &machine, reads)?;
            readers.push(ReaderPlace { machine, reader, reads, watermark: 0, cut_at: None });
        }
        Ok(World {
            seed,
            server,
            bug,
            machine,
            path: PATH.to_string(),
            db,
            paused: Vec::new(),
            readers,
            history,
            remote: Arc::default(),
            round: 0,
            images: 0,
            chance: Chance::new(seed),
        })
    }

    /// One of the things that happen.
    fn act(&mut self) -> Result<(), String> {
        let what = self.chance.below(33);
        match what {
            0..8 => self.work(),
            8..11 => drop(self.db.step()),
            11 => self.server.plan(
                self.server.requests() + 1 + self.chance.below(12),
                FAULTS[self.chance.below(FAULTS.len() as u64) as usize],
            ),
            12..16 => {
                let n = self.chance.below(3) as usize;
                for _ in 0..1 + self.chance.below(8) {
                    drop(self.readers[n].reader.step());
                }
            }
            16 => self.cut_reader()?,
            17 => self.cut_writer()?,
            18 => self.wake_paused()?,
            19 => self.take_over()?,
            22 | 23 => self.go_away()?,
            24 => {
                let forgotten = of_machine(&Machine::with_files(), None);
                drop(forgotten.forget_follower(self.server.url(), "far"));
            }
            25 | 26 => {
                let (next, old) = (self.server.requests() + 1, 1 + self.chance.below(60));
                (next..next + 80).for_each(|n| self.server.plan(n, StoreFault::Stale(old)));
            }
            27 => self.fail_reader()?,
            28 => self.fail_writer()?,
            29..32 => self.drain(),
            32 => self.churn()?,
            _ => self.look_cold()?,
        }
        self.check_readers()
    }

    /// Some keys of a table go to levels.
    fn drain(&mut self) {
        let name = ["t", "counted", "both", "prepared"][self.chance.below(4) as usize];
        let from = self.chance.below(60);
        let keys = key(from)..key(from + 1 + self.chance.below(40));
        let Ok(table) = self.db.existing_table(name) else { return };
        drop(match self.chance.below(3) {
            0 => self.db.compact_range(&table, ..),
            _ => self.db.compact_range(&table, keys),
        });
    }

    /// No image is taken meanwhile: a takeover reads values in the store for it.
    fn note(&self) {
        self.history.lock().insert(visible(&self.db), content(&self.db).unwrap());
    }

    /// A few commits, the last one remote now and then.
    fn work(&mut self) {
        self.round += 1;
        let n = self.chance.below(WORK.len() as u64);
        let step = WORK[n as usize];
        // It may fail where the store does, and then it is noted as far as it came.
        drop(step(&self.db, self.round * 10 + n, &|| self.note()));
        self.note();
        if self.chance.below(3) == 0 {
            let Ok(table) = self.db.existing_table("remote") else { return };
            let row = format!("{}", self.round);
            let mut with = content(&self.db).unwrap();
            with.get_mut("remote").unwrap().insert(row.clone().into(), b"kept".to_vec());
            self.history.lock().insert(visible(&self.db) + 1, with);
            if table.durability(Durability::Remote).put(&row, "kept").is_ok() {
                *self.remote.lock() = visible(&self.db);
            }
        }
    }

    /// Zones die, beside a store that is away at times, and has all once it is back.
    fn churn(&mut self) -> Result<(), String> {
        let fault = (self.chance.below(2) == 0).then_some(StoreFault::Refuse);
        let rows = 20 + self.chance.below(100);
        for n in 0..rows {
            let Ok(table) = self.db.existing_table("both") else { break };
            let value = Chance::new(n).bytes(20_000);
            self.server.always(fault);
            let done = table.durability(Durability::Relaxed).put([n as u8 % 3], value);
            drop(self.db.step());
            self.server.always(None);
            if done.is_ok() {
                self.note();
            }
        }
        match fault {
            Some(_) => catch_up(|| self.db.step()).map_err(|e| format!("the store is back: {e}")),
            None => Ok(()),
        }
    }

    /// Each reader shows the state of its commit.
    fn check_readers(&mut self) -> Result<(), String> {
        let history = self.history.lock();
        for (n, place) in self.readers.iter_mut().enumerate() {
            let shown = place.reader.shown().map_err(|e| format!("reader {n}: {e}"))?;
            let Some((shown, commit)) = shown else { continue };
            if commit < place.watermark {
                return Err(format!("reader {n} went back from {} to {commit}", place.watermark));
            }
            place.watermark = commit;
            let (at, expected) = history.range(..=commit).next_back().ok_or("before the first")?;
            place.cut_at = place.cut_at.filter(|at| *at == 0 || *at == commit).map(|_| commit);
            let next = history.range(commit + 1..).next().filter(|_| place.cut_at.is_some());
            if shown != *expected && next.is_none_or(|(_, next)| *next != shown) {
                let differs = |name: &&String| shown.get(*name) != expected.get(*name);
                let tables: Vec<&String> =
                    shown.keys().chain(expected.keys()).filter(differs).collect();
                return Err(format!("reader {n} at {commit} has others {tables:?} than {at} has"));
            }
            self.images += 1;
        }
        Ok(())
    }

    /// The power of a reader is cut, maybe while it applies.
    fn cut_reader(&mut self) -> Result<(), String> {
        let n = self.chance.below(3) as usize;
        let survive = any_survive(&mut self.chance);
        let steps = self.chance.below(6);
        let place = &mut self.readers[n];
        place.machine.cut_before(1 + self.chance.below(12), survive);
        for _ in 0..steps {
            drop(place.reader.step());
        }
        let found = place.machine.found();
        place.machine = found.unwrap_or_else(|| place.machine.crash(survive));
        place.reader = read(&self.server, &place.machine, place.reads)?;
        (place.watermark, place.cut_at) = (0, Some(0));
        Ok(())
    }

    /// A reader goes away while the writer goes on, maybe for more checkpoints than are kept.
    fn go_away(&mut self) -> Result<(), String> {
        let (n, away) = (self.chance.below(3) as usize, self.chance.below(22));
        let place = self.readers.remove(n);
        drop(place.reader);
        for _ in 0..away {
            if self.chance.below(3) == 0 {
                self.work();
            }
            force_checkpoint(&self.db);
            self.note();
            for _ in 0..4 {
                drop(self.db.step());
            }
        }
        let reader = read(&self.server, &place.machine, place.reads)?;
        self.readers.insert(n, ReaderPlace { reader, ..place });
        Ok(())
    }

    /// A write or a sync of a reader's machine fails, maybe while it applies. It is opened again.
    fn fail_reader(&mut self) -> Result<(), String> {
        let n = self.chance.below(3) as usize;
        let of = [Faulty::AnyWrite, Faulty::AnySync][self.chance.below(2) as usize];
        let (nth, steps) = (1 + self.chance.below(12), 1 + self.chance.below(6));
        let survive = any_survive(&mut self.chance);
        let place = &mut self.readers[n];
        place.machine.fail(Fault::once(of, nth));
        for _ in 0..steps {
            drop(place.reader.step());
        }
        place.machine.mend();
        place.machine =
            if nth.is_multiple_of(2) { place.machine.kill() } else { place.machine.crash(survive) };
        place.reader = read(&self.server, &place.machine, place.reads)?;
        (place.watermark, place.cut_at) = (0, Some(0));
        Ok(())
    }

    /// A sync of the writer's machine fails while it ships and moves records, maybe. It is opened
    /// again.
    fn fail_writer(&mut self) -> Result<(), String> {
        let survive = any_survive(&mut self.chance);
        let nth = 1 + self.chance.below(8);
        self.machine.fail(Fault::once(Faulty::AnySync, nth));
        for _ in 0..8 {
            drop(self.db.step());
        }
        self.machine.mend();
        self.machine =
            if nth.is_multiple_of(2) { self.machine.kill() } else { self.machine.crash(survive) };
        self.server.forget_plans();
        self.server.deliver();
        let options = writer_options(&self.machine, &self.server, self.bug);
        let options = checkpointed(options, self.seed);
        self.db =
            again(|| options.clone().open(&self.path)).map_err(|e| format!("the writer: {e}"))?;
        self.found_writer("the writer after a failed sync", false)
    }

    /// The power of the writer is cut, maybe at a request. It comes up with a state that has all
    /// that was remote, and goes on from there.
    fn cut_writer(&mut self) -> Result<(), String> {
        let at = self.chance.below(8);
        let survive = any_survive(&mut self.chance);
        let image = Arc::new(Mutex::new(None));
        let (into, of, machine) = (Arc::clone(&image), self.server.clone(), self.machine.clone());
        let (known, remote) = (Arc::clone(&self.history), Arc::clone(&self.remote));
        let came = std::sync::atomic::AtomicU64::new(0);
        self.server.watch(Some(Box::new(move |_, _| {
            let came = came.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let Some(history) = known.try_lock() else { return };
            if came >= at && into.lock().is_none() {
                let history = history.clone();
                *into.lock() = Some((machine.crash(survive), of.copy(), history, *remote.lock()));
            }
        })));
        self.work();
        drop(self.db.step());
        self.server.watch(None);
        match image.lock().take() {
            None => self.machine = self.machine.crash(survive),
            Some((machine, server, history, remote)) => {
                (self.machine, self.server) = (machine, server);
                (*self.history.lock(), *self.remote.lock()) = (history, remote);
                self.paused.clear();
                for place in &mut self.readers {
                    place.machine = place.machine.crash(Survive::Everything);
                    place.reader = read(&self.server, &place.machine, place.reads)?;
                }
            }
        }
        self.server.forget_plans();
        self.server.deliver();
        let options = writer_options(&self.machine, &self.server, self.bug);
        let options = checkpointed(options, self.seed);
        self.db =
            again(|| options.clone().open(&self.path)).map_err(|e| format!("the writer: {e}"))?;
        self.found_writer("the writer after a cut", false)
    }

    /// A writer has begun: what it has becomes the end of the history. A takeover has what the log
    /// has; a writer that was cut may have more.
    fn found_writer(&mut self, who: &str, takes_over: bool) -> Result<(), String> {
        let found = content(&self.db).map_err(|error| error.to_string())?;
        let status = of_machine(&Machine::with_files(), None).shared_status(self.server.url());
        let end = status.map_err(|error| error.to_string())?.commit;
        let (mut history, remote) = (self.history.lock(), *self.remote.lock());
        let shipped = history.range(..=end).next_back().map_or(0, |(at, _)| *at);
        let mut states = history.range(shipped..);
        let at = match takes_over {
            true => states.next().filter(|(_, state)| **state == found),
            false => states.find(|(_, state)| **state == found),
        };
        let Some(at) = at.map(|(at, _)| *at) else {
            return Err(format!("{who} has another state than that of {end}"));
        };
        if takes_over && end < remote {
            return Err(format!("{who} has {end}, and {remote} was remote"));
        }
        if !history.range(remote..).any(|(_, state)| *state == found) {
            return Err(format!("{who} has {at}, and {remote} was remote"));
        }
        drop(history.split_off(&(at + 1)));
        history.insert(visible(&self.db).max(at), found);
        self.images += 1;
        Ok(())
    }

    /// Another machine takes over, or the standby does. The writer is only paused.
    fn take_over(&mut self) -> Result<(), String> {
        self.server.forget_plans();
        let promotes = self.chance.below(3) == 0;
        let machine = Machine::with_files();
        self.path = format!("/taken {}", self.round);
        self.round += 1;
        let db = if promotes {
            let place = self.readers.remove(2);
            let Reader::Standby(standby) = place.reader else { return Err("no standby".into()) };
            let db = standby.promote().map_err(|e| format!("no promotion: {e}"))?;
            self.machine = Machine::with_files();
            db
        } else {
            self.machine = machine;
            let options = checkpointed(of_machine(&self.machine, self.bug), self.seed);
            again(|| options.clone().open_shared(self.server.url(), &self.path))?
        };
        self.paused.push(std::mem::replace(&mut self.db, db));
        self.found_writer("a takeover", true)?;
        if promotes {
            // The next one takes its place; the promoted database moves to an empty machine.
            self.machine = Machine::with_files();
            let options = checkpointed(of_machine(&self.machine, self.bug), self.seed);
            let db = again(|| options.clone().open_shared(self.server.url(), &self.path))?;
            self.paused.push(std::mem::replace(&mut self.db, db));
            self.found_writer("a takeover of a promoted one", true)?;
            let machine = Machine::with_files();
            let reads = ReadsAs::Standby;
            let reader = read(&self.server, &machine, reads)?;
            self.readers.push(ReaderPlace { machine, reader, reads, watermark: 0, cut_at: None });
        }
        Ok(())
    }

    /// Looks at copies of machines that have lost their power, and with it all that they had read:
    /// what they show is in the store. So is what a takeover needs.
    fn look_cold(&mut self) -> Result<(), String> {
        let server = self.server.copy();
        let cold = |place: &ReaderPlace| {
            let machine = place.machine.crash(Survive::Everything);
            read(&server, &machine, place.reads)?.shown()
        };
        let (history, mut shown) = (self.history.lock(), Vec::new());
        for (n, place) in self.readers.iter().enumerate() {
            let found = cold(place).map_err(|e| format!("reader {n} after a cut: {e}"))?;
            shown.extend(found.map(|(shown, _)| shown));
        }
        let again = writer_options(&self.machine.crash(Survive::Everything), &server, None);
        let writer = again.open(&self.path).map_err(|e| format!("the writer after a cut: {e}"))?;
        shown.push(content(&writer).map_err(|e| format!("the writer after a cut: {e}"))?);
        let taken = of_machine(&Machine::with_files(), None).open_shared(server.url(), PATH);
        let taken = taken.and_then(|db| content(&db));
        shown.push(taken.map_err(|e| format!("a takeover of a copy: {e}"))?);
        self.images += shown.len() as u64;
        let is_known = |state: &Content| history.values().any(|known| known == state);
        match shown.iter().position(|state| !is_known(state)) {
            Some(n) => Err(format!("copy {n} of a machine shows a state of no commit")),
            None => Ok(()),
        }
    }

    /// A writer that was taken over wakes up: it acknowledges nothing.
    fn wake_paused(&mut self) -> Result<(), String> {
        let Some(db) = self.paused.pop() else { return Ok(()) };
        let put = db.existing_table("remote");
        let put = put.and_then(|table| table.durability(Durability::Remote).put("void", "void"));
        drop(db.step());
        match put {
            Ok(()) => Err("a writer that was taken over has acknowledged a commit".to_string()),
            Err(_) => Ok(()),
        }
    }

    /// All catch up, and show the same.
    fn end(&mut self) -> Result<(), String> {
        self.server.forget_plans();
        self.server.deliver();
        // For a follower that was forgotten, and reads what is deleted.
        force_checkpoint(&self.db);
        catch_up(|| self.db.step())?;
        self.note();
        let expected = content(&self.db).unwrap();
        for (n, place) in self.readers.iter().enumerate() {
            catch_up(|| place.reader.step()).map_err(|e| format!("reader {n}: {e}"))?;
            if place.reader.shown()?.is_none_or(|(shown, _)| shown != expected) {
                return Err(format!("reader {n} does not come to what the writer has"));
            }
        }
        self.check_readers()
    }
}

/// A history: how many states were looked at, or what is wrong.
fn run(seed: u64, bug: Option<Failpoint>) -> Result<u64, String> {
    let mut world = World::new(seed, bug)?;
    for n in 0..24 {
        world.act().map_err(|wrong| format!("seed {seed}, step {n}: {wrong}"))?;
    }
    world.end().map_err(|wrong| format!("seed {seed}, at the end: {wrong}"))?;
    Ok(world.images)
}

#[test]
fn random_histories_show_one_order() {
    let _turn = alone();
    let wanted = std::env::var("TERRACE_IMAGES").ok().and_then(|n| n.parse().ok());
    let first = std::env::var("TERRACE_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    let (mut images, mut seed) = (0, first);
    while seed < first + rounds(6, 400) || wanted.is_some_and(|wanted: u64| images < wanted) {
        match run(seed, None) {
            Ok(looked) => images += looked,
            Err(wrong) => panic!("{wrong}"),
        }
        seed += 1;
    }
    assert!(images > (seed - first) * 40, "{images} states of {seed} seeds");
}

#[test]
fn random_histories_find_planted_bugs() {
    let _turn = alone();
    let bugs = [
        Failpoint::IgnoreClaims,
        Failpoint::NameUnsentExtent,
        Failpoint::ForgetPrepares,
        Failpoint::ForgetLevel0,
        Failpoint::ReleaseUnshipped,
    ];
    for bug in bugs {
        // An assertion may find it too.
        let finds = |seed| !matches!(std::panic::catch_unwind(|| run(seed, Some(bug))), Ok(Ok(_)));
        assert!((0..rounds(60, 200)).any(finds), "{bug:?} was not found");
    }
}

/// A checkpoint names an extent that was not sent: a takeover that starts from it misses it.
#[test]
fn an_extent_that_was_not_sent_is_found_missing() {
    let _turn = alone();
    let is_missed = |bug| {
        let (server, machine) = (ObjectServer::new(), Machine::with_files());
        let db = writer_options(&machine, &server, bug).open(PATH).unwrap();
        make_tables(&db, &|| ());
        let (_, step) = (0, WORK[8]);
        step(&db, 1, &|| ()).unwrap();
        catch_up(|| db.step()).unwrap();
        let machine = Machine::with_files();
        let second = of_machine(&machine, None).open_shared(server.url(), PATH);
        // It asks for the data when it is read.
        second.and_then(|second| content(&second)).is_err()
    };
    assert!(!is_missed(None));
    assert!(is_missed(Some(Failpoint::NameUnsentExtent)), "the planted bug was not found");
}
