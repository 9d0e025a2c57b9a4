//! Options by name and value. The engine has the tables of names.

use crate::error::{Error, OwnedText, Status};
use crate::guard::{self, ErrorOut, Failure, Result, need};
use crate::list::Strings;
use crate::pointers::Text;

/// How to open a database. Not for several threads at once; any number of openings may use it, one
/// after the other.
#[derive(Debug)]
pub struct Options(pub(crate) terrace::Options);

/// How a table is laid out. Not for several threads at once.
#[derive(Debug)]
pub struct TableOptions(pub(crate) terrace::TableOptions);

/// How transactions behave. Any number of transactions may begin with it, from any thread, as long
/// as no call changes it meanwhile.
#[derive(Debug)]
pub struct TransactionOptions(pub(crate) terrace::TxnOptions);

impl Options {
    /// Those that C passes, or the defaults for NULL.
    pub(crate) fn or_default(options: Option<&Options>) -> terrace::Options {
        options.map_or_else(terrace::Options::new, |options| options.0.clone())
    }
}

/// As a kind of options: those of terrace_options_set.
pub const TERRACE_DATABASE_OPTIONS: u32 = 0;
/// As a kind of options: those of terrace_table_options_set.
pub const TERRACE_TABLE_OPTIONS: u32 = 1;
/// As a kind of options: those of terrace_transaction_options_set.
pub const TERRACE_TRANSACTION_OPTIONS: u32 = 2;

/// All options of a kind, two texts for each: its name, and behind it what it takes, in words. NULL
/// after an error. Free them with terrace_strings_free.
///
/// Errors: TERRACE_INVALID for a kind that is none of TERRACE_DATABASE_OPTIONS,
/// TERRACE_TABLE_OPTIONS and TERRACE_TRANSACTION_OPTIONS.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_option_names(
    kind: u32,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<Strings>> {
    guard::made(error, || {
        let names: Vec<(&str, &str)> = match kind {
            TERRACE_DATABASE_OPTIONS => terrace::Options::names().collect(),
            TERRACE_TABLE_OPTIONS => terrace::TableOptions::names().collect(),
            TERRACE_TRANSACTION_OPTIONS => terrace::TxnOptions::names().collect(),
            other => {
                return Err(Failure::Invalid(format!(
                    "there is no kind {other} of options; there are TERRACE_DATABASE_OPTIONS (0), \
                     TERRACE_TABLE_OPTIONS (1) and TERRACE_TRANSACTION_OPTIONS (2)"
                )));
            }
        };
        let texts = names.into_iter().flat_map(|(name, takes)| [name.into(), takes.into()]);
        Ok(Strings::new(texts.collect()))
    })
}

/// Options with their defaults. Free them with terrace_options_free.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_options_new() -> Option<Box<Options>> {
    guard::made(None, || Ok(Options(terrace::Options::new())))
}

/// Sets an option by its name, as text: "pm_size" to "256MiB", "mode" to "dax".
/// terrace_option_names has the names, each with what it takes. The documentation of the Rust type
/// Options has their meaning.
///
/// Errors: TERRACE_INVALID for an unknown name, with the names there are, and for a value that the
/// option does not take, with what it takes. Nothing is changed then. Bounds are checked when a
/// database is opened.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_options_set(
    options: Option<&mut Options>,
    name: Text,
    value: Text,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    set(options, name, value, error, |options, name, value| options.0.set(name, value))
}

/// Frees options. Databases that were opened with them stay as they are. NULL is no error.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_options_free(options: Option<Box<Options>>) {
    guard::free(options);
}

/// Options of a table with their defaults. Free them with terrace_table_options_free.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_options_new() -> Option<Box<TableOptions>> {
    guard::made(None, || Ok(TableOptions(terrace::TableOptions::new())))
}

/// Sets an option of a table by its name, as text: block_size, filter_bits, ttl (such as "7d", or
/// "none"), large_values (such as "4KiB", or "none"), cold (ssd or object), merge_operator (the
/// name of one, or "none"), compression (such as "zstd", "lz4,zstd" for level 1 and deeper ones, or
/// "database"), level0 (global-index, matrix or triangle). With large_values, values of so many
/// bytes and more lie apart from their keys.
///
/// Every database knows these merge operators: "counter" adds 64-bit integers in two's complement,
/// big-endian. "append" appends. "max" keeps the greater, in the order of bytes. "set_union" unites
/// sets: members in ascending order, each once and behind its length of four bytes, little-endian.
/// terrace_options_add_merge_operator registers others.
///
/// Errors: as terrace_options_set. Bounds are checked when a table is created.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_options_set(
    options: Option<&mut TableOptions>,
    name: Text,
    value: Text,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    set(options, name, value, error, |options, name, value| options.0.set(name, value))
}

/// The value of an option of a table by its name, as text that terrace_table_options_set takes.
/// NULL after an error. Free it with terrace_string_free.
///
/// Errors: TERRACE_INVALID for an unknown name, with the names there are.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_options_get(
    options: Option<&TableOptions>,
    name: Text,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<OwnedText>> {
    guard::made(error, || {
        let options = &need(options, "options")?.0;
        Ok(OwnedText::new(options.get(name.text("name")?)?))
    })
}

/// Frees options of a table. NULL is no error.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_options_free(options: Option<Box<TableOptions>>) {
    guard::free(options);
}

/// Options of transactions with their defaults: snapshot isolation with row locks, durable, 10 s of
/// waiting for a lock. Free them with terrace_transaction_options_free.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_options_new() -> Option<Box<TransactionOptions>> {
    guard::made(None, || Ok(TransactionOptions(terrace::TxnOptions::new())))
}

/// Sets an option of transactions by its name, as text: isolation (read_committed, snapshot,
/// serializable), optimistic (on, off), lock_wait (such as "500ms"; no_wait, endless), durability
/// (durable, relaxed, remote), write_limit, spill_at and lock_limit (sizes).
///
/// Errors: as terrace_options_set. What contradicts is refused when a transaction begins.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_options_set(
    options: Option<&mut TransactionOptions>,
    name: Text,
    value: Text,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    set(options, name, value, error, |options, name, value| options.0.set(name, value))
}

/// Frees options of transactions. NULL is no error.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_options_free(options: Option<Box<TransactionOptions>>) {
    guard::free(options);
}

fn set<T>(
    options: Option<&mut T>,
    name: Text,
    value: Text,
    error: ErrorOut<'_>,
    how: impl FnOnce(&mut T, &str, &str) -> terrace::Result<()>,
) -> Status {
    guard::done(error, || -> Result<()> {
        let options = need(options, "options")?;
        Ok(how(options, name.text("name")?, value.text("value")?)?)
    })
}
