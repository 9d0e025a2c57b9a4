//! What every command starts from: the database's place and the output.

use std::path::{Path, PathBuf};

use terrace::{Database, Options};

use crate::args::Global;
use crate::failure::Failure;
use crate::output::Output;
use crate::text::Encoding;

/// One run of the program.
pub(crate) struct Session {
    /// Where to print.
    pub(crate) output: Output,
    db: PathBuf,
    /// As `--option` has them.
    named: Options,
    object_store: Option<String>,
    share: bool,
}

impl Session {
    /// A session as the arguments ask for it.
    pub(crate) fn new(mut global: Global) -> Result<Session, Failure> {
        let encoding = if global.hex { Encoding::Hex } else { Encoding::Text };
        let (mut named, mut named_store) = (Options::new(), None);
        for option in std::mem::take(&mut global.option) {
            let (name, value) = option.split_once('=').ok_or_else(|| {
                let why = format!("option `{option}` has no value; write -o {option}=VALUE");
                Failure::Invalid(why)
            })?;
            named.set(name, value)?;
            // What asks the store without opening a database needs its URL too.
            if name == "object_store" {
                named_store = Some(if value == "none" { "" } else { value }.to_owned());
            }
        }
        global.object_store = global.object_store.or(named_store);
        let (db, object_store) = (global.directory(), global.object_store()?);
        let output = Output::new(global.json, encoding, global.quiet)?;
        let named = named.on_progress(output.progress());
        Ok(Session { output, db, named, object_store, share: global.share })
    }

    /// Options of this run for another database than its own: those of `--option` alone.
    pub(crate) fn named_options(&self) -> Options {
        self.named.clone()
    }

    /// Options of this run.
    pub(crate) fn options(&self) -> Options {
        let mut options = self.named_options();
        if self.share {
            options = options.share(true);
        }
        match &self.object_store {
            Some(url) => options.object_store(url),
            None => options,
        }
    }

    /// The URL of the object store, for what needs one.
    pub(crate) fn store(&self) -> Result<String, Failure> {
        self.object_store.clone().ok_or_else(|| {
            Failure::Invalid("name the store of the shared database with --object-store".into())
        })
    }

    /// The database's directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.db
    }

    /// Opens the database to read. It has to be there.
    pub(crate) fn read(&self) -> Result<Database, Failure> {
        let database = self.open(|options, path| options.open_read_only(path))?;
        let stats = database.stats();
        self.say_commit(stats.open.beside_writer.then_some(stats.commit.visible));
        Ok(database)
    }

    /// Says what is read beside a process that writes.
    pub(crate) fn say_commit(&self, commit: Option<u64>) {
        if let Some(commit) = commit {
            let db = self.db.display();
            let remark = format!("as of commit {commit}: another process may write to {db}");
            self.output.remark(&remark);
        }
    }

    /// Opens another database to read.
    pub(crate) fn read_at(&self, path: &Path) -> Result<Database, Failure> {
        self.open(|options, _| options.open_read_only(path))
    }

    /// Opens the database to write; makes it if it is not there.
    pub(crate) fn write(&self) -> Result<Database, Failure> {
        self.open(|options, path| options.open(path))
    }

    /// Opens the database to write. It has to be there.
    pub(crate) fn change(&self) -> Result<Database, Failure> {
        self.open(|options, path| options.open_existing(path))
    }

    fn open(
        &self,
        how: impl FnOnce(Options, &Path) -> terrace::Result<Database>,
    ) -> Result<Database, Failure> {
        Ok(how(self.options(), &self.db)?)
    }
}
