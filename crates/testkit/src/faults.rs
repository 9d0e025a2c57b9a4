//! Calls of simulated files that fail: which, how, and for how long.
//!
//! A failing call tells an error. What it did before is its [`Outcome`]: nothing, a part, or all.
//! The write-back of a write may also fail later, after the call has succeeded. Then the next sync
//! tells the error, of one handle alone that was open by then.
//!
//! Each call is counted by its [`CallSite`], so that a test knows which calls there are, and which
//! of them failed.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fmt, io};

/// What a file or a directory is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    /// Opens an existing file.
    Open,
    /// Makes a file.
    Create,
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Changes the length.
    Resize,
    /// Takes space ahead.
    Preallocate,
    /// Gives space back.
    Punch,
    /// Makes what was written durable.
    Sync,
    /// Renames a file.
    Rename,
    /// Removes a file.
    Remove,
    /// Lists a directory.
    List,
    /// Makes a directory.
    CreateDirectory,
    /// Makes names durable.
    SyncDirectory,
    /// Writes an object of a store that has none of the name.
    Put,
    /// Writes one in parts, which takes no condition.
    Upload,
    /// Writes an object in place of one with a tag: compare and swap.
    Replace,
    /// Reads an object or a part of it.
    Get,
    /// Looks at an object.
    Head,
    /// Deletes objects.
    Delete,
    /// Lists objects.
    ListObjects,
}

const CALLS: [Call; 20] = [
    Call::Open,
    Call::Create,
    Call::Read,
    Call::Write,
    Call::Resize,
    Call::Preallocate,
    Call::Punch,
    Call::Sync,
    Call::Rename,
    Call::Remove,
    Call::List,
    Call::CreateDirectory,
    Call::SyncDirectory,
    Call::Put,
    Call::Upload,
    Call::Replace,
    Call::Get,
    Call::Head,
    Call::Delete,
    Call::ListObjects,
];

impl Call {
    fn as_str(self) -> &'static str {
        match self {
            Call::Open => "open",
            Call::Create => "create",
            Call::Read => "read",
            Call::Write => "write",
            Call::Resize => "resize",
            Call::Preallocate => "preallocate",
            Call::Punch => "punch",
            Call::Sync => "sync",
            Call::Rename => "rename",
            Call::Remove => "remove",
            Call::List => "list",
            Call::CreateDirectory => "create directory",
            Call::SyncDirectory => "sync directory",
            Call::Put => "put",
            Call::Upload => "upload",
            Call::Replace => "replace",
            Call::Get => "get",
            Call::Head => "look at",
            Call::Delete => "delete",
            Call::ListObjects => "list",
        }
    }

    /// The ways in which it can fail.
    pub fn outcomes(self) -> &'static [Outcome] {
        match self {
            Call::Write => {
                &[Outcome::Undone, Outcome::Partial, Outcome::Done, Outcome::LateWriteBack]
            }
            Call::Sync | Call::Preallocate => &[Outcome::Undone, Outcome::Partial, Outcome::Done],
            Call::Open | Call::Read | Call::List | Call::Get | Call::Head => &[Outcome::Undone],
            Call::Put | Call::Upload | Call::Replace | Call::Delete => {
                &[Outcome::Undone, Outcome::Done, Outcome::Late, Outcome::Twice]
            }
            Call::ListObjects => &[Outcome::Undone, Outcome::Stale],
            _ => &[Outcome::Undone, Outcome::Done],
        }
    }

    /// Whether it is a request to an object store.
    pub fn is_request(self) -> bool {
        self.changes_objects() || matches!(self, Call::Get | Call::Head | Call::ListObjects)
    }

    /// Whether a database may stop where it fails: it was to change a file, or a name.
    pub fn may_stop(self) -> bool {
        let only_looks = matches!(self, Call::Open | Call::Read | Call::List);
        !(only_looks || matches!(self, Call::Punch | Call::Remove) || self.is_request())
    }

    /// Whether it is one that changes objects.
    pub(super) fn changes_objects(self) -> bool {
        matches!(self, Call::Put | Call::Upload | Call::Replace | Call::Delete)
    }
}

/// What a file is to the engine, by its name. The directory of a backup set is called `set`, that
/// of a region elsewhere `pm`, and one above a database `above`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// The region.
    Region,
    /// An epoch of the journal.
    Journal,
    /// An epoch of the journal that has not got its name yet.
    NewJournal,
    /// Extents of a database. Records and values lie in the same files.
    Extents,
    /// The marker of a creation.
    Marker,
    /// A manifest of a backup set.
    Manifest,
    /// A manifest that has not got its name yet.
    NewManifest,
    /// Extents of a backup set, as of a database.
    SetExtents,
    /// The directory of a backup set.
    SetDirectory,
    /// The directory of a region that lies elsewhere.
    RegionDirectory,
    /// A directory above those.
    Parent,
    /// The directory of a database.
    Directory,
    /// The ends of objects that are kept on the machine.
    Tails,
    /// The fence of an object store as the last opening left it.
    KnownFence,
    /// Objects of a store that are extents.
    Objects,
    /// The object of a store that says which opening writes there.
    Fence,
    /// A file that no database has.
    Other,
}

const KINDS: [FileKind; 17] = [
    FileKind::Region,
    FileKind::Journal,
    FileKind::NewJournal,
    FileKind::Extents,
    FileKind::Marker,
    FileKind::Manifest,
    FileKind::NewManifest,
    FileKind::SetExtents,
    FileKind::SetDirectory,
    FileKind::RegionDirectory,
    FileKind::Parent,
    FileKind::Directory,
    FileKind::Tails,
    FileKind::KnownFence,
    FileKind::Objects,
    FileKind::Fence,
    FileKind::Other,
];

impl FileKind {
    /// What the file of this name is.
    pub(super) fn of_file(path: &Path) -> FileKind {
        let in_set = path.parent().is_some_and(|directory| is_called(directory, "set"));
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_new = name.ends_with(".new");
        match name {
            "object-tails" => return FileKind::Tails,
            "object-fence" => return FileKind::KnownFence,
            _ => {}
        }
        match name.split_once('-').map_or(name, |(first, _)| first) {
            "region" => FileKind::Region,
            "journal" if is_new => FileKind::NewJournal,
            "journal" => FileKind::Journal,
            "backup" if is_new => FileKind::NewManifest,
            "backup" => FileKind::Manifest,
            "extents" if in_set => FileKind::SetExtents,
            "extents" => FileKind::Extents,
            "CREATING" => FileKind::Marker,
            _ => FileKind::Other,
        }
    }

    /// What the directory of this name is.
    pub(super) fn of_directory(path: &Path) -> FileKind {
        match path {
            path if is_called(path, "set") => FileKind::SetDirectory,
            path if is_called(path, "pm") => FileKind::RegionDirectory,
            path if path.parent().is_none() || is_called(path, "above") => FileKind::Parent,
            _ => FileKind::Directory,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            FileKind::Region => "region",
            FileKind::Journal => "journal",
            FileKind::NewJournal => "new journal",
            FileKind::Extents => "extents",
            FileKind::Marker => "marker",
            FileKind::Manifest => "manifest of a set",
            FileKind::NewManifest => "new manifest of a set",
            FileKind::SetExtents => "extents of a set",
            FileKind::SetDirectory => "of a set",
            FileKind::RegionDirectory => "of a region",
            FileKind::Parent => "above",
            FileKind::Directory => "of a database",
            FileKind::Tails => "ends of objects",
            FileKind::KnownFence => "known fence",
            FileKind::Objects => "objects",
            FileKind::Fence => "fence",
            FileKind::Other => "other",
        }
    }
}

fn is_called(directory: &Path, name: &str) -> bool {
    directory.file_name().is_some_and(|own| own == name)
}

/// Calls of one sort: what is asked, of which file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallSite {
    /// What is asked.
    pub call: Call,
    /// Of which file.
    pub file: FileKind,
}

impl CallSite {
    /// What a recording calls a request.
    pub(super) fn request(self) -> &'static str {
        match (self.call, self.file) {
            (Call::Put, FileKind::Fence) => "put fence",
            (Call::Replace, _) => "replace fence",
            (Call::Get, FileKind::Fence) => "get fence",
            (Call::Head, FileKind::Fence) => "look at fence",
            (Call::Put, _) => "put objects",
            (Call::Upload, _) => "upload objects",
            (Call::Get, _) => "get objects",
            (Call::Head, _) => "look at objects",
            (Call::Delete, _) => "delete objects",
            (Call::ListObjects, _) => "list objects",
            (_, _) => "request",
        }
    }
}

impl fmt::Display for CallSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.call.as_str(), self.file.as_str())
    }
}

/// How much of a call that fails is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing. A sync drops what was to become durable: the pages count as clean from then on.
    Undone,
    /// Of a write the sectors before its middle; of a sync some sectors, the others are dropped;
    /// of a preallocation its first half.
    Partial,
    /// All of it.
    Done,
    /// A write succeeds, and the device refuses it afterwards: all that waits for a sync of the
    /// file is dropped. The first sync of a handle that is open by now tells the error, and no
    /// other one does.
    LateWriteBack,
    /// A request is served after some later ones, and its caller has no answer.
    Late,
    /// A request is served and answered, and served again after some later ones.
    Twice,
    /// A list is as it was before some earlier requests.
    Stale,
}

/// Which error is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The device failed (`EIO`).
    Io,
    /// There is no space (`ENOSPC`).
    NoSpace,
    /// An object store has too much to do, and does nothing.
    Busy,
    /// The process has no descriptor left (`EMFILE`).
    NoDescriptor,
}

/// Which calls a fault is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faulty {
    /// Those of a site.
    Site(CallSite),
    /// Writes of any file.
    AnyWrite,
    /// Syncs of any file or directory.
    AnySync,
}

impl Faulty {
    fn has(self, site: CallSite) -> bool {
        match self {
            Faulty::Site(this) => this == site,
            Faulty::AnyWrite => site.call == Call::Write,
            Faulty::AnySync => matches!(site.call, Call::Sync | Call::SyncDirectory),
        }
    }
}

/// A planned failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which calls.
    pub of: Faulty,
    /// Which of them from now on fails; 1 is the next one.
    pub nth: u64,
    /// How much of it is done.
    pub outcome: Outcome,
    /// Which error is told.
    pub reason: Reason,
    /// All later ones fail as well, until the machine is mended. With [`Reason::NoSpace`] no file
    /// gets space until then.
    pub for_good: bool,
}

impl Fault {
    /// One I/O error that drops what should have been done.
    pub fn once(of: Faulty, nth: u64) -> Fault {
        Fault { of, nth, outcome: Outcome::Undone, reason: Reason::Io, for_good: false }
    }
}

/// What befalls one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure {
    site: CallSite,
    pub(super) outcome: Outcome,
    pub(super) reason: Reason,
    /// No file gets space from now on.
    pub(super) fills_up: bool,
}

/// `EMFILE` of Linux and macOS.
const EMFILE: i32 = 24;

impl Failure {
    /// What the caller is told.
    pub(super) fn error(&self) -> io::Error {
        match self.reason {
            Reason::Io | Reason::Busy => {
                io::Error::other(format!("simulated I/O error: {}", self.site))
            }
            Reason::NoSpace => io::ErrorKind::StorageFull.into(),
            Reason::NoDescriptor => io::Error::from_raw_os_error(EMFILE),
        }
    }

    /// The end of a call that fails so, if it does.
    pub(super) fn end(failure: Option<Failure>) -> io::Result<()> {
        failure.map_or(Ok(()), |failure| Err(failure.error()))
    }

    /// Whether a call that is done as a whole or not at all is done.
    pub(super) fn lets_pass(failure: Option<Failure>) -> bool {
        failure.is_none_or(|failure| failure.outcome == Outcome::Done)
    }
}

/// How often each site was called, or failed.
#[derive(Clone, Debug, Default)]
struct Counts([[u64; KINDS.len()]; CALLS.len()]);

impl Counts {
    fn add(&mut self, site: CallSite) {
        self.0[site.call as usize][site.file as usize] += 1;
    }

    fn by_site(&self) -> BTreeMap<CallSite, u64> {
        let sites = CALLS.iter().flat_map(|call| KINDS.map(|file| CallSite { call: *call, file }));
        let count = |site: &CallSite| self.0[site.call as usize][site.file as usize];
        sites.map(|site| (site, count(&site))).filter(|(_, n)| *n > 0).collect()
    }
}

/// What is planned, and what has come of it.
#[derive(Debug, Default)]
pub(super) struct Faults {
    planned: Vec<Fault>,
    calls: Counts,
    failed: Counts,
}

impl Faults {
    /// Plans a failure.
    pub(super) fn plan(&mut self, fault: Fault) {
        self.planned.push(Fault { nth: fault.nth.max(1), ..fault });
    }

    /// Forgets what is planned.
    pub(super) fn clear(&mut self) {
        self.planned.clear();
    }

    /// Whether a failure of such calls is still to come.
    pub(super) fn expects(&self, of: Faulty) -> bool {
        self.planned.iter().any(|fault| fault.of == of)
    }

    /// Counts a call, and says what befalls it. A fault that is due goes first where several are.
    pub(super) fn next(&mut self, site: CallSite) -> Option<Failure> {
        self.calls.add(site);
        let mut struck = None;
        self.planned.retain_mut(|fault| {
            if !fault.of.has(site) {
                return true;
            }
            fault.nth -= u64::from(fault.nth > 0);
            if fault.nth > 0 {
                return true;
            }
            struck.get_or_insert(*fault);
            fault.for_good
        });
        let Fault { outcome, reason, for_good, .. } = struck?;
        self.failed.add(site);
        Some(Failure { site, outcome, reason, fills_up: for_good && reason == Reason::NoSpace })
    }

    /// How often each site was called.
    pub(super) fn calls(&self) -> BTreeMap<CallSite, u64> {
        self.calls.by_site()
    }

    /// How often a call of each site failed.
    pub(super) fn failed(&self) -> BTreeMap<CallSite, u64> {
        self.failed.by_site()
    }
}

const _: () = {
    let mut n = 0;
    while n < CALLS.len() {
        assert!(CALLS[n] as usize == n, "calls are counted by their numbers");
        n += 1;
    }
    let mut n = 0;
    while n < KINDS.len() {
        assert!(KINDS[n] as usize == n, "kinds are counted by their numbers");
        n += 1;
    }
};
