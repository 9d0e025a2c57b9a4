//! What happened to a simulated persistent memory, event by event.

use std::collections::BTreeMap;
use std::panic::Location;
use std::path::Path;
use std::sync::Arc;
use std::thread::ThreadId;

use super::SimFiles;
use super::lines::Lines;
use super::pages::Pages;

/// One event.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) what: What,
    pub(super) site: Site,
    thread: ThreadId,
}

/// What an event does.
#[derive(Clone, Debug)]
pub(super) enum What {
    Store {
        at: u64,
        bytes: Vec<u8>,
        streamed: bool,
    },
    Flush {
        at: u64,
        len: u64,
    },
    Fence,
    /// The memory became so long.
    Grow {
        len: u64,
    },
    /// A file, or a name, changed.
    File,
    /// A call fails.
    Failure,
    Mark,
}

impl Event {
    fn new(what: What, site: &'static Location<'static>) -> Event {
        Event { what, site: Site::of(site), thread: std::thread::current().id() }
    }

    pub(super) fn grow(len: u64, site: &'static Location<'static>) -> Event {
        Event::new(What::Grow { len }, site)
    }

    pub(super) fn file(site: Site) -> Event {
        Event { what: What::File, site, thread: std::thread::current().id() }
    }

    pub(super) fn failure() -> Event {
        let site = Site { file: "failure of a call", line: 0 };
        Event { what: What::Failure, site, thread: std::thread::current().id() }
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

    /// Whether something that lasts changes by it.
    pub(super) fn is_persist_point(&self) -> bool {
        !matches!(self.what, What::Mark | What::Failure)
    }

    /// Lets it happen again.
    pub(super) fn apply(&self, lines: &mut Lines) {
        match &self.what {
            What::Store { at, bytes, streamed } => lines.store(self.thread, *at, bytes, *streamed),
            What::Flush { at, len } => lines.flush(self.thread, *at, *len),
            What::Fence => lines.fence(self.thread),
            What::Grow { len } => lines.grow(*len as usize),
            What::File | What::Failure | What::Mark => {}
        }
    }

    /// Adds it to a fingerprint. Threads are left out: their numbers are the process's.
    fn mix(&self, into: &mut Fingerprint) {
        into.bytes(self.describe().as_bytes());
        if let What::Store { bytes, .. } = &self.what {
            into.bytes(bytes);
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
            What::Grow { len } => format!("growth to {len} bytes"),
            What::File | What::Failure => return self.site.file.to_string(),
            What::Mark => "mark".to_string(),
        };
        format!("{what} ({}:{})", self.site.file, self.site.line)
    }
}

/// A place in the source that stores, flushes or fences; for files, what is done to which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    /// The source file; for files, the operation and what is changed by it.
    pub file: &'static str,
    /// The line in it; 0 for files.
    pub line: u32,
}

impl Site {
    /// What is done to the file, or in the directory, of this name.
    pub(super) fn of_file(doing: FileChange, path: &Path) -> Site {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let whose = match name {
            name if name.starts_with("region") => 0,
            name if name.starts_with("journal-") => 1,
            name if name.starts_with("extents-") => 2,
            _ => 3,
        };
        Site { file: FILE_SITES[doing as usize][whose], line: 0 }
    }

    pub(super) fn of(location: &'static Location<'static>) -> Site {
        Site { file: location.file(), line: location.line() }
    }
}

/// What can be done to files.
#[derive(Clone, Copy, Debug)]
pub(super) enum FileChange {
    Write,
    Resize,
    Sync,
    Create,
    Rename,
    Remove,
    SyncDirectory,
    Punch,
    Preallocate,
}

const FILE_SITES: [[&str; 4]; 9] = [
    ["write region", "write journal", "write extents", "write other"],
    ["resize region", "resize journal", "resize extents", "resize other"],
    ["sync region", "sync journal", "sync extents", "sync other"],
    ["create region", "create journal", "create extents", "create other"],
    ["rename region", "rename journal", "rename extents", "rename other"],
    ["remove region", "remove journal", "remove extents", "remove other"],
    ["sync directory"; 4],
    ["punch region", "punch journal", "punch extents", "punch other"],
    ["preallocate region", "preallocate journal", "preallocate extents", "preallocate other"],
];

/// A hash of what happened (FNV-1a), the same in every process.
#[derive(Debug)]
struct Fingerprint(u64);

impl Fingerprint {
    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
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
        Recorder(Trace { start, arm, memory: true, events: Vec::new(), files: Vec::new() })
    }

    /// Of a machine without persistent memory.
    pub(super) fn of_files() -> Recorder {
        let start = Lines::durable(Pages::default());
        Recorder(Trace { start, arm: false, memory: false, events: Vec::new(), files: Vec::new() })
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

/// A recording of a workload: where its memory started, every store, flush, fence, change of files
/// and [mark](super::Machine::mark), and the files as they were at each.
#[derive(Clone, Debug)]
pub struct Trace {
    pub(super) start: Lines,
    pub(super) arm: bool,
    /// Whether the machine has persistent memory.
    pub(super) memory: bool,
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

    /// A hash of all that happened and of every byte that was stored: equal for equal runs.
    pub fn fingerprint(&self) -> u64 {
        let mut sum = Fingerprint(0xcbf2_9ce4_8422_2325);
        let media = self.start.media();
        media.for_each(0, media.len(), |_, bytes| sum.bytes(bytes));
        self.events.iter().for_each(|event| event.mix(&mut sum));
        sum.0
    }

    /// The places in the source that caused events, and how often each did.
    pub fn sites(&self) -> BTreeMap<Site, u64> {
        let mut sites = BTreeMap::new();
        for event in self.events.iter().filter(|e| e.is_persist_point()) {
            *sites.entry(event.site).or_default() += 1;
        }
        sites
    }

    /// The number of the first event at which a call failed.
    pub(super) fn first_failure(&self) -> Option<usize> {
        self.events.iter().position(|event| matches!(event.what, What::Failure))
    }

    /// The files before the event with this number.
    pub(super) fn files_before(&self, event: usize) -> Option<&Arc<SimFiles>> {
        let at = self.files.partition_point(|(from, _)| *from <= event);
        Some(&self.files[at.checked_sub(1)?].1.files)
    }
}
