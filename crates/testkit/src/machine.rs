//! A simulated machine: a file system, and persistent memory where it has some.

use std::any::Any;
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::Location;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::lines::Lines;
use super::memory::SimPm;
use super::pages::Pages;
use super::power::{Cut, Power};
use super::seen::ReadLog;
use super::{
    Call, CallSite, Fault, Faulty, HeldCalls, Reached, ReadFaults, SimFiles, SimLock, Survive,
    Trace,
};

/// A machine whose power can be cut.
///
/// Clones are the same machine.
#[derive(Clone, Debug)]
pub struct Machine {
    files: Arc<SimFiles>,
    /// Set once the region is created; `None` on a machine without persistent memory.
    memory: Option<Arc<OnceLock<Arc<SimPm>>>>,
}

impl Machine {
    /// A machine without persistent memory: the region lives in a file.
    pub fn with_files() -> Machine {
        Machine::of(SimFiles::new(), None)
    }

    /// A machine with persistent memory.
    pub fn with_memory() -> Machine {
        Machine::of(SimFiles::new(), Some(Arc::default()))
    }

    /// The same with databases that keep the index of level 0 there or do not, from now on.
    #[must_use]
    pub fn index(self, persistent: bool) -> Machine {
        self.files.state.lock().has_index = persistent;
        self
    }

    /// The same with databases that are opened with this option of theirs, from now on.
    #[must_use]
    pub fn option(self, option: impl Any + Send + Sync) -> Machine {
        self.files.state.lock().option = Some(Arc::new(option));
        self
    }

    /// The option that they are opened with, if it is of this type.
    pub fn option_of<T: Any + Copy>(&self) -> Option<T> {
        let option = self.files.state.lock().option.clone()?;
        option.downcast_ref().copied()
    }

    /// The same machine with an object store in reach. A machine that comes up after an end of it
    /// has a copy of the store in reach, as it was at that moment.
    #[must_use]
    pub fn with_store(self, store: &(impl Reached + Clone + 'static)) -> Machine {
        self.files.reach(Arc::new(store.clone()));
        self
    }

    /// Where the object store is that it reaches, if it reaches one.
    pub fn store_url(&self) -> Option<String> {
        self.files.state.lock().reaches.as_ref().map(|store| store.url())
    }

    /// Whether they keep the index there.
    pub fn has_index(&self) -> bool {
        self.files.state.lock().has_index
    }

    fn of(files: Arc<SimFiles>, memory: Option<Arc<OnceLock<Arc<SimPm>>>>) -> Machine {
        files.power.drive(&files, memory.as_ref());
        Machine { files, memory }
    }

    fn power(&self) -> &Arc<Power> {
        &self.files.power
    }

    /// The machine as it comes up after a power cut now. This one goes on running.
    #[must_use]
    pub fn crash(&self, survive: Survive) -> Machine {
        Machine::after(&self.files, self.memory.as_ref(), Cut::Power(survive))
    }

    /// The machine as a new process finds it after the running one was killed: all that was
    /// written is there, and nothing is durable that was not. This one goes on running.
    #[must_use]
    pub fn kill(&self) -> Machine {
        Machine::after(&self.files, self.memory.as_ref(), Cut::Process)
    }

    /// The files of the machine, as another process finds them, on one without persistent memory.
    #[must_use]
    pub fn files_alone(&self) -> Machine {
        Machine::after(&self.files, None, Cut::Process).index(false)
    }

    pub(super) fn after(
        files: &Arc<SimFiles>,
        memory: Option<&Arc<OnceLock<Arc<SimPm>>>>,
        cut: Cut,
    ) -> Machine {
        // Files stand still while memory is looked at: the cut is one instant for both.
        let state = files.state.lock();
        let found = SimFiles::over(match cut {
            Cut::Power(survive) => state.after_crash(survive),
            Cut::Process => state.after_kill(),
        });
        let memory = memory.map(|memory| {
            let after = OnceLock::new();
            if let Some(pm) = memory.get() {
                let power = Arc::clone(&found.power);
                after.get_or_init(|| match cut {
                    Cut::Power(survive) => pm.crash(survive, power),
                    Cut::Process => pm.kill(power),
                });
            }
            Arc::new(after)
        });
        Machine::of(found, memory)
    }

    /// Plans a power cut just before the n-th step from now takes effect, where a step is a sync
    /// of a file or directory or a fence of the persistent memory; see [`Machine::found`].
    pub fn cut_before(&self, n: u64, survive: Survive) {
        self.power().plan(n, Cut::Power(survive));
    }

    /// Plans the death of the process, as [`Machine::cut_before`] a power cut.
    pub fn kill_before(&self, n: u64) {
        self.power().plan(n, Cut::Process);
    }

    /// The machine as the planned end left it, once it has come.
    pub fn found(&self) -> Option<Machine> {
        self.power().found()
    }

    /// From now on ordinary stores to the persistent memory survive a cut as any subset of their
    /// words, as on Arm, not as prefixes of each line.
    pub fn arm(&self) {
        if let Some(pm) = self.memory.as_ref().and_then(|m| m.get()) {
            pm.arm();
        }
    }

    /// Records every store, flush and fence of the persistent memory and every change of files
    /// from now on, for an [`Explorer`](super::Explorer).
    pub fn record(&self) {
        match &self.memory {
            Some(memory) => memory.get().into_iter().for_each(|pm| pm.record()),
            None => self.power().record(),
        }
    }

    /// Notes in the recording that an operation was acknowledged.
    #[track_caller]
    pub fn mark(&self) {
        match &self.memory {
            Some(memory) => memory.get().into_iter().for_each(|pm| pm.mark()),
            None => self.power().mark(Location::caller()),
        }
    }

    /// Ends the recording; `None` when there was none.
    pub fn recorded(&self) -> Option<Trace> {
        match &self.memory {
            Some(memory) => memory.get()?.recorded(),
            None => self.power().recorded(),
        }
    }

    /// A machine without persistent memory that comes up with these files.
    pub(super) fn with(files: Arc<SimFiles>) -> Machine {
        Machine::of(files, None)
    }

    /// A machine that comes up with these bytes in its persistent memory.
    pub(super) fn holding(bytes: Pages, arm: bool, files: Arc<SimFiles>) -> Machine {
        let memory = OnceLock::new();
        let pm = SimPm::holding(Lines::durable(bytes), arm, Arc::clone(&files.power));
        memory.get_or_init(|| pm);
        Machine::of(files, Some(Arc::new(memory)))
    }

    /// Notes from now on what is read of the persistent memory, and of what comes of it.
    pub(super) fn log_reads(&self) -> ReadLog {
        let pm = self.memory.as_ref().and_then(|memory| memory.get());
        let log = pm.map_or_else(ReadLog::default, |pm| ReadLog::of(pm.len()));
        pm.into_iter().for_each(|pm| pm.log_reads(&log));
        log
    }

    /// Asks which lines of the persistent memory were looked at from now on, by their offsets.
    pub fn watch_reads(&self) -> impl Fn() -> Vec<u64> + use<> {
        let log = self.log_reads();
        move || log.lines().offsets()
    }

    /// Lets reads of files go wrong from now on, or no more; how many did since the last call.
    pub fn fault_reads(&self, faults: Option<ReadFaults>) -> u64 {
        self.files.fault_reads(faults)
    }

    /// How many syncs and fences there were.
    pub fn steps(&self) -> u64 {
        self.power().steps()
    }

    /// Holds up reads of files whose names end so.
    #[must_use]
    pub fn hold_reads(&self, ending: &str) -> HeldCalls {
        self.power().holds.hold(Call::Read, ending)
    }

    /// Holds up syncs of files whose names end so.
    #[must_use]
    pub fn hold_syncs(&self, ending: &str) -> HeldCalls {
        self.power().holds.hold(Call::Sync, ending)
    }

    /// Holds up writes to files whose names end so.
    #[must_use]
    pub fn hold_writes(&self, ending: &str) -> HeldCalls {
        self.power().holds.hold(Call::Write, ending)
    }

    /// How many calls would have changed a file of a directory after the opening that they were of
    /// had given its lock back, and how many have changed a name there while no opening had the
    /// lock. The first fail.
    pub fn late_changes(&self) -> u64 {
        self.files.state.lock().given_back.late
    }

    /// The lock of a database in a directory.
    pub fn lock(&self, directory: &Path) -> SimLock {
        self.files.state.lock().given_back.take(directory);
        SimLock { state: Arc::clone(&self.files.state), directory: directory.to_path_buf() }
    }

    /// Bytes of a file cannot be read from now on.
    pub fn make_unreadable(&self, path: impl AsRef<Path>, place: Range<u64>) {
        self.files.make_unreadable(path.as_ref(), place);
    }

    /// The n-th sync of a file from now fails; what it should have made durable is dropped.
    pub fn fail_sync_after(&self, n: u64) {
        self.files.fail_sync_after(n);
    }

    /// The n-th write to a file from now fails; of its bytes those in the sectors before
    /// its middle arrive.
    pub fn fail_write_after(&self, n: u64) {
        self.files.fail_write_after(n);
    }

    /// Whether the write that is to fail is still to come.
    pub fn write_will_fail(&self) -> bool {
        self.files.state.lock().faults.expects(Faulty::AnyWrite)
    }

    /// Plans a failure, beside those that are planned already.
    pub fn fail(&self, fault: Fault) {
        self.files.fail(fault);
    }

    /// Forgets what is planned, and gives files space again.
    pub fn mend(&self) {
        let mut state = self.files.state.lock();
        state.faults.clear();
        state.capacity = None;
    }

    /// How often each call was made so far.
    pub fn calls(&self) -> BTreeMap<CallSite, u64> {
        self.files.state.lock().faults.calls()
    }

    /// How often each call has failed so far as planned.
    pub fn failed_calls(&self) -> BTreeMap<CallSite, u64> {
        self.files.state.lock().faults.failed()
    }

    /// Bounds the bytes that files may take.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.files.set_capacity(bytes);
    }

    /// Whether they are bounded.
    pub fn is_bounded(&self) -> bool {
        self.files.state.lock().capacity.is_some()
    }

    /// How many syncs of files there were.
    pub fn syncs(&self) -> u64 {
        self.files.syncs()
    }

    /// The files in a directory, by name, and how long they are.
    pub fn list(&self, directory: &Path) -> Vec<(String, u64)> {
        let state = self.files.state.lock();
        let mut names = state.names.list(directory);
        names.sort();
        let len = |name: &String| state.files.get(&state.names.get(&directory.join(name))?);
        names.iter().filter_map(|name| Some((name.clone(), len(name)?.len()))).collect()
    }

    /// The length of a file without the zeros at its end; 0 for one that is not there. Space that
    /// was allocated ahead is such zeros.
    pub fn len_without_zeros(&self, path: &Path) -> u64 {
        const BLOCK: u64 = 4096;
        let state = self.files.state.lock();
        let content = state.names.get(path).and_then(|id| state.files.get(&id));
        let Some(content) = content else { return 0 };
        let mut buffer = [0; BLOCK as usize];
        let mut ends = (0..content.len().div_ceil(BLOCK)).rev().filter_map(|block| {
            let read = content.read(&mut buffer, block * BLOCK);
            let last = buffer[..read].iter().rposition(|byte| *byte != 0)?;
            Some(block * BLOCK + last as u64 + 1)
        });
        ends.next().unwrap_or(0)
    }

    /// The bytes of a file, as a running program reads them; none for one that is not there.
    pub fn contents(&self, path: &Path) -> Vec<u8> {
        let state = self.files.state.lock();
        let content = state.names.get(path).and_then(|id| state.files.get(&id));
        let Some(content) = content else { return Vec::new() };
        let mut bytes = vec![0; content.len() as usize];
        let read = content.read(&mut bytes, 0);
        bytes.truncate(read);
        bytes
    }

    /// A hash of the names and bytes of all files under a path, as a running program reads them.
    pub fn digest(&self, under: &Path) -> u128 {
        self.files.digest(under)
    }

    /// Flips bits of one byte: of a file, or of the persistent memory for the path `region`.
    pub fn corrupt(&self, path: &Path, offset: u64, xor: u8) {
        let pm = self.memory.as_ref().and_then(|m| m.get());
        match pm {
            Some(pm) if path.ends_with("region") => pm.corrupt(offset, xor),
            _ => self.files.corrupt(path, offset, xor),
        }
    }

    /// The files.
    pub fn files(&self) -> Arc<SimFiles> {
        Arc::clone(&self.files)
    }

    /// Where the persistent memory is, or is going to be.
    pub fn memory(&self) -> Option<&OnceLock<Arc<SimPm>>> {
        self.memory.as_deref()
    }

    /// The persistent memory, made with `len` bytes where there is none yet; `None` on a machine
    /// that has none.
    pub fn make_memory(&self, len: u64) -> Option<Arc<SimPm>> {
        let memory = self.memory()?;
        let pm = memory.get_or_init(|| SimPm::new(len, Arc::clone(self.power())));
        Some(Arc::clone(pm))
    }
}
