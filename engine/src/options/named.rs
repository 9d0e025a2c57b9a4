//! Options by name and value, both text: what configuration files, command lines and bindings set.
//! Each kind of options has one table of names, and every caller uses it.

use std::time::Duration;

use super::{Compression, Index, Level0Container, Mode, Options, TableOptions, Tier};
use crate::error::{Error, Result};
use crate::operator::OperatorName;

/// One name of a table.
pub(crate) struct NamedOption<T> {
    /// The name, which is the name of the method too.
    pub(crate) name: &'static str,
    /// What it takes, in words.
    pub(crate) takes: &'static str,
    /// Sets it; `None` for a value that it does not take, and nothing is changed then.
    pub(crate) set: fn(&mut T, &str) -> Option<()>,
}

/// The value of a size in bytes, in the words of every table.
pub(crate) const SIZE: &str = "a size in bytes, such as 4096, 64KiB, 256MiB or 2GiB";
pub(crate) const SIZE_OR_NONE: &str = "a size in bytes, such as 4096 or 64KiB, or none";
pub(crate) const SWITCH: &str = "on or off";
const COUNT: &str = "a number";

const DATABASE: &[NamedOption<Options>] = &[
    NamedOption {
        name: "pm_size",
        takes: SIZE,
        set: |options, value| size(value).map(|bytes| options.pm_size = bytes),
    },
    NamedOption {
        name: "pm_initial_size",
        takes: SIZE,
        set: |options, value| size(value).map(|bytes| options.pm_initial_size = bytes),
    },
    NamedOption {
        name: "pm_path",
        takes: "a path",
        set: |options, value| (!value.is_empty()).then(|| options.pm_path = Some(value.into())),
    },
    NamedOption {
        name: "mode",
        takes: "file, dax, emulated, or emulated with the delay of a block, such as emulated:300ns",
        set: |options, value| mode(value).map(|mode| options.mode = mode),
    },
    NamedOption {
        name: "index",
        takes: "volatile or persistent",
        set: |options, value| index(value).map(|index| options.index = index),
    },
    NamedOption {
        name: "cache_size",
        takes: SIZE_OR_NONE,
        set: |options, value| or_none(value, size).map(|bytes| options.cache_size = bytes),
    },
    NamedOption {
        name: "memory",
        takes: SIZE_OR_NONE,
        set: |options, value| or_none(value, size).map(|bytes| options.memory = bytes),
    },
    NamedOption {
        name: "level1_size",
        takes: SIZE_OR_NONE,
        set: |options, value| or_none(value, size).map(|bytes| options.level1_size = bytes),
    },
    NamedOption {
        name: "compression",
        takes: "none, lz4 or zstd; or two of them, for level 1 and the deeper ones: lz4,zstd",
        set: |options, value| compressions(value).map(|both| options.compression = both),
    },
    NamedOption {
        name: "direct_io",
        takes: "on or off, or none for the default",
        set: |options, value| or_none(value, switch).map(|on| options.direct_io = on),
    },
    NamedOption {
        name: "file_permissions",
        takes: "octal permissions, such as 640",
        set: |options, value| {
            u32::from_str_radix(value, 8).ok().map(|bits| options.permissions = bits)
        },
    },
    NamedOption {
        name: "object_store",
        takes: "a URL, such as s3://bucket/prefix or file:///directory, or none",
        set: |options, value| {
            let url = |text: &str| (!text.is_empty()).then(|| text.to_string());
            or_none(value, url).map(|url| options.object_store = url)
        },
    },
    NamedOption {
        name: "object_cache",
        takes: SIZE,
        set: |options, value| size(value).map(|bytes| options.object_cache = bytes),
    },
    NamedOption {
        name: "share",
        takes: "on or off",
        set: |options, value| switch(value).map(|on| options.share = on),
    },
    NamedOption {
        name: "share_retention",
        takes: "a time, such as 90s, 36h or 7d",
        set: |options, value| duration(value).map(|time| options.share_retention = time),
    },
    NamedOption {
        name: "follower_name",
        takes: "a name",
        set: |options, value| {
            (!value.is_empty()).then(|| options.follower_name = Some(value.into()))
        },
    },
    NamedOption {
        name: "group_batches",
        takes: COUNT,
        set: |options, value| value.parse().ok().map(|n| options.tuning.group_batches = n),
    },
    NamedOption {
        name: "group_bytes",
        takes: SIZE,
        set: |options, value| size(value).map(|bytes| options.tuning.group_bytes = bytes),
    },
    NamedOption {
        name: "own_streams",
        takes: COUNT,
        set: |options, value| value.parse().ok().map(|n| options.tuning.own_streams = Some(n)),
    },
    NamedOption {
        name: "threads",
        takes: COUNT,
        set: |options, value| value.parse().ok().map(|n| options.background.threads = n),
    },
    NamedOption {
        name: "bytes_per_second",
        takes: SIZE,
        set: |options, value| size(value).map(|bytes| options.background.bytes_per_second = bytes),
    },
];

const TABLE: &[NamedOption<TableOptions>] = &[
    NamedOption {
        name: "block_size",
        takes: SIZE,
        set: |options, value| {
            u32::try_from(size(value)?).ok().map(|bytes| options.block_size = bytes)
        },
    },
    NamedOption {
        name: "filter_bits",
        takes: COUNT,
        set: |options, value| value.parse().ok().map(|bits| options.filter_bits = bits),
    },
    NamedOption {
        name: "ttl",
        takes: "a time, such as 90s, 36h or 7d, or none",
        set: |options, value| or_none(value, duration).map(|ttl| options.ttl = ttl),
    },
    NamedOption {
        name: "large_values",
        takes: SIZE_OR_NONE,
        set: |options, value| {
            let bytes = |text: &str| u32::try_from(size(text)?).ok();
            or_none(value, bytes).map(|from| options.large_values = from)
        },
    },
    NamedOption {
        name: "cold",
        takes: "ssd or object",
        set: |options, value| Tier::named(value).map(|tier| options.cold = tier),
    },
    NamedOption {
        name: "merge_operator",
        takes: "the name of a merge operator, or none",
        set: |options, value| {
            let name = |name: &str| Some(OperatorName::new(name));
            or_none(value, name).map(|name| options.merge_operator = name)
        },
    },
    NamedOption {
        name: "compression",
        takes: "none, lz4, zstd, two of them, for level 1 and the deeper ones, or database",
        set: |options, value| {
            let own = if value == "database" { None } else { Some(compressions(value)?) };
            options.compression = own;
            Some(())
        },
    },
    NamedOption {
        name: "level0",
        takes: "global-index, matrix or triangle",
        set: |options, value| {
            let named = Level0Container::ALL.into_iter().find(|it| it.name() == value);
            named.map(|container| options.level0 = container)
        },
    },
];

impl Options {
    /// Sets an option by its name, as text. Nothing is changed after an error. Bounds are checked
    /// when a database is opened.
    ///
    /// The names are those of the methods: `pm_size`, `pm_path`, `mode`, `index`, `cache_size`,
    /// `memory`, `level1_size`, `compression`, `direct_io`, `file_permissions`, `object_store`,
    /// `object_cache`, `share`, `share_retention`, `follower_name`; of [`CommitTuning`](crate::CommitTuning) `group_batches`,
    /// `group_bytes` and `own_streams`; of [`BackgroundTuning`](crate::BackgroundTuning) `threads`
    /// and `bytes_per_second`. Sizes take the units `KiB`, `MiB`, `GiB` and `TiB`, switches `on`
    /// and `off`.
    ///
    /// # Errors
    ///
    /// `Invalid` for a name that there is not, naming those there are, and for a value that the
    /// option does not take, saying what it takes.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let mut options = terrace::Options::new();
    /// options.set("pm_size", "16MiB")?;
    /// options.set("compression", "lz4,zstd")?;
    /// let db = options.open(dir.path().join("db"))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        set_named(DATABASE, self, name, value)
    }

    /// The names that [`Options::set`] knows, each with what it takes.
    pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
        DATABASE.iter().map(|option| (option.name, option.takes))
    }
}

impl TableOptions {
    /// Sets an option by its name, as text: `block_size`, `filter_bits`, `ttl` (such as `7d`, or
    /// `none`), `large_values` (such as `4KiB`, or `none`), `merge_operator` (such as `counter`),
    /// `compression` (such as `zstd` or `lz4,zstd`, or `database`), `level0` (`global-index`,
    /// `matrix` or `triangle`) or `cold` (`ssd` or `object`). Nothing is changed after an error.
    /// Bounds are checked when a table is created.
    ///
    /// # Errors
    ///
    /// As [`Options::set`].
    ///
    /// # Examples
    ///
    /// ```
    /// let mut options = terrace::TableOptions::new();
    /// options.set("block_size", "64KiB")?;
    /// assert_eq!(options, terrace::TableOptions::new().block_size(64 * 1024));
    /// # Ok::<(), terrace::Error>(())
    /// ```
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        set_named(TABLE, self, name, value)
    }

    /// The names that [`TableOptions::set`] knows, each with what it takes.
    pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
        TABLE.iter().map(|option| (option.name, option.takes))
    }
}

/// Sets the option called `name`.
///
/// # Errors
///
/// `Invalid` where `table` has no such name, or the option does not take the value.
pub(crate) fn set_named<T>(
    table: &[NamedOption<T>],
    options: &mut T,
    name: &str,
    value: &str,
) -> Result<()> {
    let Some(option) = table.iter().find(|option| option.name == name) else {
        let names: Vec<&str> = table.iter().map(|option| option.name).collect();
        let names = names.join(", ");
        return Err(Error::invalid(format!("there is no option {name:?}; there are {names}")));
    };
    (option.set)(options, value.trim()).ok_or_else(|| {
        Error::invalid(format!("option {name} takes {}, and not {value:?}", option.takes))
    })
}

/// Bytes: a number, with a unit if it has one.
pub(crate) fn size(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let shift = match unit {
        "" | "B" => 0,
        "K" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        "T" | "TiB" => 40,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

/// A time: a number and its unit.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let seconds = |each: u64| number.checked_mul(each).map(Duration::from_secs);
    match unit {
        "ns" => Some(Duration::from_nanos(number)),
        "us" => Some(Duration::from_micros(number)),
        "ms" => Some(Duration::from_millis(number)),
        "s" => seconds(1),
        "min" => seconds(60),
        "h" => seconds(3600),
        "d" => seconds(86_400),
        _ => None,
    }
}

/// `on` or `off`.
pub(crate) fn switch(text: &str) -> Option<bool> {
    match text {
        "on" | "true" | "1" => Some(true),
        "off" | "false" | "0" => Some(false),
        _ => None,
    }
}

/// A number of digits, and what follows it.
fn split(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit.trim_start()))
}

/// What `parse` reads, or `none`.
fn or_none<V>(text: &str, parse: impl FnOnce(&str) -> Option<V>) -> Option<Option<V>> {
    if text == "none" { Some(None) } else { parse(text).map(Some) }
}

fn mode(text: &str) -> Option<Mode> {
    match text.split_once(':') {
        None if text == "file" => Some(Mode::File),
        None if text == "dax" => Some(Mode::Dax),
        None if text == "emulated" => Some(Mode::Emulated { delay: Duration::ZERO }),
        Some(("emulated", delay)) => Some(Mode::Emulated { delay: duration(delay)? }),
        _ => None,
    }
}

fn index(text: &str) -> Option<Index> {
    match text {
        "volatile" => Some(Index::Volatile),
        "persistent" => Some(Index::Persistent),
        _ => None,
    }
}

fn compressions(text: &str) -> Option<(Compression, Compression)> {
    let named = |name: &str| Compression::NAMES.into_iter().find(|(it, _)| *it == name);
    let one = |text: &str| named(text.trim()).map(|(_, compression)| compression);
    match text.split_once(',') {
        Some((level1, deeper)) => Some((one(level1)?, one(deeper)?)),
        None => one(text).map(|both| (both, both)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::options::{BackgroundTuning, CommitTuning};

    #[test]
    fn what_is_set_by_name_is_what_the_methods_set() {
        let mut named = Options::new();
        for (name, value) in [
            ("pm_size", "16MiB"),
            ("pm_path", "/mnt/pmem/region"),
            ("mode", "emulated:300ns"),
            ("index", "persistent"),
            ("cache_size", "64 KiB"),
            ("memory", "1G"),
            ("level1_size", "4096"),
            ("compression", "lz4, none"),
            ("direct_io", "off"),
            ("file_permissions", "640"),
            ("object_store", "s3://bucket/prefix"),
            ("object_cache", "2G"),
            ("share", "on"),
            ("share_retention", "2h"),
            ("follower_name", "reports"),
            ("group_batches", "16"),
            ("group_bytes", "128K"),
            ("own_streams", "4"),
            ("threads", "3"),
            ("bytes_per_second", " 1MiB "),
        ] {
            named.set(name, value).unwrap();
        }
        assert_eq!(
            (named.pm_size, named.cache_size, named.memory, named.level1_size),
            (16 << 20, Some(64 << 10), Some(1 << 30), Some(4096))
        );
        assert_eq!(named.mode, Mode::Emulated { delay: Duration::from_nanos(300) });
        assert_eq!(named.pm_path.as_deref(), Some("/mnt/pmem/region".as_ref()));
        assert_eq!(named.index, Index::Persistent);
        assert_eq!(named.compression, (Compression::Lz4, Compression::None));
        assert_eq!((named.direct_io, named.permissions), (Some(false), 0o640));
        assert_eq!(named.object_store.as_deref(), Some("s3://bucket/prefix"));
        assert_eq!(named.object_cache, 2 << 30);
        assert!(named.share);
        assert_eq!(named.share_retention, Duration::from_secs(7200));
        assert_eq!(named.follower_name.as_deref(), Some("reports"));
        let tuning = CommitTuning::new().group_batches(16).group_bytes(128 << 10);
        assert_eq!(named.tuning, tuning.own_streams(4));
        let background = BackgroundTuning::new().threads(3).bytes_per_second(1 << 20);
        assert_eq!(named.background, background);
        for name in ["memory", "cache_size", "direct_io"] {
            named.set(name, "none").unwrap();
        }
        assert_eq!((named.memory, named.cache_size, named.direct_io), (None, None, None));
    }

    #[test]
    fn tables_have_options_by_name() {
        let mut named = TableOptions::new();
        for (name, value) in
            [("block_size", "4KiB"), ("filter_bits", "14"), ("ttl", "7d"), ("large_values", "8KiB")]
        {
            named.set(name, value).unwrap();
        }
        named.set("cold", "object").unwrap();
        assert_eq!(named.cold, Tier::Object);
        named.set("cold", "ssd").unwrap();
        let week = Duration::from_secs(7 * 86_400);
        let by_method = TableOptions::new().block_size(4096).filter_bits(14).ttl(week);
        assert_eq!(named, by_method.large_values(8192));
        for container in Level0Container::ALL {
            named.set("level0", container.name()).unwrap();
            assert_eq!(named.level0_container(), container);
        }
        assert!(named.set("level0", "room").is_err());
        named.set("level0", "global-index").unwrap();
        named.set("ttl", "none").unwrap();
        named.set("large_values", "none").unwrap();
        assert_eq!(named, TableOptions::new().block_size(4096).filter_bits(14));
    }

    #[test]
    fn unknown_names_and_values_are_refused_with_what_there_is() {
        let (mut options, untouched) = (Options::new(), Options::new());
        let unknown = options.set("pmsize", "1MiB").unwrap_err();
        assert_eq!(unknown.kind(), ErrorKind::Invalid);
        assert!(unknown.to_string().contains("pm_size, pm_initial_size, pm_path"), "{unknown}");
        for (name, value) in [
            ("pm_size", "256MB"),
            ("pm_size", ""),
            ("pm_size", "-1"),
            ("pm_size", "99999999TiB"),
            ("mode", "emulated:300"),
            ("mode", "disk"),
            ("pm_path", ""),
            ("direct_io", "yes please"),
            ("compression", "lz4,zstd,none"),
            ("file_permissions", "999"),
        ] {
            let error = options.set(name, value).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("takes"), "{error}");
        }
        assert_eq!(options.pm_size, untouched.pm_size);
        assert_eq!(options.mode, untouched.mode);
        assert!(TableOptions::new().set("block_size", "8GiB").is_err());
    }

    #[test]
    fn each_name_is_there_once() {
        for names in [
            Options::names().map(|(name, _)| name).collect::<Vec<_>>(),
            TableOptions::names().map(|(name, _)| name).collect(),
        ] {
            let mut once = names.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), names.len());
        }
    }
}
