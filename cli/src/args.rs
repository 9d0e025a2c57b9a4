//! The command line.

use std::env::VarError;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::Duration;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use humantime::parse_duration;

use crate::failure::Failure;

const AFTER: &str = "\
Data goes to standard output, everything else to standard error.

Exit codes:
  0  done
  1  the key is not there (get), damage was found (verify, store), something was lost (tour,
     salvage)
  2  the request is wrong: an unknown option, a table that is not there, a broken row
  3  anything else: an I/O error, a full disk, a database that another process holds
  130  stopped by a signal: what an import, a load or a compaction has done by then stays, and a
     dump leaves no file, a backup nothing in its set, a restore or salvage no database

A reader of the output that goes away, such as head, changes none of them.

Keys and values print as text; bytes that are no text, and control characters, print as
\\xNN. A value by itself (get) prints its control characters where the output is no terminal;
get --raw prints its bytes. With --json, bytes that are no text are an object with their digits,
{\"hex\": \"61ff\"}. With --hex all keys and values are hexadecimal, in and out, and so always
exact.";

/// Look into Terrace databases, fill them, and see the engine survive.
#[derive(Debug, Parser)]
#[command(name = "terrace", version, after_help = AFTER)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Arguments {
    /// The arguments of a command line. An option of opening counts before the command's name and
    /// behind it: of an argument that all commands take, clap keeps the values of one place alone.
    pub(crate) fn read(line: &[OsString]) -> Result<Arguments, clap::Error> {
        let (send, all) = channel();
        let keep = move |text: &str| send.send(text.to_owned()).map(|()| text.to_owned());
        let command = Arguments::command().mut_arg("option", |option| option.value_parser(keep));
        let matches = command.try_get_matches_from(line)?;
        let mut arguments = Arguments::from_arg_matches(&matches)?;
        arguments.global.option = all.try_iter().collect();
        Ok(arguments)
    }
}

/// The end of a command line that is not understood, or that asks for help. With `--json` an error
/// is JSON here too.
pub(crate) fn explain(error: &clap::Error, line: &[OsString]) -> u8 {
    if error.use_stderr() && line.iter().any(|argument| argument == "--json") {
        let text = error.to_string();
        let message = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
        let failure = Failure::Invalid(message.to_owned());
        crate::output::say(&failure.report(true));
        return failure.exit_code();
    }
    match error.use_stderr() {
        // It has arguments, which may have control characters.
        true => crate::output::say(error.to_string().trim_end()),
        // Where no process reads it, it is lost, and nothing else.
        false => error.print().unwrap_or_default(),
    }
    u8::try_from(error.exit_code()).unwrap_or(2)
}

/// What every command understands.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// The database's directory [default: $TERRACE_DB if that is set and not empty, else
    /// ./terrace-data]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) db: Option<PathBuf>,
    /// The object store of the database, such as s3://bucket/prefix or file:///directory [default:
    /// $TERRACE_OBJECT_STORE if that is set and not empty, else none]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) object_store: Option<String>,
    /// Ship what is committed to the object store, so that other machines can take over
    #[arg(long, global = true)]
    pub(crate) share: bool,
    /// Set an option of opening, as docs/reference.md lists them; may be repeated
    #[arg(short, long, global = true, value_name = "NAME=VALUE")]
    pub(crate) option: Vec<String>,
    /// Print JSON; errors too
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Read and print keys and values in hexadecimal
    #[arg(long, global = true)]
    pub(crate) hex: bool,
    /// Print no progress and no remarks
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
}

impl Global {
    /// The database's directory: as the arguments say, else the environment.
    pub(crate) fn directory(&mut self) -> PathBuf {
        let of_environment = || std::env::var_os("TERRACE_DB").filter(|path| !path.is_empty());
        let named = self.db.take().or_else(|| of_environment().map(PathBuf::from));
        named.unwrap_or_else(|| PathBuf::from("./terrace-data"))
    }

    /// The URL of the object store: as the arguments say, else the environment.
    pub(crate) fn object_store(&mut self) -> Result<Option<String>, Failure> {
        let url = match self.object_store.take() {
            None => match std::env::var("TERRACE_OBJECT_STORE") {
                Err(error @ VarError::NotUnicode(_)) => {
                    return Err(Failure::Invalid(format!("TERRACE_OBJECT_STORE: {error}")));
                }
                url => url.ok(),
            },
            url => url,
        };
        Ok(url.filter(|url| !url.is_empty()))
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// See it work: import real data, kill the process again and again, lose nothing
    Tour(TourArguments),
    /// Import rows from a CSV, TSV or JSON Lines file
    Import(ImportArguments),
    /// Print the value of a key
    Get(GetArguments),
    /// Set the value of a key; makes the database and the table if need be
    Put(PutArguments),
    /// Remove a key, a range of keys, or a whole table
    Delete(DeleteArguments),
    /// Print the records of a table in the order of their keys
    Scan(ScanArguments),
    /// List the tables with their records and sizes, both approximate
    Tables,
    /// Change where a table has its cold levels, those from level 2 on; what it has follows
    Table(TableArguments),
    /// Look at the object store of the database, or delete there what crashes left
    #[command(subcommand)]
    Store(StoreCommand),
    /// Follow the shared database of the object store, to read it, until a signal comes
    Follow(FollowArguments),
    /// Stand by for the shared database of the object store, until a signal comes
    Standby(NodeArguments),
    /// Make a standby, or an empty directory, the writer of the shared database
    Promote(PromoteArguments),
    /// Print how far the shared database of the object store is
    Status,
    /// Keep nothing for a follower or standby any more that was registered by a name
    Forget(ForgetArguments),
    /// List transactions that are prepared, commit one, or roll one back
    #[command(subcommand)]
    Prepared(PreparedCommand),
    /// Print what the engine counts
    Stats,
    /// Print statistics as Prometheus reads them
    Metrics,
    /// Draw what a database did in the last hours, also while another process has it open
    History(HistoryArguments),
    /// Watch a database: where the data lies, what moves, what writers wait for. Without a terminal
    /// it prints that once
    Top(TopArguments),
    /// Compact a table, or all: drain memory, and merge the levels into one
    Compact(CompactArguments),
    /// Read everything on the medium and check it
    Verify(VerifyArguments),
    /// Add a backup of the database to a set; what the set has already is not copied again
    Backup(BackupArguments),
    /// List the backups of a set, check them, or delete one
    Backups(BackupsArguments),
    /// Make a database of a backup
    Restore(RestoreArguments),
    /// Write all rows, with their tables, to a file or a pipe; with --json as lines of JSON
    Dump(DumpArguments),
    /// Take in what dump has written, in either form; makes the database if need be
    Load(LoadArguments),
    /// Write what can be read of a damaged database to a new one, and list what was lost
    Salvage(SalvageArguments),
    /// The process that the tour kills
    #[command(hide = true)]
    TourChild(TourChildArguments),
    /// The process that looks at what the killed one left
    #[command(hide = true)]
    TourCheck(TourCheckArguments),
}

#[derive(Debug, Args)]
pub(crate) struct TopArguments {
    /// The address of a running database's page: http://HOST:PORT/, with ?token=TOKEN if it asks
    /// for one, or with that in TERRACE_TOKEN. Or a directory, which is opened read-only. Beside a
    /// service it is opened again and again; waits, jobs, memory, cache and rates are then those of
    /// top [default: as --db says]
    #[arg(value_name = "PATH|URL")]
    pub(crate) place: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct TableArguments {
    /// The table; it is made if it is not there
    pub(crate) table: String,
    /// Where its cold levels lie from now on
    #[arg(long, value_enum)]
    pub(crate) tier: TierName,
    /// Wait until all of the table has followed
    #[arg(long)]
    pub(crate) wait: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    /// The directory of another node of the same shared database: compare all rows with its rows
    #[arg(long, value_name = "DIR")]
    pub(crate) against: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct NodeArguments {
    /// The directory of the node; it is made if it is not there
    pub(crate) directory: PathBuf,
    /// Stop once the node has all that there is
    #[arg(long)]
    pub(crate) once: bool,
    /// Register it by this name: the writer keeps what it lacks, up to 16 checkpoints
    #[arg(long)]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct FollowArguments {
    #[command(flatten)]
    pub(crate) node: NodeArguments,
    /// Read data in the store, and have no more than so many bytes of it here, such as 10GiB
    /// [default: copy all data]
    #[arg(long, value_name = "SIZE")]
    pub(crate) cache: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ForgetArguments {
    /// The name that the follower or standby was registered by
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct PromoteArguments {
    /// The directory of a standby that does not run, or an empty one
    pub(crate) directory: PathBuf,
    /// Yes, take it over
    #[arg(long)]
    pub(crate) confirm: bool,
}

/// Where cold levels lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TierName {
    /// On this machine
    Ssd,
    /// In the object store
    Object,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// List what is lost, and what the database does not need; nothing is changed
    Check,
    /// Delete what the database does not need
    Gc,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PreparedCommand {
    /// List those that wait for a verdict, with what they wrote and lock
    List,
    /// Commit one
    Commit(PreparedName),
    /// Roll one back
    Rollback(PreparedName),
}

#[derive(Debug, Args)]
pub(crate) struct PreparedName {
    /// The name as `list` prints it: \\ is a backslash, and \xNN any byte
    #[arg(allow_hyphen_values = true)]
    pub(crate) name: OsString,
}

#[derive(Debug, Args)]
pub(crate) struct BackupArguments {
    /// The set: a directory, or the URL of an object store; it is made if it is not there
    pub(crate) set: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct BackupsArguments {
    /// The set: a directory, or the URL of an object store
    pub(crate) set: PathBuf,
    /// Read everything in the set and check it
    #[arg(long)]
    pub(crate) verify: bool,
    /// Delete this backup; needs --confirm
    #[arg(long, value_name = "N", conflicts_with = "verify")]
    pub(crate) delete: Option<u64>,
    /// Yes, delete it
    #[arg(long)]
    pub(crate) confirm: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArguments {
    /// The set: a directory, or the URL of an object store
    pub(crate) set: PathBuf,
    /// A directory that is missing or empty
    pub(crate) to: PathBuf,
    /// The backup [default: the last]
    #[arg(long, value_name = "N")]
    pub(crate) number: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct DumpArguments {
    /// The file; where the dump fails, it stays as it was. `-` writes standard output
    #[arg(default_value = "-")]
    pub(crate) file: PathBuf,
    /// Only this table, and others that are named so
    #[arg(short, long)]
    pub(crate) table: Vec<String>,
    /// Leave out what prepared transactions wrote, rather than refuse
    #[arg(long)]
    pub(crate) without_prepared: bool,
    /// Only what the shared store of --object-store lacks: for the directory of a writer that was
    /// taken over. Lines of JSON, one a change, in the order of commits
    #[arg(long, conflicts_with_all = ["table", "without_prepared"])]
    pub(crate) unshipped: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LoadArguments {
    /// The file; `-` reads standard input
    #[arg(default_value = "-")]
    pub(crate) file: PathBuf,
    /// Only this table, and others that are named so
    #[arg(short, long)]
    pub(crate) table: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SalvageArguments {
    /// The directory of the damaged database, which is not changed
    pub(crate) from: PathBuf,
    /// A directory that is missing or empty
    pub(crate) to: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct GetArguments {
    /// The table
    #[arg(short, long)]
    pub(crate) table: String,
    /// Print the bytes of the value as they are, and no end of line; not to a terminal
    #[arg(long)]
    pub(crate) raw: bool,
    /// Write the bytes of the value to this file; where that fails, it stays as it was
    #[arg(short = 'f', long, value_name = "FILE", conflicts_with = "raw")]
    pub(crate) output: Option<PathBuf>,
    /// The key
    pub(crate) key: OsString,
}

#[derive(Debug, Args)]
pub(crate) struct PutArguments {
    /// The table
    #[arg(short, long)]
    pub(crate) table: String,
    /// The key
    pub(crate) key: OsString,
    /// The value; `-` reads it from standard input
    pub(crate) value: OsString,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteArguments {
    /// The table
    #[arg(short, long)]
    pub(crate) table: String,
    /// The key
    #[arg(required_unless_present_any = ["all", "prefix", "from", "to"])]
    #[arg(conflicts_with_all = ["all", "prefix", "from", "to", "confirm"])]
    pub(crate) key: Option<OsString>,
    /// Remove all keys that start with this; needs --confirm
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to", "all"])]
    pub(crate) prefix: Option<OsString>,
    /// Remove all keys from this one on; needs --confirm
    #[arg(long, value_name = "KEY", conflicts_with = "all")]
    pub(crate) from: Option<OsString>,
    /// Remove all keys before this one; needs --confirm
    #[arg(long, value_name = "KEY", conflicts_with = "all")]
    pub(crate) to: Option<OsString>,
    /// Remove the table and everything in it; needs --confirm
    #[arg(long)]
    pub(crate) all: bool,
    /// Yes, all these keys, or the whole table
    #[arg(long)]
    pub(crate) confirm: bool,
}

#[derive(Debug, Args)]
pub(crate) struct HistoryArguments {
    /// How far back, such as 30m, 2h or 7d; a database keeps one to two days by default
    #[arg(long, value_name = "TIME", default_value = "2h", value_parser = parse_duration)]
    pub(crate) since: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct CompactArguments {
    /// The table [default: all tables]
    #[arg(short, long)]
    pub(crate) table: Option<String>,
    /// The first key
    #[arg(long, value_name = "KEY", requires = "table")]
    pub(crate) from: Option<OsString>,
    /// Where to stop: this key is not compacted
    #[arg(long, value_name = "KEY", requires = "table")]
    pub(crate) to: Option<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct ScanArguments {
    /// The table
    #[arg(short, long)]
    pub(crate) table: String,
    /// Only keys that start with this
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"])]
    pub(crate) prefix: Option<OsString>,
    /// The first key
    #[arg(long, value_name = "KEY")]
    pub(crate) from: Option<OsString>,
    /// Where to stop: this key is not printed
    #[arg(long, value_name = "KEY")]
    pub(crate) to: Option<OsString>,
    /// From the last key to the first
    #[arg(long)]
    pub(crate) reverse: bool,
    /// At most so many records
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Leave the values out
    #[arg(long)]
    pub(crate) keys_only: bool,
}

/// How the rows of a file are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Comma-separated, the first line names the columns
    Csv,
    /// Tab-separated, the first line names the columns
    Tsv,
    /// A JSON object a line
    Jsonl,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArguments {
    /// The file; `-` reads standard input
    pub(crate) file: PathBuf,
    /// The table; it is made if it is not there
    #[arg(short, long)]
    pub(crate) table: String,
    /// How the rows are written [default: by the file's extension]
    #[arg(long, value_enum)]
    pub(crate) format: Option<Format>,
    /// The column that is the key [default: the first; with JSON Lines there is none]
    #[arg(long, value_name = "COLUMN")]
    pub(crate) key: Option<String>,
    /// Leave broken rows out instead of stopping at the first
    #[arg(long)]
    pub(crate) skip_bad: bool,
    /// Load all rows at once, or none, straight to disk; they come in the order of their keys, each
    /// once, and the table has none of them
    #[arg(long, conflicts_with = "batch")]
    pub(crate) bulk: bool,
    /// With --bulk: rows take the place of those that the table has
    #[arg(long, requires = "bulk")]
    pub(crate) replace: bool,
    /// Rows in a batch, at most; a batch is all or nothing
    #[arg(long, value_name = "N", default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batch: u32,
    /// Serve a page that shows the database at work, and say where it is
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TourArguments {
    /// Real data of your own: CSV, TSV or JSON Lines by its extension, else a record a line
    /// [default: the packages that this system knows of, else the files under /usr]
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// Delete the directory of each process that was killed: the next one takes the shared database
    /// over. A directory stands for the object store, or a new place in that of --object-store
    #[arg(long)]
    pub(crate) lost_machine: bool,
    /// How often to kill the process
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Where to work; must be empty, and stays [default: a temporary directory, removed at the end]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Keep the temporary directory
    #[arg(long)]
    pub(crate) keep: bool,
    /// Choose records and moments as this number says [default: differently each time]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Serve a page that shows the database at work, and say where it is
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TourChildArguments {
    #[arg(long)]
    pub(crate) dir: PathBuf,
    #[arg(long)]
    pub(crate) round: u32,
    #[arg(long)]
    pub(crate) source: String,
    #[arg(long)]
    pub(crate) seed: u64,
    #[arg(long)]
    pub(crate) machine: Option<u32>,
    #[arg(long)]
    pub(crate) watch: Option<SocketAddr>,
}

#[derive(Debug, Args)]
pub(crate) struct TourCheckArguments {
    #[arg(long)]
    pub(crate) dir: PathBuf,
    #[arg(long)]
    pub(crate) rounds: u32,
    #[arg(long)]
    pub(crate) source: String,
    #[arg(long)]
    pub(crate) machine: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }
}
