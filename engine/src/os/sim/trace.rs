//! What happened to a simulated persistent memory, event by event.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;
use std::thread::ThreadId;

use super::SimFiles;
use super::lines::Lines;

/// One event.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) what: What,
    pub(super) site: &'static Location<'static>,
    thread: ThreadId,
}

/// What an event does.
#[derive(Clone, Debug)]
pub(super) enum What {
    Store { at: u64, bytes: Vec<u8>, streamed: bool },
    Flush { at: u64, len: u64 },
    Fence,
    Mark,
}

impl Event {
    fn new(what: What, site: &'static Location<'static>) -> Event {
        Event { what, site, thread: std::thread::current().id() }
    }

    pub(super) fn store(
        at: u64,
        bytes: Vec<u8>,
        streamed: bool,
        site: &'static Location<'static>,
    ) -> Event {
        Event::new(What::Store { at, bytes, streamed }, site)
    }

    pub(super) fn flush(at: u64, len: u64, site: &'static Location<'static>) -> Event {
        Event::new(What::Flush { at, len }, site)
    }

    pub(super) fn fence(site: &'static Location<'static>) -> Event {
        Event::new(What::Fence, site)
    }

    pub(super) fn mark(site: &'static Location<'static>) -> Event {
        Event::new(What::Mark, site)
    }

    /// Lets it happen again.
    pub(super) fn apply(&self, lines: &mut Lines) {
        match &self.what {
            What::Store { at, bytes, streamed } => lines.store(self.thread, *at, bytes, *streamed),
            What::Flush { at, len } => lines.flush(self.thread, *at, *len),
            What::Fence => lines.fence(self.thread),
            What::Mark => {}
        }
    }

    /// In words: what, where, from where.
    pub(super) fn describe(&self) -> String {
        let what = match &self.what {
            What::Store { at, bytes, streamed } => {
                let how = if *streamed { "streaming store" } else { "store" };
                format!("{how} of {} bytes at {at:#x}", bytes.len())
            }
            What::Flush { at, len } => format!("flush of {len} bytes at {at:#x}"),
            What::Fence => "fence".to_string(),
            What::Mark => "mark".to_string(),
        };
        format!("{what} ({}:{})", self.site.file(), self.site.line())
    }
}

/// A place in the source that stores, flushes or fences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    /// The source file.
    pub file: &'static str,
    /// The line in it.
    pub line: u32,
}

impl Site {
    pub(super) fn of(location: &'static Location<'static>) -> Site {
        Site { file: location.file(), line: location.line() }
    }
}

/// Files after so many changes.
#[derive(Clone, Debug)]
pub(super) struct FilesThen {
    pub(super) changes: u64,
    pub(super) files: Arc<SimFiles>,
}

/// Collects events.
#[derive(Debug)]
pub(super) struct Recorder(Trace);

impl Recorder {
    pub(super) fn new(start: Lines, arm: bool) -> Recorder {
        Recorder(Trace { start, arm, events: Vec::new(), files: Vec::new() })
    }

    /// As of how many changes the files were last seen.
    pub(super) fn seen(&self) -> Option<u64> {
        self.0.files.last().map(|(_, then)| then.changes)
    }

    /// Adds an event, and the files if they have changed before it.
    pub(super) fn add(&mut self, event: Event, files: Option<FilesThen>) {
        self.see(files);
        self.0.events.push(event);
    }

    pub(super) fn finish(mut self, files: Option<FilesThen>) -> Trace {
        self.see(files);
        self.0
    }

    fn see(&mut self, files: Option<FilesThen>) {
        self.0.files.extend(files.map(|files| (self.0.events.len(), files)));
    }
}

/// A recording of a workload: where its memory started, every store, flush, fence and
/// [mark](super::Machine::mark), and the files as they were at each.
#[derive(Clone, Debug)]
pub struct Trace {
    pub(super) start: Lines,
    pub(super) arm: bool,
    pub(super) events: Vec<Event>,
    /// From which event on they are so.
    files: Vec<(usize, FilesThen)>,
}

impl Trace {
    /// How many events there were.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The places in the source that caused events, and how often each did.
    pub fn sites(&self) -> BTreeMap<Site, u64> {
        let mut sites = BTreeMap::new();
        for event in self.events.iter().filter(|e| !matches!(e.what, What::Mark)) {
            *sites.entry(Site::of(event.site)).or_default() += 1;
        }
        sites
    }

    /// The files before the event with this number.
    pub(super) fn files_before(&self, event: usize) -> Option<&Arc<SimFiles>> {
        let at = self.files.partition_point(|(from, _)| *from <= event);
        Some(&self.files[at.checked_sub(1)?].1.files)
    }
}
