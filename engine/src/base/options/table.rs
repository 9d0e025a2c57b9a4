//! What a table is created with.
//!
//! How blocks are compressed.
//!
//! Which container level 0 keeps records in.

use std::time::Duration;

use super::named::{
    COMPRESSIONS_OF_TABLE, LEVEL0, OPERATOR, TIER, TIME_OR_NONE, bytes, bytes_or_none, count,
    declare, of_code,
};
use super::types::TypeNames;
use super::{Index, Options};
use crate::base::error::{Error, Result};
use crate::base::limits::MAX_VALUE_LEN;
use crate::base::operator::OperatorName;
use crate::base::record::Reader;
use crate::mvcc::micros;

/// Shorter than records are dated by, it would mean nothing.
const SHORTEST_TTL: Duration = Duration::from_secs(1);
const LONGEST_TTL: Duration = Duration::from_secs(1000 * 366 * 86_400);

/// Shorter ones are not worth a reference and an access of their own.
const LARGE_VALUES: std::ops::RangeInclusive<u32> = 512..=MAX_VALUE_LEN as u32;

/// Tags of fields, in `docs/format.md`.
const TAG_LEVEL0: u8 = 1;
const TAG_COLD: u8 = 2;
const TAG_MERGE_OPERATOR: u8 = 3;
const TAG_COMPRESSION: u8 = 4;
const TAG_TYPES: u8 = 5;
const TAG_TAG: u8 = 6;

declare! {
    /// What a table is created with, and keeps: see
    /// [`Database::create_table`](crate::Database::create_table).
    ///
    /// # Examples
    ///
    /// ```
    /// let options = terrace::TableOptions::new().block_size(4096).filter_bits(14);
    /// assert_ne!(options, terrace::TableOptions::default());
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct TableOptions: [const];

    /// Blocks of 16 KiB, filters of 10 bits a key, records that do not expire, all values beside
    /// their keys.
    new;

    /// Bytes of records in a block before compression, from 1 KiB to 1 MiB; 16 KiB by default. A
    /// look-up that is not cached reads one block; larger ones compress better and take a smaller
    /// index.
    block_size(bytes: u32): u32 = 16 * 1024 => bytes, takes bytes(), get block_bytes;

    /// Bits of an extent's filter for each key, at most 30; 10 by default, with which one look-up
    /// of a hundred reads a block for nothing. 0 for no filter: where every key that is asked for
    /// is there, or only ranges are read.
    filter_bits(bits: u8): u8 = 10 => bits, takes count(), get filter_bits_per_key;

    /// How long records live: a second to a thousand years. From its expiry on a record is not
    /// seen by reads, and whatever moves it next drops it. [`Database::set_ttl`] changes it.
    ///
    /// A record counts as written within about a second after it was, and at a great age up to a
    /// 64th of that later. What was committed in the last second before a crash counts as written
    /// at the next opening. What was there before any table of the database had a time to live
    /// counts as written when one got it. Never earlier: nothing lives shorter. Writing a key again
    /// is a new record. A snapshot, an iterator, or a transaction that reads as of one goes by the
    /// time at which it was made. The clock is the machine's, but it does not go back: one that was
    /// set ahead stays ahead, and what it has taken for old is gone. What has expired in extents is
    /// off the disk after as long again at the latest, mostly sooner.
    ///
    /// [`Database::set_ttl`]: crate::Database::set_ttl
    ttl(ttl: Duration): Option<Duration> = None => Some(ttl), takes TIME_OR_NONE, get time_to_live;

    /// Values of so many bytes and more are kept apart from their keys on disk: 512 to 1048576; by
    /// default none are. Compactions move what stands in their place, and not them. So the drain
    /// that takes a value out of the region (or a bulk load) writes it once. It is written again
    /// only when more than half of the values around it are gone.
    ///
    /// It pays from a few KiB on, where values are large beside their keys and are read one by one.
    /// A look-up on disk costs one read more, of exactly the value; ranges read those at once that
    /// lie near each other, as most do that were written together. Values that lie apart are not in
    /// the block cache, and each is compressed alone. Values that were replaced or deleted may take
    /// about as many bytes as the others.
    large_values(threshold: u32): Option<u32> = None
        => Some(threshold), takes bytes_or_none(), get large_values_from;

    /// Where levels 2 and deeper lie; [`Tier::Ssd`] by default. Levels 0 and 1 stay on this
    /// machine, so no write waits for an object store. A read of a block that is not cached takes
    /// one request to the store, and so does each value that lies apart
    /// ([`large_values`](TableOptions::large_values)).
    ///
    /// [`Database::set_table_options`](crate::Database::set_table_options) changes it at once; what
    /// the table has follows in the background.
    /// [`TableStats::misplaced_bytes`](crate::TableStats::misplaced_bytes) says how much is left.
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use terrace::{Options, TableOptions, Tier};
    ///
    /// let bucket = format!("file://{}", dir.path().join("bucket").display());
    /// let db = Options::new().object_store(bucket).open(dir.path().join("db"))?;
    /// let people = db.create_table("people", TableOptions::new().cold(Tier::Object))?;
    /// people.put("ada", "1815")?;
    /// # Ok(())
    /// # }
    /// ```
    cold(tier: Tier): Tier = Tier::Ssd => tier, takes TIER, get cold_tier;

    /// How blocks of this table are compressed, in level 1 and below it; by default as
    /// [`Options::compression`](crate::Options::compression) says for all tables. It counts for
    /// what is written from now on.
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// use terrace::{Compression, TableOptions};
    ///
    /// let pictures = TableOptions::new().compression(Compression::None, Compression::None);
    /// db.create_table("pictures", pictures)?;
    /// # Ok(())
    /// # }
    /// ```
    compression(level1: Compression, deeper: Compression): Option<(Compression, Compression)> = None
        => Some((level1, deeper)), takes COMPRESSIONS_OF_TABLE, get compressions;

    /// The container in which level 0 keeps records; [`Level0Container::GlobalIndex`] by default.
    ///
    /// Row tables copy each record once within the region, and give the space of commits back at
    /// once. Beside [`Index::Persistent`](crate::Index::Persistent) the persistent index has the
    /// records of all tables, in place of the container that they name.
    /// [`Database::set_table_options`] changes it for memtables to come.
    ///
    /// [`Database::set_table_options`]: crate::Database::set_table_options
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// use terrace::{Level0Container, TableOptions};
    ///
    /// db.create_table("log", TableOptions::new().level0(Level0Container::Triangle))?;
    /// # Ok(())
    /// # }
    /// ```
    level0(container: Level0Container): Level0Container = Level0Container::GlobalIndex
        => container, takes LEVEL0, get level0_container;

    /// A number of the caller's own, which means nothing to the library; 0 by default.
    ///
    /// A table keeps it when it is renamed or truncated, and on each node of a shared database:
    /// what lies elsewhere and belongs to the table can be found by it.
    tag(tag: u64): u64 = 0 => tag, takes count(), get tag_number;

    @fields
    merge_operator: Option<OperatorName> = None, takes OPERATOR;
    types: Option<TypeNames> = None;
}

/// Where the cold levels of a table lie, those from level 2 on: see [`TableOptions::cold`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Tier {
    /// In extent files of this machine, as levels 0 and 1 do.
    #[default]
    Ssd,
    /// In the object store of the database: see
    /// [`Options::object_store`](crate::Options::object_store).
    Object,
}

impl Tier {
    /// The names, in the order of the variants.
    pub(crate) const NAMES: [(&'static str, Tier); 2] =
        [("ssd", Tier::Ssd), ("object", Tier::Object)];

    /// The tier in lower-case letters, as options and the command line have it.
    pub const fn as_str(self) -> &'static str {
        Self::NAMES[self as usize].0
    }
}

/// The container in which level 0 of a table keeps its records: see [`TableOptions::level0`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Level0Container {
    /// One sorted index over records that stay where commits wrote them.
    #[default]
    GlobalIndex,
    /// Sorted row tables. One half receives memtables while drains take columns of the other.
    Matrix,
    /// Sorted row tables. Each drain takes the column that waited longest, from all of them.
    Triangle,
}

impl Level0Container {
    /// The names, in the order of the variants, and of the numbers of `docs/format.md`.
    pub(crate) const NAMES: [(&'static str, Level0Container); 3] = [
        ("global-index", Level0Container::GlobalIndex),
        ("matrix", Level0Container::Matrix),
        ("triangle", Level0Container::Triangle),
    ];

    /// The name that [`TableOptions::set`] takes: `global-index`, `matrix` or `triangle`.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }
}

impl TableOptions {
    /// The merge operator of the table, by name: one of [`operators`](crate::operators), or one
    /// that [`Options::merge_operator`](crate::Options::merge_operator) registers. By default there
    /// is none, and [`Table::merge`](crate::Table::merge) is refused.
    ///
    /// A table that has one keeps it. A table with a merge operator has no time to live: a value
    /// that is made of several records has no age of its own.
    #[must_use]
    pub fn merge_operator(mut self, name: &str) -> TableOptions {
        self.merge_operator = Some(OperatorName::new(name));
        self
    }

    /// The name of the merge operator, if there is one: see [`TableOptions::merge_operator`].
    pub fn merge_operator_name(&self) -> Option<&str> {
        self.merge_operator.as_ref().map(OperatorName::as_str)
    }

    /// The options that are not the default ones, each with the text that [`TableOptions::set`]
    /// takes.
    ///
    /// # Examples
    ///
    /// ```
    /// let options = terrace::TableOptions::new().block_size(4096);
    /// assert_eq!(options.named(), [("block_size", "4096".to_string())]);
    /// ```
    pub fn named(&self) -> Vec<(&'static str, String)> {
        let texts = TableOptions::texts;
        let both = texts(self).into_iter().zip(texts(&TableOptions::new()));
        both.filter(|(own, default)| own != default).map(|(own, _)| own).collect()
    }

    fn texts(&self) -> [(&'static str, String); 9] {
        let TableOptions {
            block_size,
            filter_bits,
            ttl: _,
            large_values,
            level0,
            cold,
            merge_operator: _,
            types: _,
            compression,
            tag,
        } = *self;
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "none".to_string());
        let name = |it: Compression| Compression::NAMES[it as usize].0;
        let both = |(one, two)| format!("{},{}", name(one), name(two));
        [
            ("block_size", block_size.to_string()),
            ("filter_bits", filter_bits.to_string()),
            ("ttl", or_none(self.ttl_micros().map(|micros| format!("{micros}us")))),
            ("large_values", or_none(large_values.map(|from| from.to_string()))),
            ("level0", level0.name().to_string()),
            ("cold", cold.as_str().to_string()),
            ("merge_operator", or_none(self.merge_operator_name().map(str::to_string))),
            ("compression", compression.map_or_else(|| "database".to_string(), both)),
            ("tag", tag.to_string()),
        ]
    }

    /// The time to live, in the clock's unit.
    pub(crate) fn ttl_micros(&self) -> Option<u64> {
        self.ttl.map(micros)
    }

    pub(crate) fn check(&self) -> Result<()> {
        let TableOptions {
            block_size,
            filter_bits,
            ttl,
            large_values,
            level0: _,
            cold: _,
            merge_operator,
            types: _,
            compression: _,
            tag: _,
        } = self;
        if let Some(name) = merge_operator {
            name.check()?;
            if ttl.is_some() {
                let name = name.as_str();
                return Err(Error::invalid(format!(
                    "the merge operator {name:?} and a time to live: a table takes one of them"
                )));
            }
        }
        if !(1 << 10..=1 << 20).contains(block_size) {
            let message = format!("a block size of {block_size} bytes: it takes 1024 to 1048576");
            return Err(Error::invalid(message));
        }
        if *filter_bits > 30 {
            return Err(Error::invalid(format!("{filter_bits} bits of filter: it takes 0 to 30")));
        }
        if let Some(ttl) = ttl.filter(|ttl| !(SHORTEST_TTL..=LONGEST_TTL).contains(ttl)) {
            let message = format!("a time to live of {ttl:?}: it takes a second to 1000 years");
            return Err(Error::invalid(message));
        }
        if let Some(from) = large_values.filter(|from| !LARGE_VALUES.contains(from)) {
            let message = format!("large values from {from} bytes on: it takes 512 to 1048576");
            return Err(Error::invalid(message));
        }
        Ok(())
    }

    /// Appends the fields of `docs/format.md`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.block_size.to_le_bytes());
        out.push(self.filter_bits);
        let fields = self.encode_fields();
        // What comes behind a number needs the number: 0 says that there is none.
        let large_values = self.large_values.or((!fields.is_empty()).then_some(0));
        let ttl = self.ttl_micros().or(large_values.map(|_| 0));
        out.extend(ttl.map(u64::to_le_bytes).into_iter().flatten());
        out.extend(large_values.map(u32::to_le_bytes).into_iter().flatten());
        out.extend_from_slice(&fields);
    }

    /// The tagged fields, ascending by tag; those with their default value are left out.
    fn encode_fields(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.level0 != Level0Container::default() {
            out.extend_from_slice(&[TAG_LEVEL0, 1, self.level0 as u8]);
        }
        if self.cold == Tier::Object {
            out.extend_from_slice(&[TAG_COLD, 1, 1]);
        }
        if let Some(name) = self.merge_operator_name() {
            out.extend_from_slice(&[TAG_MERGE_OPERATOR, name.len() as u8]);
            out.extend_from_slice(name.as_bytes());
        }
        if let Some((level1, deeper)) = self.compression {
            out.extend_from_slice(&[TAG_COMPRESSION, 2, level1 as u8, deeper as u8]);
        }
        if let Some(types) = self.types.map(|types| types.encode()) {
            out.extend_from_slice(&[TAG_TYPES, types.len() as u8]);
            out.extend_from_slice(&types);
        }
        if self.tag != 0 {
            out.extend_from_slice(&[TAG_TAG, 8]);
            out.extend_from_slice(&self.tag.to_le_bytes());
        }
        out
    }

    /// Reads one tagged field; `None` if it is not known or says what cannot be.
    fn decode_field(&mut self, tag: u8, bytes: &[u8]) -> Option<()> {
        match (tag, bytes) {
            (TAG_LEVEL0, [code]) => {
                self.level0 = of_code(&Level0Container::NAMES, *code)
                    .filter(|it| *it != Level0Container::default())?;
            }
            (TAG_COLD, [1]) => self.cold = Tier::Object,
            (TAG_COMPRESSION, [level1, deeper]) => {
                let both = (
                    of_code(&Compression::NAMES, *level1)?,
                    of_code(&Compression::NAMES, *deeper)?,
                );
                self.compression = Some(both);
            }
            (TAG_MERGE_OPERATOR, name) => self.merge_operator = Some(OperatorName::decode(name)?),
            (TAG_TYPES, names) => self.types = Some(TypeNames::decode(names)?),
            (TAG_TAG, bytes) => {
                self.tag = u64::from_le_bytes(bytes.try_into().ok()?);
                (self.tag != 0).then_some(())?;
            }
            _ => return None,
        }
        Some(())
    }

    /// Reads the fields; `None` if there are too few bytes or they say what cannot be.
    pub(crate) fn decode(bytes: &[u8]) -> Option<TableOptions> {
        let mut reader = Reader::new(bytes);
        let (block_size, filter_bits) = (reader.u32()?, reader.u8()?);
        let ttl = if reader.is_empty() { None } else { Some(reader.u64()?) };
        let large_values = if reader.is_empty() { None } else { Some(reader.u32()?) };
        let has_fields = !reader.is_empty();
        // No time to live is said with what comes behind it alone, no large values likewise.
        let ttl = ttl.filter(|ttl| *ttl > 0 || large_values.is_none()).map(Duration::from_micros);
        let large_values = large_values.filter(|from| *from > 0 || !has_fields);
        let mut options =
            TableOptions { block_size, filter_bits, ttl, large_values, ..TableOptions::new() };
        let mut last = 0;
        while !reader.is_empty() {
            let (tag, len) = (reader.u8()?, reader.u8()?);
            let bytes = reader.take(usize::from(len)).filter(|_| tag > last)?;
            options.decode_field(tag, bytes)?;
            last = tag;
        }
        options.check().ok().map(|()| options)
    }
}

/// How blocks of extents are compressed. Each block says how it is, so the choice can differ from
/// opening to opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// Not at all.
    None,
    /// lz4: a fast way to a little.
    Lz4,
    /// zstd at its fastest level: about as small as its slower ones on blocks of 16 KiB.
    Zstd,
}

impl Compression {
    /// The names, in the order of the variants, and of the numbers of `docs/format.md`.
    pub(crate) const NAMES: [(&'static str, Compression); 3] =
        [("none", Compression::None), ("lz4", Compression::Lz4), ("zstd", Compression::Zstd)];

    /// The name, in lower-case letters: `none`, `lz4` or `zstd`.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }
}

impl Options {
    /// The container of a table's level 0: what tests set for all tables, else what the options of
    /// the table say. A persistent index knows no row tables: an opening without room for one makes
    /// none, since the next one may have room.
    pub(crate) fn container_of(&self, table: &TableOptions) -> Level0Container {
        #[cfg(any(test, feature = "testing"))]
        if let Some(container) = self.container {
            return container;
        }
        match self.index {
            Index::Persistent => Level0Container::GlobalIndex,
            Index::Volatile => table.level0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_round_trip_and_no_others_are_read() {
        let (usual, hour) = (TableOptions::new(), Duration::from_secs(3600));
        let matrix = usual.level0(Level0Container::Matrix);
        for options in [
            usual,
            usual.ttl(hour),
            usual.large_values(4096).ttl(hour),
            matrix,
            matrix.ttl(hour),
            matrix.large_values(4096),
            usual.cold(Tier::Object),
            matrix.cold(Tier::Object).ttl(hour),
            usual.merge_operator("counter"),
            matrix.large_values(512).merge_operator("a"),
            usual.compression(Compression::None, Compression::Zstd),
            matrix.merge_operator("a").compression(Compression::Lz4, Compression::Lz4),
            TableOptions { types: TypeNames::decode(b"\x03u64String"), ..usual.ttl(hour) },
            usual.tag(u64::MAX),
            matrix.ttl(hour).tag(1),
        ] {
            let mut bytes = Vec::new();
            options.encode(&mut bytes);
            assert_eq!(TableOptions::decode(&bytes), Some(options));
            assert_eq!(TableOptions::decode(&bytes[..bytes.len() - 1]), None);
            assert_eq!(TableOptions::decode(&[&bytes[..], &[0]].concat()), None);
        }
        for wrong in [&b""[..], b"\x00a", b"\x01a", b"\x02a", b"\x01a\xff"] {
            assert_eq!(TypeNames::decode(wrong), None, "{wrong:?}");
        }
        let mut untagged = Vec::new();
        usual.tag(1 << 8).encode(&mut untagged);
        let at = untagged.len() - 7;
        untagged[at] = 0;
        assert_eq!(TableOptions::decode(&untagged), None, "no tag is said by leaving it out");
        let (mut apart, mut zero) = (Vec::new(), Vec::new());
        usual.large_values(1 << 20).encode(&mut apart);
        assert_eq!(TableOptions::decode(&apart), Some(usual.large_values(1 << 20)));
        usual.ttl(Duration::ZERO).encode(&mut zero);
        assert_eq!(TableOptions::decode(&zero), None, "none is said by leaving it out");
        for wrong in [0, 511, (1 << 20) + 1] {
            assert!(usual.large_values(wrong).check().is_err());
        }
        assert!(usual.large_values(512).check().is_ok());
        assert!(usual.merge_operator("counter").ttl(hour).check().is_err());
        assert!(usual.merge_operator("").check().is_err());
    }
}
