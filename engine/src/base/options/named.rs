//! Options by name and value, both text: what configuration files, command lines and bindings set.
//! [`declare`] makes of one declaration the field, its default, the method, and the name.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use super::{BackgroundTuning, CommitTuning, Compression, Index, Level0Container, Mode, Options};
use super::{TableOptions, Tier};
use crate::base::error::{Error, Result};
use crate::base::operator::OperatorName;
use crate::os::MemoryFiles;

/// Declares a struct of options. An option is one entry, with the documentation of its method:
///
/// ```text
/// name(argument: Type): FieldType = default => field, takes option_type, get getter;
/// ```
///
/// With `takes` the option has a name for `set`. With `get` it has a method that gives its value.
/// Behind `@fields` come fields that have no method of this form. `struct Name: [const]` makes all
/// methods `const`.
macro_rules! declare {
    (
        $(#[$of:meta])* struct $type:ident: $const:tt;
        $(#[$new:meta])* new;
        $(
            $(#[$doc:meta])*
            $name:ident($($arg:ident : $from:ty),*): $ty:ty = $default:expr => $value:expr
            $(, takes $takes:expr)? $(, get $getter:ident)?;
        )*
        $(@fields $(
            $(#[doc = $field_doc:expr])* $(#[cfg($cfg:meta)])?
            $field:ident: $field_ty:ty = $field_default:expr $(, takes $field_takes:expr)?;
        )*)?
    ) => {
        $(#[$of])*
        pub struct $type {
            $(pub(crate) $name: $ty,)*
            $($($(#[doc = $field_doc])* $(#[cfg($cfg)])? pub(crate) $field: $field_ty,)*)?
        }

        impl Default for $type {
            fn default() -> $type {
                $type::new()
            }
        }

        impl $type {
            /// The options that have a name.
            pub(crate) const NAMED: &'static [
                $crate::base::options::named::NamedOption<$type>
            ] = &[
                $($($crate::base::options::named::named!($type, $name: $ty, $takes),)?)*
                $($($(
                    $crate::base::options::named::named!($type, $field: $field_ty, $field_takes),
                )?)*)?
            ];

            $crate::base::options::named::method!($const [$(#[$new])*] new() -> $type {
                $type {
                    $($name: $default,)*
                    $($($(#[cfg($cfg)])? $field: $field_default,)*)?
                }
            });

            $(
                $crate::base::options::named::method!(
                    $const [$(#[$doc])* #[must_use]] $name(mut self, $($arg: $from),*) -> $type {
                        self.$name = $value;
                        self
                    }
                );
                $($crate::base::options::named::method!(
                    $const
                    [#[doc = concat!(
                        "The value of [`", stringify!($type), "::", stringify!($name), "`]."
                    )]]
                    $getter(&self) -> $ty {
                        self.$name
                    }
                );)?
            )*
        }
    };
}
pub(crate) use declare;

/// A public method, `const` or not.
macro_rules! method {
    ([] [$($attributes:tt)*] $($method:tt)*) => { $($attributes)* pub fn $($method)* };
    ([const] [$($attributes:tt)*] $($method:tt)*) => { $($attributes)* pub const fn $($method)* };
}
pub(crate) use method;

/// An entry of `NAMED`.
macro_rules! named {
    ($type:ident, $name:ident: $ty:ty, $takes:expr) => {{
        const TYPE: $crate::base::options::named::OptionType<$ty> = $takes;
        $crate::base::options::named::NamedOption {
            name: stringify!($name),
            takes: TYPE.takes,
            set: |options: &mut $type, text| {
                options.$name = (TYPE.read)(text)?;
                Some(())
            },
        }
    }};
}
pub(crate) use named;

/// An option that has a name.
pub(crate) struct NamedOption<T> {
    /// The name, which is the name of the method too.
    pub(crate) name: &'static str,
    /// What it takes, in words.
    pub(crate) takes: &'static str,
    /// Sets it; `None` for a value that it does not take, and nothing is changed then.
    pub(crate) set: fn(&mut T, &str) -> Option<()>,
}

impl<T> NamedOption<T> {
    /// The names of some options, each with what it takes.
    pub(crate) fn names(
        table: &'static [Self],
    ) -> impl Iterator<Item = (&'static str, &'static str)> {
        table.iter().map(|option| (option.name, option.takes))
    }
}

/// What an option takes, in words, and how a text is read; `None` for one that it does not take.
pub(crate) struct OptionType<V> {
    pub(crate) takes: &'static str,
    pub(crate) read: fn(&str) -> Option<V>,
}

impl<V> OptionType<V> {
    pub(crate) const fn new(takes: &'static str, read: fn(&str) -> Option<V>) -> OptionType<V> {
        OptionType { takes, read }
    }
}

pub(crate) const fn bytes<V: TryFrom<u64>>() -> OptionType<V> {
    OptionType::new("a size in bytes, such as 4096, 64KiB, 256MiB or 2GiB", size_as)
}

pub(crate) const fn bytes_or_none<V: TryFrom<u64>>() -> OptionType<Option<V>> {
    OptionType::new("a size in bytes, such as 4096 or 64KiB, or none", |text| {
        or_none(text, size_as)
    })
}

pub(crate) const fn count<V: FromStr>() -> OptionType<V> {
    OptionType::new("a number", |text| text.parse().ok())
}

pub(crate) const fn some_count<V: FromStr>() -> OptionType<Option<V>> {
    OptionType::new("a number", |text| text.parse().ok().map(Some))
}

/// A text that is not empty.
pub(crate) const fn text<V: for<'a> From<&'a str>>(takes: &'static str) -> OptionType<Option<V>> {
    OptionType::new(takes, |text| some_text(text).map(Some))
}

pub(crate) const SWITCH: OptionType<bool> = OptionType::new("on or off", switch);
pub(crate) const SWITCH_OR_NONE: OptionType<Option<bool>> =
    OptionType::new("on or off, or none for the default", |text| or_none(text, switch));
pub(crate) const TIME: OptionType<Duration> =
    OptionType::new("a time, such as 90s, 36h or 7d", duration);
pub(crate) const TIME_OR_NONE: OptionType<Option<Duration>> =
    OptionType::new("a time, such as 90s, 36h or 7d, or none", |text| or_none(text, duration));
pub(crate) const MODE: OptionType<Mode> = OptionType::new(
    "file, dax, emulated, or emulated with the delay of a block, such as emulated:300ns",
    mode,
);
pub(crate) const INDEX: OptionType<Index> =
    OptionType::new("volatile or persistent", |text| choose(&Index::NAMES, text));
pub(crate) const MEMORY_FILES: OptionType<Option<Arc<MemoryFiles>>> =
    OptionType::new("a size in bytes, such as 64MiB, or none", |text| {
        or_none(text, |text| Some(Arc::new(MemoryFiles::new(size(text)?))))
    });
pub(crate) const COMPRESSIONS: OptionType<(Compression, Compression)> = OptionType::new(
    "none, lz4 or zstd; or two of them, for level 1 and the deeper ones: lz4,zstd",
    compressions,
);
pub(crate) const COMPRESSIONS_OF_TABLE: OptionType<Option<(Compression, Compression)>> =
    OptionType::new(
        "none, lz4, zstd, two of them, for level 1 and the deeper ones, or database",
        |text| if text == "database" { Some(None) } else { compressions(text).map(Some) },
    );
pub(crate) const PERMISSIONS: OptionType<u32> =
    OptionType::new("octal permissions, such as 640", |text| u32::from_str_radix(text, 8).ok());
pub(crate) const URL: OptionType<Option<String>> =
    OptionType::new("a URL, such as s3://bucket/prefix or file:///directory, or none", |text| {
        or_none(text, some_text)
    });
pub(crate) const TIER: OptionType<Tier> =
    OptionType::new("ssd or object", |text| choose(&Tier::NAMES, text));
pub(crate) const LEVEL0: OptionType<Level0Container> =
    OptionType::new("global-index, matrix or triangle", |text| {
        choose(&Level0Container::NAMES, text)
    });
pub(crate) const OPERATOR: OptionType<Option<OperatorName>> =
    OptionType::new("the name of a merge operator, or none", |text| {
        or_none(text, |name| Some(OperatorName::new(name)))
    });

impl Options {
    /// Sets an option by its name, as text. Nothing is changed after an error. Bounds are checked
    /// when a database is opened.
    ///
    /// The names are those of the methods, and of the methods of
    /// [`CommitTuning`](crate::CommitTuning) and [`BackgroundTuning`](crate::BackgroundTuning).
    /// [`Options::names`] lists them with what each takes. Sizes take the units `KiB`, `MiB`, `GiB`
    /// and `TiB`, switches `on` and `off`.
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
        find_and_set(Options::NAMED, self, (name, value))
            .or_else(|| find_and_set(CommitTuning::NAMED, &mut self.commit_tuning, (name, value)))
            .or_else(|| {
                find_and_set(BackgroundTuning::NAMED, &mut self.background_tuning, (name, value))
            })
            .unwrap_or_else(|| Err(unknown(name, Options::names())))
    }

    /// The names that [`Options::set`] knows, each with what it takes.
    pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
        NamedOption::names(Options::NAMED)
            .chain(NamedOption::names(CommitTuning::NAMED))
            .chain(NamedOption::names(BackgroundTuning::NAMED))
    }
}

impl TableOptions {
    /// Sets an option by the name of its method, as text: `ttl` to `7d` or `none`, `level0` to
    /// `matrix`. [`TableOptions::names`] lists the names with what each takes. Nothing is changed
    /// after an error. Bounds are checked when a table is created.
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
        set_named(TableOptions::NAMED, self, name, value)
    }

    /// The names that [`TableOptions::set`] knows, each with what it takes.
    pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
        NamedOption::names(TableOptions::NAMED)
    }

    /// The value of an option by the name of its method, as text that [`TableOptions::set`] takes.
    ///
    /// # Errors
    ///
    /// `Invalid` for a name that there is not, naming those there are.
    ///
    /// # Examples
    ///
    /// ```
    /// assert_eq!(terrace::TableOptions::new().get("block_size")?, "16384");
    /// # Ok::<(), terrace::Error>(())
    /// ```
    pub fn get(&self, name: &str) -> Result<String> {
        self.text(name).ok_or_else(|| unknown(name, TableOptions::names()))
    }

    /// The same; `None` for a name that there is not.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        let or_none = |value: Option<String>| value.unwrap_or_else(|| "none".into());
        Some(match name {
            "block_size" => self.block_size.to_string(),
            "filter_bits" => self.filter_bits.to_string(),
            "ttl" => or_none(self.ttl.map(|ttl| format!("{}ms", ttl.as_millis()))),
            "large_values" => or_none(self.large_values.map(|from| from.to_string())),
            "cold" => self.cold.as_str().into(),
            "merge_operator" => or_none(self.merge_operator_name().map(str::to_owned)),
            "compression" => self.compression.map_or("database".into(), |(level1, deeper)| {
                format!("{},{}", level1.name(), deeper.name())
            }),
            "level0" => self.level0.name().into(),
            "tag" => self.tag.to_string(),
            _ => return None,
        })
    }
}

/// Sets the option called `name`.
pub(crate) fn set_named<T>(
    table: &'static [NamedOption<T>],
    options: &mut T,
    name: &str,
    value: &str,
) -> Result<()> {
    find_and_set(table, options, (name, value))
        .unwrap_or_else(|| Err(unknown(name, NamedOption::names(table))))
}

/// The same; `None` where `table` has no such name.
fn find_and_set<T>(
    table: &[NamedOption<T>],
    options: &mut T,
    (name, value): (&str, &str),
) -> Option<Result<()>> {
    let option = table.iter().find(|option| option.name == name)?;
    let done = (option.set)(options, value.trim());
    Some(done.ok_or_else(|| {
        Error::invalid(format!("option {name} takes {}, and not {value:?}", option.takes))
    }))
}

fn unknown(name: &str, names: impl Iterator<Item = (&'static str, &'static str)>) -> Error {
    let names: Vec<&str> = names.map(|(name, _)| name).collect();
    Error::invalid(format!("there is no option {name:?}; there are {}", names.join(", ")))
}

/// What has the name `text`.
pub(crate) fn choose<V: Copy>(names: &[(&str, V)], text: &str) -> Option<V> {
    names.iter().find(|(name, _)| *name == text).map(|(_, value)| *value)
}

/// What has the number `code` of `docs/format.md`: its place among the names.
pub(crate) fn of_code<V: Copy>(names: &[(&str, V)], code: u8) -> Option<V> {
    names.get(usize::from(code)).map(|(_, value)| *value)
}

fn some_text<V: for<'a> From<&'a str>>(text: &str) -> Option<V> {
    (!text.is_empty()).then(|| text.into())
}

fn size_as<V: TryFrom<u64>>(text: &str) -> Option<V> {
    V::try_from(size(text)?).ok()
}

/// Bytes: a number, with a unit if it has one.
fn size(text: &str) -> Option<u64> {
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
fn switch(text: &str) -> Option<bool> {
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

fn compressions(text: &str) -> Option<(Compression, Compression)> {
    let one = |text: &str| choose(&Compression::NAMES, text.trim());
    match text.split_once(',') {
        Some((level1, deeper)) => Some((one(level1)?, one(deeper)?)),
        None => one(text).map(|both| (both, both)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::ErrorKind;
    use crate::base::options::{BackgroundTuning, CommitTuning};

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
        assert_eq!((named.direct_io, named.file_permissions), (Some(false), 0o640));
        assert_eq!(named.object_store.as_deref(), Some("s3://bucket/prefix"));
        assert_eq!(named.object_cache, 2 << 30);
        assert!(named.share);
        assert_eq!(named.share_retention, Duration::from_secs(7200));
        assert_eq!(named.follower_name.as_deref(), Some("reports"));
        let tuning = CommitTuning::new().group_batches(16).group_bytes(128 << 10);
        assert_eq!(named.commit_tuning, tuning.own_streams(4));
        let background = BackgroundTuning::new().threads(3).bytes_per_second(1 << 20);
        assert_eq!(named.background_tuning, background);
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
        for (name, container) in Level0Container::NAMES {
            named.set("level0", name).unwrap();
            assert_eq!((named.level0_container(), container.name()), (container, name));
        }
        assert!(named.set("level0", "room").is_err());
        named.set("level0", "global-index").unwrap();
        named.set("compression", "lz4,none").unwrap();
        let mut again = TableOptions::new();
        for (name, text) in named.named() {
            again.set(name, &text).unwrap();
        }
        assert_eq!(again, named);
        assert_eq!(named.named().len(), 5);
        named.set("compression", "database").unwrap();
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

    /// Names are found by the number of a variant, and media have these numbers (`docs/format.md`).
    #[test]
    fn names_are_in_the_order_of_the_variants() {
        let levels = Level0Container::NAMES.map(|(_, container)| container as u8);
        let compressions = Compression::NAMES.map(|(_, compression)| compression as u8);
        assert_eq!((levels, compressions), ([0, 1, 2], [0, 1, 2]));
        assert_eq!(Level0Container::NAMES.map(|(name, it)| name == it.name()), [true; 3]);
        assert_eq!(Compression::NAMES.map(|(name, it)| name == it.name()), [true; 3]);
        assert_eq!(Tier::NAMES.map(|(name, it)| name == it.as_str()), [true; 2]);
        assert_eq!(Compression::Zstd as u8, 2);
        assert_eq!(Level0Container::Triangle as u8, 2);
        assert_eq!(of_code(&Compression::NAMES, 3), None);
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

    #[test]
    fn every_option_of_a_table_is_read_as_it_was_set() {
        for (name, _) in TableOptions::names() {
            let default = TableOptions::new();
            let (mut options, text) = (default, default.get(name).unwrap());
            options.set(name, &text).unwrap();
            assert_eq!(options, default, "{name}: {text}");
        }
        let mut options = TableOptions::new();
        for (name, value) in
            [("ttl", "604800000ms"), ("large_values", "4096"), ("compression", "lz4,none")]
        {
            options.set(name, value).unwrap();
            assert_eq!(options.get(name).unwrap(), value);
        }
        assert!(options.get("colour").is_err());
    }
}
