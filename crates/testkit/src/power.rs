//! The power of a simulated machine: what was planned to happen before which sync or fence.
//!
//! Syncs of files, syncs of directories and fences of the persistent memory are counted together,
//! since between two of them nothing becomes durable for certain.

use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

use super::holds::Holds;
use super::memory::SimPm;
use super::trace::{Event, FilesThen, Recorder, Site, Trace};
use super::{Machine, SimFiles, Survive};
use terrace_os::schedule;

/// What is planned, and what came of it.
#[derive(Debug, Default)]
pub(super) struct Power {
    files: OnceLock<Weak<SimFiles>>,
    memory: OnceLock<Weak<OnceLock<Arc<SimPm>>>>,
    steps: AtomicU64,
    /// The number of the step before which the cut comes.
    plan: Mutex<Option<(u64, Cut)>>,
    found: Mutex<Option<Machine>>,
    /// The recording of a machine without persistent memory.
    recorder: Mutex<Option<Recorder>>,
    /// Syncs of files that are held up.
    pub(super) holds: Arc<Holds>,
}

/// What ends a run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cut {
    Power(Survive),
    Process,
}

impl Power {
    /// Ties the power to the machine it drives.
    pub(super) fn drive(&self, files: &Arc<SimFiles>, memory: Option<&Arc<OnceLock<Arc<SimPm>>>>) {
        self.files.get_or_init(|| Arc::downgrade(files));
        if let Some(memory) = memory {
            self.memory.get_or_init(|| Arc::downgrade(memory));
        }
    }

    /// The files of the machine, while it is there.
    pub(super) fn files(&self) -> Option<Arc<SimFiles>> {
        self.files.get()?.upgrade()
    }

    fn pm(&self) -> Option<Arc<SimPm>> {
        self.memory.get()?.upgrade()?.get().cloned()
    }

    /// The files, if they have changed since a recorder saw them.
    pub(super) fn changed_files(&self, seen: Option<u64>) -> Option<FilesThen> {
        let files = self.files()?;
        let changes = files.changes();
        (seen != Some(changes)).then(|| FilesThen { changes, files: files.copy() })
    }

    /// Records from now on, on a machine without persistent memory.
    pub(super) fn record(&self) {
        *self.recorder.lock() = Some(Recorder::of_files());
    }

    /// What was recorded there.
    pub(super) fn recorded(&self) -> Option<Trace> {
        let recorder = self.recorder.lock().take()?;
        let files = self.changed_files(recorder.seen());
        Some(recorder.finish(files))
    }

    /// Notes that something was acknowledged, on a machine without persistent memory.
    pub(super) fn mark(&self, site: &'static Location<'static>) {
        self.note(|| Event::mark(site));
    }

    /// Called before files change, with no lock of the machine held.
    #[track_caller]
    pub(super) fn before_change(&self, site: impl FnOnce() -> Site) {
        schedule::point(schedule::PointKind::File);
        self.note_any(|| Event::file(site()));
    }

    /// Called when a call fails, with no lock of the machine held.
    pub(super) fn note_failure(&self) {
        self.note_any(Event::failure);
    }

    fn note_any(&self, event: impl FnOnce() -> Event) {
        match self.pm() {
            Some(pm) if pm.is_recording() => pm.note(event()),
            Some(_) => {}
            None => self.note(event),
        }
    }

    fn note(&self, event: impl FnOnce() -> Event) {
        let mut recorder = self.recorder.lock();
        if let Some(recorder) = &mut *recorder {
            let files = self.changed_files(recorder.seen());
            recorder.add(event(), files);
        }
    }

    /// Syncs and fences so far.
    pub(super) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Plans a cut before the `n`-th step from now; 1 is the next one.
    pub(super) fn plan(&self, n: u64, cut: Cut) {
        self.found.lock().take();
        *self.plan.lock() = Some((self.steps() + n, cut));
    }

    /// What the planned cut left, once it has come.
    pub(super) fn found(&self) -> Option<Machine> {
        self.found.lock().take()
    }

    /// Called before a sync or a fence takes effect, with no lock of the machine held.
    #[track_caller]
    pub(super) fn before_step(&self) {
        schedule::point(schedule::PointKind::File);
        let step = self.steps.fetch_add(1, Ordering::Relaxed) + 1;
        let struck = self.plan.lock().take_if(|(at, _)| *at <= step);
        if let Some((_, cut)) = struck {
            *self.found.lock() = self.end(cut);
        }
    }

    fn end(&self, cut: Cut) -> Option<Machine> {
        let files = self.files.get()?.upgrade()?;
        let memory = self.memory.get().and_then(Weak::upgrade);
        Some(Machine::after(&files, memory.as_ref(), cut))
    }
}
