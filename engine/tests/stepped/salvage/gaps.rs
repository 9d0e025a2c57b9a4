//! What lies behind a gap of LSNs was never committed: a salvage takes no more of it than an
//! opening does, and names it.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use super::edits::edits_from;
use super::{Rows, copied, journal, rows};
use crate::common::{alone, tiny};
use terrace::{Database, Durability, ErrorKind, SalvageReport, WriteBatch};

/// The page of the floor's slots and of the GIDX words behind them.
const WORDS: Range<usize> = 2 * 4096..3 * 4096;
/// What stands in a payload, which is flipped.
const TORN: &[u8] = b"torn by the cut";
const BELOW_FLOOR: &[u8] = b"below the floor";

/// What is damaged beside the commit that a power cut tore.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Also {
    Nothing,
    /// A payload below the floor, for which an opening refuses the region.
    Payload,
    StreamObject,
    Floor,
}

type Act = (&'static str, fn(&Database));

/// Each is durable, and has one LSN.
const ACTS: [Act; 8] = [
    ("put", |db| db.existing_table("t").unwrap().put("000", "after").unwrap()),
    ("delete", |db| db.existing_table("t").unwrap().delete("000").unwrap()),
    ("range delete", |db| db.existing_table("t").unwrap().delete_range("000".."010").unwrap()),
    ("blob", |db| {
        let mut batch = WriteBatch::new();
        batch.put(&db.existing_table("t").unwrap(), "000", "after").set_blob("after");
        db.write(batch).unwrap();
    }),
    ("drop", |db| db.drop_table("t").unwrap()),
    ("truncate", |db| db.truncate_table("t").unwrap()),
    ("rename", |db| db.rename_table("t", "a").unwrap()),
    ("time to live", |db| db.set_ttl("t", Some(Duration::from_secs(1))).unwrap()),
];

fn find(bytes: &[u8], what: &[u8]) -> usize {
    bytes.windows(what.len()).position(|window| window == what).unwrap()
}

/// A database that was killed: one commit is torn, and what was done behind it is whole.
struct Killed {
    home: tempfile::TempDir,
    want: BTreeMap<String, Rows>,
}

impl Killed {
    fn new(act: fn(&Database)) -> Killed {
        Killed::with(act, false)
    }

    fn with(act: fn(&Database), keeps_edit: bool) -> Killed {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        let db = tiny().stepped().create(at("db")).unwrap();
        for name in ["below", "t", "other"] {
            drop(db.table(name).unwrap());
        }
        db.existing_table("below").unwrap().put("k", BELOW_FLOOR).unwrap();
        let table = db.existing_table("t").unwrap();
        (0..40).for_each(|n| table.put(format!("{n:03}"), [7; 100]).unwrap());
        let mut batch = WriteBatch::new();
        batch.put(&table, "k", "v").set_blob("before");
        db.write(batch).unwrap();
        let named = |name: &str| (name.to_string(), rows(&db.existing_table(name).unwrap()));
        let want = ["t", "other"].map(named).into();
        let before = edits_from(&journal(&at("db")), 64).len();
        let other = db.existing_table("other").unwrap();
        other.durability(Durability::Relaxed).put("k", TORN).unwrap();
        let words = fs::read(at("db").join("region")).unwrap()[WORDS].to_vec();
        act(&db);
        let killed = copied(&at("db"), &at("killed"));
        // The edit of what was done is lost with the process.
        let mut bytes = fs::read(killed.join("journal-00000001")).unwrap();
        let edits = edits_from(&journal(&killed), 64);
        let lost = edits[before..].last().filter(|_| !keeps_edit);
        lost.into_iter().for_each(|last| bytes[last.clone()].fill(0));
        fs::write(killed.join("journal-00000001"), bytes).unwrap();
        let killed = Killed { home, want };
        killed.change_region("killed", |region| {
            // So is the floor that named it.
            region[WORDS].copy_from_slice(&words);
            let torn = find(region, TORN);
            region[torn] ^= 1;
        });
        killed
    }

    fn at(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn change_region(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let path = self.at(name).join("region");
        let mut region = fs::read(&path).unwrap();
        change(&mut region);
        fs::write(&path, region).unwrap();
    }

    /// A copy with more damage.
    fn damaged(&self, also: Also, journal: bool) -> PathBuf {
        let name = format!("{also:?} {journal}");
        let from = copied(&self.at("killed"), &self.at(&name));
        self.change_region(&name, |region| match also {
            Also::Nothing => {}
            Also::Payload => {
                let at = find(region, BELOW_FLOOR);
                region[at] ^= 1;
            }
            Also::StreamObject => region[4 * 4096 + 20] ^= 1,
            // GIDX words lie behind its slots.
            Also::Floor => region[WORDS.start..WORDS.start + 1024].fill(0xa5),
        });
        if !journal {
            fs::remove_file(from.join("journal-00000001")).unwrap();
        }
        from
    }

    fn check(&self, what: &str, new: &Database, report: &SalvageReport) {
        for (name, want) in &self.want {
            let found = new.existing_table(name);
            let found = found.unwrap_or_else(|e| panic!("{what}: {e}, {:?}", report.lost));
            assert!(rows(&found) == *want, "{what}, {name:?}: {:?}", report.lost);
        }
        assert!(new.stats().tables.iter().all(|table| table.ttl_ms.is_none()), "{what}");
        let others = new.table_names();
        let others = others.iter().filter(|name| !self.want.contains_key(*name));
        let mut others = others.filter(|name| *name != "below");
        assert_eq!(others.next(), None, "{what}");
        assert_eq!(new.last_blob().as_deref(), Some(&b"before"[..]), "{what}");
    }
}

/// Bug: a salvage said that it left out what the journal knows. Cause: what is behind a gap was
/// asked of the region alone. An edit says that all up to its event was durable. Fix: the journal
/// is asked, too. Without the edit it is left out, and told.
///
/// An opening cut it off, with the commits in front of it, and kept the edit. `verify` found
/// nothing. Now both ask the journal, too.
#[test]
fn what_an_edit_knows_to_be_durable_is_behind_no_gap() {
    let _alone = alone();
    let rename = ACTS.iter().find(|(name, _)| *name == "rename").unwrap().1;
    for keeps_edit in [true, false] {
        let killed = Killed::with(rename, keeps_edit);
        let (from, to) = (killed.at("killed"), killed.at("new"));
        let report = terrace::Options::new().salvage(&from, &to).unwrap();
        let gaps = report.lost.iter().filter(|lost| lost.got.contains("a gap before it"));
        assert_eq!(gaps.count(), usize::from(!keeps_edit), "{:?}", report.lost);
        let new = Database::open(&to).unwrap();
        let name = if keeps_edit { "a" } else { "t" };
        assert!(rows(&new.existing_table(name).unwrap()) == killed.want["t"]);
        assert_eq!(terrace::Options::new().verify(&from).unwrap().damages.is_empty(), !keeps_edit);
        let opened = tiny().stepped().open(&from).err().map(|error| error.kind());
        assert_eq!(opened, keeps_edit.then_some(ErrorKind::Corrupt));
    }
}

/// Bug: a large commit behind a damaged one was in the version and not readable. It hid later puts.
/// Cause: an opening asked the journal for the LSNs of table events alone.
/// Fix: each edit says what was durable when it was made.
#[test]
fn a_large_commit_that_an_edit_knows_is_behind_no_gap() {
    let _alone = alone();
    let load = |db: &Database| {
        let mut load =
            db.existing_table("t").unwrap().bulk_load(terrace::Existing::Refuse).unwrap();
        load.put("loaded", "v").unwrap();
        load.finish().unwrap();
    };
    for in_header in [false, true] {
        let killed = Killed::with(load, true);
        killed.change_region("killed", |region| {
            let torn = find(region, &TORN[1..]) - 1;
            if in_header {
                region[torn] ^= 1;
                region[(torn & !63) - 64] ^= 1;
            }
        });
        let from = killed.at("killed");
        assert!(!terrace::Options::new().verify(&from).unwrap().damages.is_empty(), "{in_header}");
        let opened = tiny().stepped().open(&from).err().map(|error| error.kind());
        assert_eq!(opened, Some(ErrorKind::Corrupt), "{in_header}");
    }
}

/// CRC-32C, bit by bit, as `docs/format.md` has it for edits.
fn checksum(seeds: [u64; 2], bytes: &[u8]) -> u32 {
    let seeds = seeds.into_iter().flat_map(u64::to_le_bytes);
    let sum = seeds.chain(bytes.iter().copied()).fold(!0, |sum: u32, byte| {
        let step = |sum: u32, _| if sum & 1 == 1 { sum >> 1 ^ 0x82F6_3B78 } else { sum >> 1 };
        (0..8).fold(sum ^ u32::from(byte), step)
    });
    !sum
}

/// Bug: a salvage told nothing of a commit that an edit knew to be durable. Cause: the sector at
/// the end of its zone was damaged, and so was the commit behind it. No sub-entry was left to miss
/// it. Fix: the LSNs that the journal knows are missed, too.
#[test]
fn what_an_edit_knows_to_be_durable_is_missed_at_the_end_of_its_zone() {
    let _alone = alone();
    let rename = ACTS.iter().find(|(name, _)| *name == "rename").unwrap().1;
    let killed = Killed::with(rename, true);
    killed.change_region("killed", |region| {
        let torn = find(region, &TORN[1..]) & !63;
        // The headers of both.
        region[torn - 64] ^= 1;
        region[torn + 64] ^= 1;
    });
    let from = killed.at("killed");
    let report = terrace::Options::new().salvage(&from, killed.at("new")).unwrap();
    let is_told = |lost: &terrace::Damage| lost.what.contains("which was durable when an edit");
    assert_eq!(report.lost.iter().filter(|lost| is_told(lost)).count(), 1, "{:?}", report.lost);
    let opened = tiny().stepped().open(&from).err().map(|error| error.kind());
    assert_eq!(opened, Some(ErrorKind::Corrupt));
}

/// Bug: a salvage passed over an event behind a damaged commit, and no line told. Cause: the edit
/// of the event was not made when the process died, and only a later look at the journal said that
/// the event was durable. The events had been counted by then. Fix: the journal is asked first.
#[test]
fn an_event_without_an_edit_counts_where_another_edit_knows_it_to_be_durable() {
    let _alone = alone();
    let rename_and_load = |db: &Database| {
        db.rename_table("t", "a").unwrap();
        let mut load =
            db.existing_table("a").unwrap().bulk_load(terrace::Existing::Refuse).unwrap();
        load.put("loaded", "v").unwrap();
        load.finish().unwrap();
    };
    let killed = Killed::with(rename_and_load, true);
    let path = killed.at("killed").join("journal-00000001");
    let (journal, mut bytes) = (journal(&killed.at("killed")), fs::read(&path).unwrap());
    let edits = edits_from(&journal, 64);
    // The last three: the rename, the run, and its commit.
    let [rename, run, commit] = &edits[edits.len() - 3..] else { panic!("{edits:?}") };
    let mut kept = bytes[run.clone()].to_vec();
    let number = bytes[rename.start + 8..rename.start + 16].to_vec();
    kept[8..16].copy_from_slice(&number);
    let number = u64::from_le_bytes(number.try_into().unwrap());
    let sum = checksum([1, number], &kept[8..]);
    kept[4..8].copy_from_slice(&sum.to_le_bytes());
    bytes[rename.start..commit.end].fill(0);
    bytes[rename.start..rename.start + kept.len()].copy_from_slice(&kept);
    fs::write(&path, bytes).unwrap();
    let report = terrace::Options::new().salvage(killed.at("killed"), killed.at("new")).unwrap();
    let new = Database::open(killed.at("new")).unwrap();
    assert_eq!(new.table_names(), ["a", "below", "other"], "{:?}", report.lost);
    let found = rows(&new.existing_table("a").unwrap());
    let want = killed.want["t"].len();
    assert_eq!(found.len(), want + 1, "{:?}", report.lost);
}

/// Bug: a sound database with one damaged slot of its floor was refused, and a salvage told of
/// commits that never were. Cause: the other slot was older than an opening that had cut commits
/// off, and these counted as missing. Fix: the superblock says up to where that opening decided.
#[test]
fn the_older_floor_does_behind_an_opening_that_cut_commits_off() {
    let _alone = alone();
    let killed = Killed::new(ACTS[0].1);
    let db = tiny().stepped().open(killed.at("killed")).unwrap();
    db.existing_table("other").unwrap().put("k", "later").unwrap();
    let from = copied(&killed.at("killed"), &killed.at("again"));
    killed.change_region("again", |region| {
        let number = |at: usize| u64::from_le_bytes(region[at..at + 8].try_into().unwrap());
        let newer = [2 * 4096, 2 * 4096 + 512].into_iter().max_by_key(|at| number(*at)).unwrap();
        region[newer + 8] ^= 1;
    });
    let report = terrace::Options::new().salvage(&from, killed.at("new")).unwrap();
    let told: Vec<_> = report.lost.iter().map(|lost| lost.what.as_str()).collect();
    assert!(matches!(told[..], [slot] if slot.starts_with("floor slot")), "{told:?}");
    let opened = tiny().stepped().open(&from).unwrap();
    let found = rows(&opened.existing_table("other").unwrap());
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [(b"k".to_vec(), b"later".to_vec())]);
}

/// Bug: a large commit was gone after an opening, and nothing told. Cause: the end of the journal
/// was damaged, and an opening takes that for a torn append. The record of the commit named a run
/// that no edit made, and was passed over. Fix: such a run is corruption.
#[test]
fn a_committed_run_that_no_edit_made_is_told() {
    let _alone = alone();
    let home = tempfile::tempdir().unwrap();
    let from = home.path().join("db");
    let db = tiny().stepped().create(&from).unwrap();
    let table = db.table("t").unwrap();
    table.put("k", "v").unwrap();
    let before = edits_from(&journal(&from), 64).len();
    let mut load = table.bulk_load(terrace::Existing::Refuse).unwrap();
    (0..100).for_each(|n| load.put(format!("{n:03}"), [7; 100]).unwrap());
    load.finish().unwrap();
    let killed = copied(&from, &home.path().join("killed"));
    let mut bytes = fs::read(killed.join("journal-00000001")).unwrap();
    let edits = edits_from(&journal(&killed), 64);
    edits[before..].iter().for_each(|edit| bytes[edit.clone()].fill(0));
    fs::write(killed.join("journal-00000001"), bytes).unwrap();
    // `verify` said that all was sound: it asked the region and the journal, each by itself.
    let told = terrace::Options::new().verify(&killed).unwrap().damages;
    let is_told = |damage: &terrace::Damage| damage.expected == "an edit that names its extents";
    assert_eq!(told.iter().filter(|damage| is_told(damage)).count(), 1, "{told:?}");
    let error = tiny().stepped().open(&killed).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("an edit that names its extents"), "{error}");
}

/// Bug: one flipped header above the floor dropped acknowledged commits at the opening, and
/// `verify` said before that all was sound. Cause: it went by what an opening finds, which ends
/// there. Fix: it also looks behind the end for what was durable.
#[test]
fn a_verification_looks_behind_a_damaged_header_above_the_floor() {
    let _alone = alone();
    let home = tempfile::tempdir().unwrap();
    let from = home.path().join("db");
    let db = tiny().stepped().create(&from).unwrap();
    let table = db.table("t").unwrap();
    (0..8).for_each(|n| table.put(format!("{n}"), format!("value number {n} of eight")).unwrap());
    let killed = copied(&from, &home.path().join("killed"));
    assert_eq!(terrace::Options::new().verify(&killed).unwrap().damages, []);
    let mut region = fs::read(killed.join("region")).unwrap();
    let payload = find(&region, b"value number 4 of eight") & !63;
    region[payload - 64] ^= 1;
    fs::write(killed.join("region"), region).unwrap();
    let told = terrace::Options::new().verify(&killed).unwrap().damages;
    assert!(told.iter().any(|damage| damage.what.contains("LSN")), "{told:?}");
}

/// Bug: an opening took a damaged stream for one that a cut left half made: the cleaner was gone
/// for good, or later streams had the numbers of others. `verify` said that all was sound. Cause: a
/// stream without a tail counted as half made, wherever it was. Fix: the last one alone does, and
/// none that a creation makes.
#[test]
fn a_damaged_stream_that_was_not_used_is_damage() {
    let _alone = alone();
    let home = tempfile::tempdir().unwrap();
    let from = home.path().join("db");
    let db = tiny().stepped().create(&from).unwrap();
    db.table("t").unwrap().put("k", "v").unwrap();
    db.close().unwrap();
    let mut region = fs::read(from.join("region")).unwrap();
    // The object of stream 1.
    region[4 * 4096 + 64 + 20] ^= 1;
    fs::write(from.join("region"), region).unwrap();
    let told = |damages: &[terrace::Damage]| {
        damages.iter().filter(|damage| damage.what == "stream object").count()
    };
    assert_eq!(told(&terrace::Options::new().verify(&from).unwrap().damages), 1);
    let error = tiny().stepped().open(&from).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!(
        told(&terrace::Options::new().salvage(&from, home.path().join("new")).unwrap().lost),
        1
    );
}

/// Bug: without a journal, or with any other damage of the region, a salvage let an event behind a
/// gap end its table. Rows, deletes, blobs, runs and options behind a gap counted always, and no
/// line told of them. Cause: what is behind a gap was asked in one place, for two events, and
/// recovery was asked, which ends with the first damage. Fix: a salvage finds the last
/// LSN that was committed by itself, leaves out all that is above it, and names it in one line.
#[test]
fn nothing_behind_a_gap_counts() {
    let _alone = alone();
    for (act, done) in ACTS {
        let killed = Killed::new(done);
        for also in [Also::Nothing, Also::Payload, Also::StreamObject, Also::Floor] {
            for journal in [true, false] {
                let from = killed.damaged(also, journal);
                let what = format!("{act}, {also:?}, journal {journal}");
                let to = killed.at(&format!("new {also:?} {journal}"));
                let report = terrace::Options::new().salvage(&from, &to).unwrap();
                let new = Database::open(&to).unwrap();
                killed.check(&what, &new, &report);
                let told = report.lost.iter().filter(|lost| lost.got.contains("gap before it"));
                assert_eq!(told.count(), 1, "{what}: {:?}", report.lost);
                let is_told = |part: &str| report.lost.iter().any(|lost| lost.what.contains(part));
                assert!(also != Also::StreamObject || is_told("stream object"), "{what}");
                assert!(also != Also::Floor || is_told("floor slot A"), "{what}");
                drop(new);
                if also == Also::Nothing && journal {
                    let opened = tiny().stepped().open(&from).unwrap();
                    killed.check(&format!("{act}, opened"), &opened, &report);
                } else if also == Also::Payload && journal {
                    assert!(tiny().stepped().open(&from).is_err(), "{what}");
                }
            }
        }
    }
}

/// What is behind damage counts where anything says that it was durable.
#[test]
fn what_is_behind_damage_to_what_was_durable_counts() {
    let _alone = alone();
    for (act, done) in ACTS.into_iter().filter(|(act, _)| ["drop", "truncate"].contains(act)) {
        let home = tempfile::tempdir().unwrap();
        let from = home.path().join("db");
        let db = tiny().stepped().create(&from).unwrap();
        for name in ["t", "other"] {
            db.table(name).unwrap().put("k", "v").unwrap();
        }
        db.existing_table("other").unwrap().put("k", TORN).unwrap();
        done(&db);
        for key in ["later", "last"] {
            db.existing_table("other").unwrap().put(key, "v").unwrap();
        }
        let from = copied(&from, &home.path().join("killed"));
        let mut region = fs::read(from.join("region")).unwrap();
        let torn = find(&region, TORN);
        region[torn] ^= 1;
        fs::write(from.join("region"), region).unwrap();
        fs::remove_file(from.join("journal-00000001")).unwrap();
        let to = home.path().join("new");
        let report = terrace::Options::new().salvage(&from, &to).unwrap();
        assert!(!report.lost.iter().any(|lost| lost.got.contains("gap")), "{:?}", report.lost);
        let new = Database::open(&to).unwrap();
        let t = new.existing_table("t").map_or(0, |table| rows(&table).len());
        assert_eq!(t, 0, "{act}: {:?}", report.lost);
        let other = rows(&new.existing_table("other").unwrap());
        assert_eq!(other.keys().collect::<Vec<_>>(), [&b"k"[..], b"last", b"later"]);
        assert_eq!(other[&b"k"[..]], b"v", "an older value shows");
    }
}
