//! The process that the tour kills: commits batches from several threads, and tells of each
//! commit that returned, until it is no more.

use std::fs::File;
use std::thread;

use terrace::{Database, Durability};

use super::batch::{MAX_RECORD, Stamp, THREADS, Tables};
use super::chance::Chance;
use super::ledger::Line;
use super::machine::Machine;
use crate::args::TourChildArguments;
use crate::failure::{Failure, Outcome};
use crate::watch;

/// Records to choose from.
const RECORDS: usize = 4_096;

/// A thread tells of the statistics every so many batches.
const SAMPLE_EVERY: u64 = 16;

type Record = (Vec<u8>, Vec<u8>);

/// Works until killed. Returns only if something fails.
pub(crate) fn run(arguments: &TourChildArguments) -> Result<Outcome, Failure> {
    let machine = Machine::new(&arguments.dir, arguments.machine);
    let (database, durability) = (machine.open()?, machine.durability());
    let _page = watch::serve_at(&database, arguments.watch)?;
    let records = records(&database, &arguments.source)?;
    let tables = Tables::open(&database)?;
    // Standard output as a file, so that a line is one call and never waits in a buffer.
    let pipe = pipe().map_err(|error| Failure::io("use the pipe", &error))?;
    let worker = Worker { database, durability, tables, records, pipe };
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let worker = &worker;
            scope.spawn(move || worker.work(arguments.round, thread, arguments.seed));
        }
    });
    Ok(Outcome::Good)
}

fn pipe() -> std::io::Result<File> {
    #[cfg(unix)]
    use std::os::fd::AsFd;
    #[cfg(windows)]
    use std::os::windows::io::AsHandle;
    #[cfg(unix)]
    let pipe = std::io::stdout().as_fd().try_clone_to_owned();
    #[cfg(windows)]
    let pipe = std::io::stdout().as_handle().try_clone_to_owned();
    pipe.map(File::from)
}

/// Records of the source, as many as are handy.
fn records(database: &Database, source: &str) -> Result<Vec<Record>, Failure> {
    let mut records = Vec::new();
    for record in database.existing_table(source)?.iter() {
        let (key, value) = record?;
        if key.len() + value.len() <= MAX_RECORD {
            records.push((key.to_vec(), value.to_vec()));
        }
        if records.len() == RECORDS {
            break;
        }
    }
    Ok(records)
}

struct Worker {
    database: Database,
    durability: Durability,
    tables: Tables,
    records: Vec<Record>,
    pipe: File,
}

impl Worker {
    /// Commits one batch after the other. The first thread to fail ends the process: the others
    /// would go on for ever.
    fn work(&self, round: u32, thread: u32, seed: u64) {
        if let Err(failure) = self.commit_for_ever(round, thread, seed) {
            crate::output::say(&failure.report(false));
            std::process::exit(i32::from(failure.exit_code()));
        }
    }

    fn commit_for_ever(&self, round: u32, thread: u32, seed: u64) -> Result<(), Failure> {
        let name = Stamp::thread(round, thread);
        let mut chance = Chance::new(seed ^ u64::from(name) << 32);
        // Each record belongs to one thread, so that its last writer is known.
        let own: Vec<&Record> =
            self.records.iter().skip(thread as usize).step_by(THREADS as usize).collect();
        if own.is_empty() {
            return Err(Failure::Invalid(format!("thread {thread} has no records")));
        }
        for sequence in 0.. {
            let stamp = Stamp { thread: name, sequence };
            let (key, value) = own[chance.below(own.len() as u64) as usize];
            let batch = self.tables.batch(stamp, key, value);
            self.database.write_with(&batch, self.durability)?;
            let hash = super::batch::hash(stamp, key, value);
            self.tell(Line::Acknowledged { stamp, hash })?;
            if sequence % SAMPLE_EVERY == 0 && thread == 0 {
                let commit = self.database.stats().commit;
                self.tell(Line::Statistics { groups: commit.groups, syncs: commit.syncs })?;
            }
        }
        Ok(())
    }

    fn tell(&self, line: Line) -> Result<(), Failure> {
        line.write(&self.pipe).map_err(|error| Failure::io("tell the parent", &error))
    }
}
