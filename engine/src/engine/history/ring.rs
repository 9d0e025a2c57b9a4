//! Samples in two files of the database's directory. The ring appends samples to one of them. When
//! that file is full, the ring empties the other one and goes on there. So two files bound the
//! history, and the older half stays. `docs/format.md` ("The history") has the bytes.
//!
//! No sync is made: what a power cut takes are the last samples. A record that does not check out
//! ends its file, for a reader as for the next writer, who appends there. The checksum has the
//! file's turn in it, so nothing of an earlier turn passes.
//!
//! Thread safety: a ring is one thread's. Readers, of this process or another, need no lock: they
//! see a record whole or not at all.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::record::{Reader, checksum, put_bytes, put_u32, put_u64, put_varint, varint};
use crate::os::{File, Files, OpenHow};

/// The files' names.
pub(crate) const NAMES: [&str; 2] = ["history-0", "history-1"];
const MAGIC: &[u8; 8] = b"TERRHIST";
/// Magic, turn, and the checksum of the turn.
const HEAD: usize = 20;
/// A file has no more bytes.
const MOST: u64 = 4 << 20;

/// A record's kind: the names of values, one a line.
const NAMES_OF_VALUES: u8 = 1;
/// A record's kind: a moment, and for each name how its value differs from the one before.
const VALUES: u8 = 2;

/// Values at one moment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    /// Milliseconds since 1970.
    pub(crate) at: u64,
    /// In the order of text.
    pub(crate) names: Arc<[String]>,
    /// One for each name.
    pub(crate) values: Vec<f64>,
}

/// A file as far as it checks out.
#[derive(Debug, Default)]
pub(crate) struct FoundSamples {
    /// How often a file was begun, in this one.
    turn: u64,
    /// Where the next record goes.
    end: usize,
    pub(crate) samples: Vec<Sample>,
}

/// What records of a file build on.
#[derive(Debug)]
struct SampleEncoder {
    turn: u64,
    /// The values before.
    values: BTreeMap<String, f64>,
}

impl SampleEncoder {
    fn new(turn: u64) -> SampleEncoder {
        SampleEncoder { turn, values: BTreeMap::new() }
    }

    fn head(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        put_u64(&mut bytes, self.turn);
        put_u32(&mut bytes, checksum(&[self.turn], MAGIC));
        bytes
    }

    /// The bytes of a sample: two records where a name is new, else one. A name that has no value
    /// now, as of a level that is empty, stays: counters keep their value, and all else is 0.
    fn encode(&mut self, at: u64, values: BTreeMap<String, f64>) -> Vec<u8> {
        let (mut bytes, mut body) = (Vec::new(), Vec::new());
        put_u64(&mut body, at);
        let mut next = values;
        for (name, last) in &self.values {
            let gone = if is_counter(name) { *last } else { 0.0 };
            next.entry(name.clone()).or_insert(gone);
        }
        if next.len() > self.values.len() {
            let names: Vec<&str> = next.keys().map(String::as_str).collect();
            self.put(&mut bytes, NAMES_OF_VALUES, names.join("\n").as_bytes());
            self.values = next.keys().map(|name| (name.clone(), 0.0)).collect();
        }
        for (value, last) in next.values().zip(self.values.values()) {
            // The bits that differ are high ones mostly, and few bytes the other way round.
            put_varint(&mut body, (value.to_bits() ^ last.to_bits()).swap_bytes());
        }
        self.put(&mut bytes, VALUES, &body);
        self.values = next;
        bytes
    }

    fn put(&self, bytes: &mut Vec<u8>, kind: u8, body: &[u8]) {
        let body = [&[kind], body].concat();
        put_u32(bytes, checksum(&[self.turn], &body));
        put_bytes(bytes, &body);
    }
}

/// Whether a value only rises while a database is open.
fn is_counter(name: &str) -> bool {
    let name = name.split('{').next().unwrap_or_default();
    ["_total", "_count", "_sum", "_bucket"].iter().any(|end| name.ends_with(end))
}

/// What a file holds of samples from `since` on; `None` where its head does not check out.
pub(crate) fn decode(bytes: &[u8], since: u64) -> Option<FoundSamples> {
    let mut reader = Reader::new(bytes.strip_prefix(MAGIC)?);
    let turn = reader.u64()?;
    if reader.u32()? != checksum(&[turn], MAGIC) {
        return None;
    }
    let mut contents = FoundSamples { turn, end: HEAD, samples: Vec::new() };
    let (mut names, mut last): (Arc<[String]>, Vec<u64>) = <_>::default();
    while let Some(record) = next_record(&mut reader, turn) {
        let Some(record_of) = record.split_first() else { break };
        match record_of {
            (&NAMES_OF_VALUES, body) => {
                let Ok(text) = str::from_utf8(body) else { break };
                names = text.split('\n').map(str::to_owned).collect();
                last = vec![0; names.len()];
            }
            (&VALUES, body) => {
                let Some(at) = next_values(body, &mut last) else { break };
                if at >= since {
                    let values = last.iter().map(|bits| f64::from_bits(*bits)).collect();
                    contents.samples.push(Sample { at, names: Arc::clone(&names), values });
                }
            }
            _ => break,
        }
        contents.end += 8 + record.len();
    }
    Some(contents)
}

/// The next record with its kind, if it checks out.
fn next_record<'a>(reader: &mut Reader<'a>, turn: u64) -> Option<&'a [u8]> {
    let sum = reader.u32()?;
    let record = reader.bytes()?;
    (!record.is_empty() && sum == checksum(&[turn], record)).then_some(record)
}

/// Takes the values on by what a record says, whole or not at all; its moment.
fn next_values(body: &[u8], last: &mut Vec<u64>) -> Option<u64> {
    let (at, mut next) = (u64::from_le_bytes(*body.first_chunk()?), last.clone());
    let mut place = 8;
    for bits in &mut next {
        *bits ^= varint(body, &mut place)?.swap_bytes();
    }
    *last = (place == body.len()).then_some(next)?;
    Some(at)
}

/// The samples of a directory from `since` on, the oldest first.
pub(crate) fn read(files: &dyn Files, directory: &Path, since: u64) -> io::Result<Vec<Sample>> {
    let mut found = Vec::new();
    for name in NAMES {
        found.extend(load(files, &directory.join(name), since)?);
    }
    found.sort_by_key(|contents| contents.turn);
    Ok(found.into_iter().flat_map(|contents| contents.samples).collect())
}

fn load(files: &dyn Files, path: &Path, since: u64) -> io::Result<Option<FoundSamples>> {
    let file = match files.open(path, OpenHow::Read) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    loop {
        match file.read_vec(0, file.len()?.min(MOST) as usize) {
            Ok(bytes) => return Ok(decode(&bytes, since)),
            // A writer has just emptied the file.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(e) => return Err(e),
        }
    }
}

/// Where a writer appends.
#[derive(Debug)]
pub(crate) struct Ring {
    files: Arc<dyn Files>,
    directory: PathBuf,
    /// A file has no more bytes.
    most: u64,
    /// None before the first sample, and after one that could not be written.
    current: Option<OpenHistory>,
}

#[derive(Debug)]
struct OpenHistory {
    number: usize,
    file: Arc<File>,
    end: u64,
    encoder: SampleEncoder,
}

impl Ring {
    pub(crate) fn new(files: Arc<dyn Files>, directory: &Path) -> Ring {
        Ring { files, directory: directory.to_path_buf(), most: MOST, current: None }
    }

    /// Appends a sample. What was there stays after an error, but for the oldest half where the
    /// ring was to go on to it.
    pub(crate) fn append(&mut self, at: u64, values: BTreeMap<String, f64>) -> io::Result<()> {
        let mut current = match self.current.take() {
            Some(current) => current,
            None => self.resume()?,
        };
        let mut bytes = current.encoder.encode(at, values);
        if current.end + bytes.len() as u64 > self.most {
            let all = std::mem::take(&mut current.encoder.values);
            current = self.begin(1 - current.number, current.encoder.turn + 1)?;
            bytes = current.encoder.encode(at, all);
        }
        current.file.try_write_all_at(&bytes, current.end)?;
        current.end += bytes.len() as u64;
        debug_assert!(current.end <= self.most, "two files are all that the history takes");
        self.current = Some(current);
        Ok(())
    }

    /// Goes on behind the newest record.
    fn resume(&self) -> io::Result<OpenHistory> {
        self.files.check(&self.directory)?;
        let mut newest: Option<(usize, FoundSamples)> = None;
        for (number, name) in NAMES.iter().enumerate() {
            let found = load(&*self.files, &self.directory.join(name), u64::MAX)?;
            let is_newer = |found: &FoundSamples| {
                newest.as_ref().is_none_or(|(_, newest)| newest.turn < found.turn)
            };
            newest = found.filter(is_newer).map(|found| (number, found)).or(newest);
        }
        let Some((number, found)) = newest else { return self.begin(0, 1) };
        let file = self.files.open(&self.directory.join(NAMES[number]), OpenHow::Write)?;
        let end = found.end as u64;
        file.set_len(end)?;
        Ok(OpenHistory { number, file, end, encoder: SampleEncoder::new(found.turn) })
    }

    /// Empties a file, and writes its head.
    fn begin(&self, number: usize, turn: u64) -> io::Result<OpenHistory> {
        self.files.check(&self.directory)?;
        let path = self.directory.join(NAMES[number]);
        let file = match self.files.open(&path, OpenHow::Write) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.files.open(&path, OpenHow::CreateNew)?
            }
            opened => opened?,
        };
        file.set_len(0)?;
        let encoder = SampleEncoder::new(turn);
        file.try_write_all_at(&encoder.head(), 0)?;
        Ok(OpenHistory { number, file, end: HEAD as u64, encoder })
    }
}

/// For fuzzing: decodes, and what is accepted reads the same once it is encoded again.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn probe(bytes: &[u8]) -> bool {
    let accepts = |bytes: &[u8]| {
        let Some(found) = decode(bytes, 0) else { return false };
        let mut encoder = SampleEncoder::new(found.turn);
        let mut again = encoder.head();
        let is_sorted = |sample: &Sample| sample.names.is_sorted_by(|one, next| one < next);
        let whole = || found.samples.iter().take_while(|sample| is_sorted(sample));
        for sample in whole() {
            let values = sample.names.iter().cloned().zip(sample.values.iter().copied());
            again.extend(encoder.encode(sample.at, values.collect()));
        }
        let again = decode(&again, 0).map_or_else(Vec::new, |found| found.samples);
        let has = |sample: &Sample, name: &String, value: &f64| {
            let place = sample.names.binary_search(name);
            place.is_ok_and(|n| sample.values[n].to_bits() == value.to_bits())
        };
        for (sample, again) in whole().zip(&again) {
            let mut values = sample.names.iter().zip(&sample.values);
            assert!(values.all(|(name, value)| has(again, name, value)), "it reads the same again");
        }
        !found.samples.is_empty()
    };
    accepts(bytes) | accepts(&with_right_sums(bytes))
}

#[cfg(any(test, feature = "testing"))]
fn with_right_sums(bytes: &[u8]) -> Vec<u8> {
    use crate::base::record::mended;
    let turn = bytes.get(8..).and_then(|rest| rest.first_chunk());
    let turn = turn.map_or(0, |turn| u64::from_le_bytes(*turn));
    let mut right = mended(bytes, 16, (0, 8), &[turn]);
    let mut at = HEAD;
    while let Some(len) = right.get(at + 4..).and_then(|rest| rest.first_chunk()) {
        let end = at + 8 + u32::from_le_bytes(*len) as usize;
        right = mended(&right, at, (at + 8, end), &[turn]);
        at = end;
    }
    right
}

#[cfg(test)]
mod tests;
