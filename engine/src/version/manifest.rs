//! Manifests: what `levels` had at one LSN, in a file of its own. A backup counts once its manifest
//! has its name.
//!
//! Its operations are those that make the metadata out of nothing, as in a journal's checkpoint;
//! places of extents are in the extent files beside it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::edit::{Edit, Op};
use super::journal::read_whole;
use super::state::State;
use crate::base::error::{Error, Mismatch, Result};
use crate::base::limits::MAX_BLOB_LEN;
use crate::base::record::{LSN_MAX, Lsn, Reader, SealRefused, Sealable, put_u32, put_u64};
use crate::os::{Directory, Files, NewFile, OpenHow};
use crate::sstable::{ExtentMeta, ValueMeta, ValueUse};
use crate::storage::Location;

/// What the name of a manifest ends with once its backup is deleted.
const DELETED: &str = "deleted";

/// In the place of a blob's length: there is none.
const NO_BLOB: u32 = u32::MAX;

/// A backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) database_id: [u8; 16],
    /// Its number in its set, from 1.
    pub(crate) number: u64,
    /// What was visible there is in it, and nothing else.
    pub(crate) lsn: Lsn,
    /// When it was begun, in seconds since 1970.
    pub(crate) created: u64,
    /// Bytes of extents that the set had not before.
    pub(crate) added: u64,
    /// The least LSN that lies above the levels, and is not in it; 0 if all is in it. Of what is
    /// later the drained maps say what is in the levels.
    pub(crate) oldest: Lsn,
    /// What the last commit with a blob left.
    pub(crate) blob: Option<Vec<u8>>,
    /// Tables and their extents.
    pub(crate) edit: Edit<Arc<ExtentMeta>>,
}

impl Sealable for Manifest {
    const MAGIC: &'static [u8; 8] = b"TERRBKUP";
    const WHAT: &'static str = "manifest of a backup";

    fn encode_rest(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.database_id);
        [self.number, self.lsn, self.created, self.added].iter().for_each(|n| put_u64(out, *n));
        put_u32(out, self.edit.ops.len() as u32);
        put_u32(out, self.blob.as_ref().map_or(NO_BLOB, |blob| blob.len() as u32));
        put_u64(out, self.oldest);
        out.extend_from_slice(self.blob.as_deref().unwrap_or_default());
        out.extend(self.edit.encode());
    }

    fn decode_rest(reader: &mut Reader<'_>) -> Option<Manifest> {
        let database_id = reader.take(16)?.try_into().ok()?;
        let (number, lsn) = (reader.u64()?, reader.u64()?);
        let (created, added) = (reader.u64()?, reader.u64()?);
        let (ops, blob, oldest) = (reader.u32()?, reader.u32()?, reader.u64()?);
        let blob = match blob {
            NO_BLOB => None,
            len if len as usize <= MAX_BLOB_LEN => Some(reader.take(len as usize)?.to_vec()),
            _ => return None,
        };
        let edit = Edit::decode(reader.rest(), ops)?;
        let manifest = Manifest { database_id, number, lsn, created, added, oldest, blob, edit };
        manifest.is_sound().then_some(manifest)
    }
}

impl Manifest {
    /// The extents of all tables.
    pub(crate) fn extents(&self) -> impl Iterator<Item = &Arc<ExtentMeta>> {
        self.edit.added()
    }

    /// Where its extents and value extents lie, each once.
    pub(crate) fn places(&self) -> BTreeSet<Location> {
        self.extents().flat_map(|extent| extent.places()).collect()
    }

    /// The operations, with other places of extents and value extents.
    pub(crate) fn relocated(&self, place: impl Fn(Location) -> Location) -> Edit<Arc<ExtentMeta>> {
        let moved = |op: &Op<Arc<ExtentMeta>>| {
            let mut op = op.clone();
            if let Op::AddExtent { extent, .. } = &mut op {
                let values = extent.values.iter().map(|one| ValueUse {
                    of: ValueMeta { location: place(one.of.location), ..one.of },
                    ..*one
                });
                let (values, location) = (values.collect(), place(extent.location));
                *extent = Arc::new(ExtentMeta { location, values, ..ExtentMeta::clone(extent) });
            }
            op
        };
        Edit { ops: self.edit.ops.iter().map(moved).collect() }
    }

    /// How many tables it has.
    pub(crate) fn tables(&self) -> usize {
        self.edit.ops.iter().filter(|op| matches!(op, Op::CreateTable { .. })).count()
    }

    /// Fails if what would be written could not be read: it must not get a name then.
    ///
    /// # Errors
    ///
    /// `Invalid`, which asks for a report.
    pub(crate) fn check(&self) -> Result<()> {
        Manifest::decode(&self.encode()).map(drop).map_err(|refused| {
            Error::invalid(format!(
                "the backup at LSN {} could not be read once it was written, and was not made: \
                 {refused}; this is a defect of Terrace, so report it",
                self.lsn
            ))
        })
    }

    /// Whether it can be opened as it is: no more than tables, their options, levels and drained
    /// maps, when their records were written, and nothing newer than it is.
    fn is_sound(&self) -> bool {
        let belongs = |op: &Op<Arc<ExtentMeta>>| match op {
            Op::CreateTable { created_lsn, .. } => *created_lsn <= self.lsn,
            Op::AddExtent { extent, .. } => extent.greatest_seq <= self.lsn,
            Op::TimeMark(mark) => mark.lsn <= self.lsn,
            Op::TimeToLive { expired, .. } => *expired <= self.lsn,
            Op::DrainedMap { map, .. } => {
                self.oldest > 0 && map.steps().iter().all(|(_, lsn)| *lsn <= self.lsn)
            }
            Op::TableOptions { .. } => true,
            _ => false,
        };
        self.number > 0
            && self.lsn < LSN_MAX
            && self.oldest <= self.lsn + 1
            && self.edit.ops.iter().all(belongs)
            && State::default().apply(&self.edit).is_ok_and(|a| a.state.value_extents().is_ok())
    }

    /// Reads the bytes of manifest `number`, which came from `place` on a tier.
    ///
    /// # Errors
    ///
    /// `Invalid` if it is of another format; `Corrupt`.
    pub(crate) fn read_bytes(
        bytes: &[u8],
        number: u64,
        (tier, place): (&'static str, PathBuf),
    ) -> Result<Manifest> {
        let found = Manifest::decode(bytes).and_then(|manifest| match manifest.number {
            found if found == number => Ok(manifest),
            found => {
                let (expected, got) = (format!("number {number}"), format!("{found}"));
                Err(SealRefused::Damaged(Mismatch::new(expected, got)))
            }
        });
        found.map_err(|refused| refused.error(Manifest::WHAT, tier, place))
    }

    /// The file of backup `number`.
    pub(crate) fn path(directory: &Path, number: u64) -> PathBuf {
        directory.join(format!("backup-{number:08}"))
    }

    /// The number of a backup, from its file's name.
    pub(crate) fn number_of(name: &str) -> Option<u64> {
        let digits = name.strip_prefix("backup-")?;
        let number = digits.parse().ok()?;
        (digits == format!("{number:08}")).then_some(number)
    }

    /// The name of an empty file that keeps the number of a backup which was deleted.
    pub(crate) fn deleted_path(directory: &Path, number: u64) -> PathBuf {
        Manifest::path(directory, number).with_extension(DELETED)
    }

    /// The number that such a file keeps, from its name.
    pub(crate) fn deleted_number_of(name: &str) -> Option<u64> {
        let (backup, extension) = name.rsplit_once('.')?;
        Manifest::number_of(backup).filter(|_| extension == DELETED)
    }

    /// Writes it, and gives it its name once it is durable: from then on there is the backup.
    ///
    /// # Errors
    ///
    /// `Full` when there is no room, or another I/O error. Only if the last sync failed, of the
    /// directory, the backup may be there.
    pub(crate) fn write(&self, files: &dyn Files, directory: &Directory) -> Result<()> {
        let path = Manifest::path(directory.path(), self.number);
        let made_as = NewFile::made_as(&path);
        let created = NewFile::create(files, &path);
        let new = created.map_err(|e| Error::io("create", &made_as, e))?;
        let written = new.file().try_write_all_at(&self.encode(), 0);
        written.map_err(|e| Error::io("write", &made_as, e))?;
        new.file().sync().map_err(|e| Error::io("sync", &made_as, e))?;
        new.rename(&path).map_err(|e| Error::io("name", &path, e))?;
        directory.sync(files).map_err(|e| Error::io("sync", directory.path(), e))
    }

    /// Reads the manifest of backup `number`.
    ///
    /// # Errors
    ///
    /// `Invalid` if there is none, or one of another format; `Corrupt`; or an I/O error.
    pub(crate) fn read(files: &dyn Files, directory: &Path, number: u64) -> Result<Manifest> {
        let path = Manifest::path(directory, number);
        let file = files.open(&path, OpenHow::Read).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                let message = format!("there is no backup {number} in {}", directory.display());
                Error::invalid(message)
            }
            _ => Error::io("open", &path, e),
        })?;
        let bytes = read_whole(&file).map_err(|e| Error::io("read", &path, e))?;
        Manifest::read_bytes(&bytes, number, ("backup", path))
    }
}

/// What `decoders` tries: the bytes as they are, and with their checksum made right.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn probe(bytes: &[u8]) -> bool {
    drop(Manifest::decode(bytes));
    let version = bytes.get(8..).and_then(|rest| rest.first_chunk().copied());
    let version = version.map_or(0, u32::from_le_bytes);
    let right = crate::base::record::mended(bytes, 12, (16, bytes.len()), &[u64::from(version)]);
    let decoded = Manifest::decode(&right);
    if let Ok(manifest) = &decoded {
        assert_eq!(Manifest::decode(&manifest.encode()).as_ref(), Ok(manifest));
    }
    decoded.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::options::TableOptions;
    use crate::base::record::checksum;
    use crate::version::edit::tests::{meta, one_of_each, referring};
    use terrace_testkit::Machine;

    fn sample() -> Manifest {
        let create = Op::CreateTable { table: 3, created_lsn: 9, name: "users".into() };
        let ops = vec![
            create,
            Op::TableOptions { table: 3, options: TableOptions::new().filter_bits(0) },
            Op::AddExtent { table: 3, level: 1, extent: meta(5, "a", "b") },
            Op::AddExtent { table: 3, level: 2, extent: Arc::new(meta(6, "a", "z").numbered(7)) },
            Op::AddExtent { table: 3, level: 3, extent: referring(7, "a", "m", 9) },
        ];
        Manifest {
            database_id: [7; 16],
            number: 2,
            lsn: 12,
            created: 1_000_000,
            added: 1000,
            oldest: 0,
            blob: Some(b"position".to_vec()),
            edit: Edit { ops },
        }
    }

    #[test]
    fn round_trips_and_finds_every_flipped_bit() {
        let none = Manifest { blob: None, edit: Edit { ops: Vec::new() }, ..sample() };
        assert_eq!(Manifest::decode(&none.encode()), Ok(none));
        let bytes = sample().encode();
        assert_eq!(Manifest::decode(&bytes), Ok(sample()));
        for i in 0..bytes.len() {
            assert!(Manifest::decode(&bytes[..i]).is_err());
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[i] ^= 1 << bit;
                assert!(Manifest::decode(&bad).is_err(), "byte {i}, bit {bit}");
            }
        }
    }

    #[test]
    fn what_cannot_be_a_backup_is_refused() {
        let of = |manifest: Manifest| Manifest::decode(&manifest.encode());
        let old = Manifest { lsn: 8, ..sample() };
        let others = Manifest { edit: one_of_each(), ..sample() };
        let twice = Edit { ops: [sample().edit.ops, sample().edit.ops].concat() };
        let twice = Manifest { edit: twice, ..sample() };
        let zero = Manifest { number: 0, ..sample() };
        let large = Manifest { blob: Some(vec![0; MAX_BLOB_LEN + 1]), ..sample() };
        for manifest in [old, others, twice, zero, large] {
            assert!(matches!(of(manifest), Err(SealRefused::Damaged(_))));
        }
        let mut later = sample().encode();
        later[8..12].copy_from_slice(&9u32.to_le_bytes());
        let sum = checksum(&[9], &later[16..]);
        later[12..16].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(Manifest::decode(&later), Err(SealRefused::Format(9)));
    }

    #[test]
    fn files_go_by_their_numbers() {
        let (machine, set) = (Machine::with_files(), Path::new("/set"));
        let files = machine.files();
        crate::os::create_directory(&*files, set).unwrap();
        sample().write(&*files, &Directory::at(set)).unwrap();
        assert_eq!(files.list(set).unwrap(), ["backup-00000002"]);
        assert_eq!(Manifest::number_of("backup-00000002"), Some(2));
        assert_eq!(
            Manifest::number_of("backup-2").or(Manifest::number_of("backup-00000002.new")),
            None
        );
        assert_eq!(Manifest::read(&*files, set, 2).unwrap(), sample());
        let missing = Manifest::read(&*files, set, 3).unwrap_err();
        assert!(missing.to_string().contains("no backup 3"), "{missing}");
        files.rename(&Manifest::path(set, 2), &Manifest::path(set, 3)).unwrap();
        let moved = Manifest::read(&*files, set, 3).unwrap_err();
        assert!(moved.damage().is_some_and(|damage| damage.expected == "number 3"), "{moved}");
    }

    /// A manifest that could not be read must not get a name. Here two extents say of one value
    /// extent that it lies at two places.
    #[test]
    fn what_could_not_be_read_is_not_written() {
        let manifest = |places: [u64; 2]| {
            let add = |id, (from, to), at: u64| {
                let extent = referring(id, from, to, 15);
                let mut values = extent.values.to_vec();
                values[0].of.location.offset = at * 16_384;
                let values = values.into();
                let extent = Arc::new(ExtentMeta { values, ..ExtentMeta::clone(&extent) });
                Op::AddExtent { table: 3, level: 1, extent }
            };
            let create = Op::CreateTable { table: 3, created_lsn: 1, name: "t".into() };
            let ops = vec![create, add(5, ("a", "b"), places[0]), add(6, ("c", "d"), places[1])];
            let (database_id, lsn) = ([7; 16], LSN_MAX - 1);
            let edit = Edit { ops };
            let (number, created, added, oldest, blob) = (1, 0, 0, 0, None);
            Manifest { database_id, number, lsn, created, added, oldest, blob, edit }
        };
        manifest([15, 15]).check().unwrap();
        let twice = manifest([15, 16]).check().unwrap_err();
        assert!(twice.to_string().contains("defect of Terrace"), "{twice}");
    }
}
