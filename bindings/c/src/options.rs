//! Options by name and value. The engine has the tables of names.

use crate::database::milliseconds;
use crate::error::{Error, OwnedText, Status};
use crate::guard::{self, ErrorOut, Failure, Result, need};
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

/// Options with their defaults. Free them with terrace_options_free.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_options_new() -> Option<Box<Options>> {
    guard::made(None, || Ok(Options(terrace::Options::new())))
}

/// Sets an option by its name, as text: "pm_size" to "256MiB", "mode" to "dax". The names are
/// pm_size, pm_initial_size, pm_path, mode (file, dax, emulated), index (volatile, persistent),
/// cache_size, memory, level1_size, compression (none, lz4, zstd), direct_io (on, off),
/// file_permissions (octal), object_store (a URL), object_cache, share (on, off),
/// share_retention (a time), follower_name, group_batches, group_bytes, own_streams, threads and
/// bytes_per_second.
/// The documentation of the Rust type Options has their meaning.
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
        value_of(options, name.text("name")?).map(OwnedText::new)
    })
}

/// The value of an option of a table, as text.
fn value_of(options: &terrace::TableOptions, name: &str) -> Result<String> {
    let or_none = |value: Option<String>| value.unwrap_or_else(|| "none".into());
    match name {
        "block_size" => Ok(options.block_bytes().to_string()),
        "filter_bits" => Ok(options.filter_bits_per_key().to_string()),
        "ttl" => Ok(or_none(options.time_to_live().map(|ttl| format!("{}ms", milliseconds(ttl))))),
        "large_values" => Ok(or_none(options.large_values_from().map(|from| from.to_string()))),
        "cold" => Ok(options.cold_tier().as_str().into()),
        "merge_operator" => Ok(or_none(options.merge_operator_name().map(str::to_owned))),
        "compression" => {
            let both = |(level1, deeper): (terrace::Compression, terrace::Compression)| {
                format!("{},{}", level1.name(), deeper.name())
            };
            Ok(options.compressions().map_or("database".into(), both))
        }
        "level0" => Ok(options.level0_container().name().into()),
        other => {
            let names: Vec<&str> = terrace::TableOptions::names().map(|(name, _)| name).collect();
            let names = names.join(", ");
            Err(Failure::Invalid(format!("there is no option {other:?}; there are {names}")))
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_of_a_table_is_read_as_it_was_set() {
        for (name, _) in terrace::TableOptions::names() {
            let default = terrace::TableOptions::new();
            let (mut options, text) = (default, value_of(&default, name).unwrap());
            options.set(name, &text).unwrap();
            assert_eq!(options, default, "{name}: {text}");
        }
        let mut options = terrace::TableOptions::new();
        for (name, value) in
            [("ttl", "604800000ms"), ("large_values", "4096"), ("compression", "lz4,none")]
        {
            options.set(name, value).unwrap();
            assert_eq!(value_of(&options, name).unwrap(), value);
        }
        assert!(value_of(&options, "colour").is_err());
    }
}
