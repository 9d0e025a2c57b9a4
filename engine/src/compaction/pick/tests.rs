//! The picker's cases are text: see `engine/testdata/compaction/README.md`.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use super::super::choice::Work;
use super::super::shape::Shape;
use super::*;
use crate::base::options::{Compression, Tier};
use crate::base::record::Lsn;
use crate::compaction::shape::ClaimedKeys;
use crate::compaction::shape::cuts;
use crate::mvcc::{KeptFor, after};
use crate::sstable::{ValueMeta, ValueUse};
use crate::storage::Location;
use crate::version::{Level, Op, known_as};

/// A description with a read frequency, and the readers for which records were kept.
#[derive(Clone, Debug)]
struct Meta(Arc<ExtentMeta>, u32, KeptFor);

impl Described for Meta {
    fn meta(&self) -> &ExtentMeta {
        &self.0
    }

    fn read_frequency(&self) -> u32 {
        self.1
    }

    fn obsolete(&self, readers: &[Lsn]) -> u64 {
        self.0.obsolete_records(&self.2, readers)
    }

    fn numbered(&self, seq: Lsn) -> Meta {
        Meta(self.0.numbered(seq), self.1, self.2.clone())
    }
}

/// `id*bytes` of the 1000 that the value extent has; more are all that it has. `oid` is an object.
fn value_use(word: &str) -> ValueUse {
    let (id, bytes) = word.split_once('*').unwrap();
    let (file, id) = id.strip_prefix('o').map_or((2, id), |id| (1 << 31 | 1, id));
    let (id, bytes): (u64, u64) = (id.parse().unwrap(), bytes.parse().unwrap());
    let len = bytes.max(1000) as u32 + 64;
    let location = Location { file, offset: if file == 2 { id << 21 } else { id }, len };
    ValueUse { of: ValueMeta { id, location, values: 10, footer_checksum: 0 }, bytes }
}

/// `count@first-last` for each group of readers; a count alone is what an opening found.
fn kept(list: &str) -> (u64, KeptFor) {
    let mut kept_for = KeptFor::default();
    let mut count = 0;
    for group in list.split('+') {
        let (n, readers) = group.split_once('@').unwrap_or((group, ""));
        let n: u64 = n.parse().unwrap();
        count += n;
        if let Some((first, last)) = readers.split_once('-') {
            let readers = (first.parse().unwrap(), last.parse().unwrap());
            (0..n).for_each(|_| kept_for.add(readers));
        }
    }
    (count, kept_for)
}

/// One MiB for each extent, unless it says otherwise.
fn extent(word: &str) -> Meta {
    let (id, rest) = word.split_once(':').unwrap();
    let mut parts = rest.split(',');
    let (from, to) = parts.next().unwrap().split_once('-').unwrap();
    let mut len = 1 << 20;
    let (mut deletes, mut ranges, mut seq, mut read_frequency) = (0, 0, 2, 0);
    let (mut values, mut file) = (Vec::new(), 1);
    let mut keeps = (0, KeptFor::default());
    for part in parts {
        match part.split_once('=').unwrap() {
            ("kib", n) => len = n.parse::<u32>().unwrap() << 10,
            ("bytes", n) => len = n.parse().unwrap(),
            ("deletes", n) => deletes = n.parse().unwrap(),
            ("ranges", n) => ranges = n.parse().unwrap(),
            ("seq", n) => seq = n.parse().unwrap(),
            ("read_frequency", n) => read_frequency = n.parse().unwrap(),
            ("epoch", n) => file = 1 << 31 | n.parse::<u32>().unwrap(),
            ("kept", list) => keeps = kept(list),
            ("values", list) => values = list.split('+').map(value_use).collect(),
            other => panic!("{other:?}"),
        }
    }
    let id = id.parse().unwrap();
    let meta = Arc::new(ExtentMeta {
        id,
        location: Location { file, offset: if file == 1 { id << 21 } else { id }, len },
        records: 100,
        deletes,
        tombstones: ranges,
        smallest_seq: 1,
        greatest_seq: seq,
        one_seq: false,
        kept: keeps.0,
        raw_bytes: 1000,
        smallest_key: from.into(),
        greatest_key: to.into(),
        footer_checksum: 0,
        values: values.into(),
    });
    Meta(meta, read_frequency, keeps.1)
}

fn show(choice: Option<Choice<Meta>>) -> String {
    let ids =
        |list: &[Meta]| list.iter().map(|e| e.meta().id.to_string()).collect::<Vec<_>>().join(" ");
    match choice {
        None => "nothing".to_string(),
        Some(Choice { inputs, to, is_move: true, .. }) if to <= SUBLEVELS => {
            format!("trivially move {} to sublevel {to}", ids(&inputs[0].1))
        }
        Some(Choice { inputs, to, is_move: true, .. }) => {
            let (from, to) = (known_as(inputs[0].0), known_as(to));
            format!("move {} from level {from} to level {to}", ids(&inputs[0].1))
        }
        Some(Choice { inputs, to, overlap, collects, .. }) => {
            let from = inputs[0].0;
            let set: Vec<_> = inputs.iter().map(|(_, extents)| ids(extents)).collect();
            let set = set.join(" over ");
            if from == to {
                let out = format!("rewrite {set} in level {}", known_as(to));
                let emptied: Vec<_> = collects.iter().map(u64::to_string).collect();
                let emptied = emptied.join(" ");
                return if emptied.is_empty() { out } else { format!("{out}, out of {emptied}") };
            }
            if to <= SUBLEVELS {
                return format!("merge {set} over {} into sublevel {to}", ids(&overlap));
            }
            assert_eq!(to, (from + 1).max(LEVEL_2));
            let mut out = format!("merge {set} from level {}", known_as(from));
            if !overlap.is_empty() {
                write!(out, " with {}", ids(&overlap)).unwrap();
            }
            out
        }
    }
}

fn usual() -> Shape {
    Shape {
        level1_bytes: 2 << 20,
        level1_share: None,
        job_bytes: 0,
        little_bytes: 0,
        overlap: 8,
        ratio: 4,
        extent_bytes: 2 << 20,
        compression: (Compression::None, Compression::None),
        reuse: true,
        fills: true,
        has_objects: false,
        stays_far: false,
        local_room: None,
        drops_tombstones: false,
        forgets_below: false,
        deletes_early: false,
    }
}

fn usual_situation(shape: &Shape) -> Situation<'_> {
    Situation { readers: &[10], rests: false, busy: &[], spared: 0, work: Work::Any, shape }
}

/// `start-end`, and the uppermost and the deepest level where these are not all.
fn claimed(words: &str) -> ClaimedKeys {
    let (keys, levels) = words.split_once(' ').unwrap_or((words, "1 18"));
    let (start, end) = keys.split_once('-').unwrap();
    let (top, bottom) = levels.split_once(' ').unwrap();
    let keys = KeyInterval { start: start.into(), end: Some(end.into()) };
    ClaimedKeys::new(keys, (top.parse().unwrap(), bottom.parse().unwrap()))
}

/// A block is a comment, `shape level1_mib ratio`, the levels, and the expected choice.
fn check_case(file: &str, case: &str) {
    let mut shape = usual();
    let (mut readers, mut rests, mut busy, mut spared) = (vec![10], false, Vec::new(), 0);
    let mut work = Work::Any;
    let mut levels = vec![Level::default(); usize::from(MAX_LEVELS)];
    for line in case.lines().filter(|line| !line.starts_with('#')) {
        let (head, rest) = line.split_once(' ').unwrap_or((line, ""));
        match head {
            "shape" => {
                let (level1, ratio) = rest.split_once(' ').unwrap();
                shape.level1_bytes = level1.parse::<u64>().unwrap() << 20;
                shape.ratio = ratio.parse().unwrap();
            }
            "readers" => readers = rest.split(' ').map(|lsn| lsn.parse().unwrap()).collect(),
            "rests" => rests = true,
            "compressed" => shape.compression.1 = Compression::Zstd,
            "busy" => busy.push(claimed(rest)),
            "work" if rest == "files" => work = Work::Files,
            "work" if rest == "objects" => work = Work::Objects,
            "spared" => spared = rest.parse().unwrap(),
            "share" => shape.level1_share = Some(rest.parse().unwrap()),
            "job" => shape.job_bytes = rest.parse::<u64>().unwrap() << 20,
            "sublevel" | "level" => {
                let (n, extents) = rest.split_once(' ').unwrap_or((rest, ""));
                let n: usize = n.parse().unwrap();
                // Sublevels count from the uppermost; level 1 alone is the deepest of them.
                let n = if head == "sublevel" { n } else { usize::from(SUBLEVELS) + n - 1 };
                levels[n - 1] = Level::new(extents.split_whitespace().map(extent).collect());
                assert!(levels[n - 1].overlap().is_none(), "{file}:\n{case}");
            }
            "=>" => {
                let version = Version { levels, ..Version::empty(1) };
                let (readers, busy, shape) = (&readers, &busy, &shape);
                let now = Situation { readers, rests, busy, spared, work, shape };
                assert_eq!(show(pick(&version, &now)), rest, "{file}:\n{case}");
                return;
            }
            _ => panic!("{file}: what is {line:?}?"),
        }
    }
    panic!("{file}: a case without an expected choice\n{case}");
}

#[test]
fn what_is_read_often_comes_back_and_what_is_read_less_goes_down_for_it() {
    // Extents are 1 MiB each; `room` is in MiB.
    let picked = |room: i64, words: &str| {
        let mut levels = vec![Level::default(); usize::from(LEVEL_2)];
        let extents = words.split_whitespace().map(extent).collect();
        levels[usize::from(LEVEL_2) - 1] = Level::new(extents);
        let mut version = Version { levels, ..Version::empty(1) };
        version.options = version.options.cold(Tier::Object);
        let shape = Shape { has_objects: true, local_room: Some(room << 20), ..usual() };
        show(pick(&version, &usual_situation(&shape)))
    };
    let objects = "1:a-b,epoch=1,read_frequency=63 2:c-d,epoch=1";
    assert_eq!(picked(9, objects), "nothing", "none is read often");
    let warm = "1:a-b,epoch=1,read_frequency=64 2:c-d,epoch=1,read_frequency=80";
    assert_eq!(picked(9, warm), "rewrite 2 in level 2", "the one that is read most");
    assert_eq!(picked(1, warm), "rewrite 2 in level 2");
    assert_eq!(picked(0, warm), "nothing", "there is no room, and nothing is here");
    // 3 and 4 are here.
    let full =
        |one, other| format!("{warm} 3:e-f,read_frequency={one} 4:g-h,read_frequency={other}");
    assert_eq!(picked(0, &full(30, 20)), "rewrite 4 in level 2", "it is read a fourth as often");
    assert_eq!(picked(0, &full(30, 21)), "nothing");
    assert_eq!(picked(1, &full(0, 0)), "rewrite 2 in level 2", "there is room");
    assert_eq!(picked(-1, &full(500, 400)), "rewrite 4 in level 2", "too much is here");
    assert_eq!(picked(5, "3:e-f 4:g-h"), "nothing", "what is here stays");
}

/// Bug: a manual compaction was told to be finished while a compaction of its keys was under way,
/// which then counted itself for a request that was finished. Cause: another thread found nothing
/// left in the version that the compaction had just installed. Fix: as long as a job has claimed
/// keys of the request, there may be more.
#[test]
fn a_manual_compaction_ends_after_the_jobs_of_its_keys() {
    let shape = usual();
    let version: Version<Meta> = Version::empty(1);
    let keys = KeyInterval { start: "c".into(), end: Some("f".into()) };
    let next = |busy: &[&str]| {
        let busy: Vec<ClaimedKeys> = busy.iter().map(|words| claimed(words)).collect();
        let now = Situation { busy: &busy, ..usual_situation(&shape) };
        pick_manual(&version, (&keys, 10), &now)
    };
    assert!(matches!(next(&[]), NextManual::Nothing));
    assert!(matches!(next(&["a-b", "f-z"]), NextManual::Nothing), "of other keys");
    assert!(matches!(next(&["a-b", "e-g 13 14"]), NextManual::Busy));
}

#[test]
fn many_small_value_extents_of_an_extent_are_written_together() {
    let picked = |count: u64, bytes: u64| {
        let listed: Vec<_> = (100..100 + count).map(|id| format!("{id}*{bytes}")).collect();
        // The first one is for the thread of objects.
        let of_both = ["11:a-b,epoch=1,values=", "12:c-d,values="];
        let both = of_both.map(|words| extent(&format!("{words}{}", listed.join("+"))));
        let mut levels = vec![Level::default(); usize::from(SUBLEVELS)];
        levels[usize::from(SUBLEVELS) - 1] = Level::new(both.into());
        let version = Version { levels, ..Version::empty(1) };
        let shape = Shape { level1_bytes: 1 << 30, ..usual() };
        let now = Situation { work: Work::Files, ..usual_situation(&shape) };
        match pick(&version, &now) {
            None => 0,
            Some(Choice { inputs, collects, is_move: false, .. }) => {
                assert_eq!(inputs[0].1[0].meta().id, 12);
                collects.len()
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!([picked(63, 1000), picked(64, 1000), picked(90, 1000)], [0, 64, 90]);
    assert_eq!(picked(90, 600_000), 0, "they are not small");
    // No more than a job may write: the first one, and 8 MiB.
    assert_eq!(picked(90, 400_000), 21);
}

#[test]
fn extents_are_cut_over_a_quarter_of_a_job_of_what_lies_below() {
    let mut levels = vec![Level::default(); usize::from(MAX_LEVELS)];
    let below = ["1:a-b", "2:c-d", "3:e-f,kib=3072", "4:g-h", "5:i-j", "6:k-l"].map(extent);
    levels[usize::from(SUBLEVELS)] = Level::new(below.into());
    let version = Version { levels, ..Version::empty(1) };
    let shape = Shape { job_bytes: 8 << 20, ..usual() };
    let of = |n, keys| cuts(&version, n, &keys, &shape);
    let ends = |keys: &[&str]| keys.iter().map(|key| after(key.as_bytes())).collect::<Vec<_>>();
    assert_eq!(of(1, KeyInterval::all()), ends(&["d", "f", "j"]));
    assert_eq!(of(SUBLEVELS, KeyInterval::closed(b"c", b"h")), ends(&["d", "f"]));
    assert_eq!(of(LEVEL_2, KeyInterval::all()), ends(&[]), "nothing is below");
    // Many extents in a cell of four.
    let below = ('a'..='n').map(|c| extent(&format!("{}:{c}-{c}", c as u32)));
    let mut levels = vec![Level::default(); usize::from(MAX_LEVELS)];
    levels[usize::from(SUBLEVELS)] = Level::new(below.collect());
    let version = Version { levels, ..Version::empty(1) };
    let shape = Shape { job_bytes: 16 << 20, ..usual() };
    assert_eq!(cuts(&version, 1, &KeyInterval::all(), &shape), ends(&["d", "h", "l"]));
}

#[test]
fn extents_are_cut_at_edges_that_other_sublevels_have() {
    let mut levels = vec![Level::default(); usize::from(MAX_LEVELS)];
    let below = ["1:a-b", "2:c-d", "3:e-f", "4:g-h", "5:i-j", "6:k-l"].map(extent);
    levels[usize::from(SUBLEVELS)] = Level::new(below.into());
    levels[usize::from(SUBLEVELS) - 1] = Level::new(["11:b-e", "12:f-k"].map(extent).into());
    levels[usize::from(SUBLEVELS) - 2] = Level::new(["21:a-ee", "22:g-l"].map(extent).into());
    let version = Version { levels, ..Version::empty(1) };
    let shape = Shape { job_bytes: 12 << 20, ..usual() };
    // One of them has keys on both sides of `e`, none of `ee`; both have of all ends below.
    assert_eq!(cuts(&version, 1, &KeyInterval::all(), &shape), [after(b"ee")]);
}

#[test]
fn what_lay_over_an_input_set_that_is_gone_moves_down_as_deep_as_it_can() {
    let mut levels = vec![Level::default(); usize::from(MAX_LEVELS)];
    let mut fill = |n: u8, words: &[&str]| {
        levels[usize::from(n) - 1] = Level::new(words.iter().map(|word| extent(word)).collect());
    };
    fill(SUBLEVELS, &["1:a-c", "2:d-f", "3:g-i"]);
    fill(SUBLEVELS - 1, &["4:a-c", "5:d-f"]);
    fill(SUBLEVELS - 2, &["6:a-b", "7:c-e", "8:g-h"]);
    fill(SUBLEVELS - 3, &["9:a-b", "10:d-e", "11:f-f", "12:h-h"]);
    let version = Version { levels, ..Version::empty(1) };
    let all: Vec<Meta> = version.extents().map(|(_, extent)| extent.clone()).collect();
    let sunk_over = |to: u8, gone: &[u64], busy: &[ClaimedKeys]| {
        let is_gone = |extent: &&Meta| gone.contains(&extent.meta().id);
        let removed: Vec<Meta> = all.iter().filter(is_gone).cloned().collect();
        let done = Choice { to, ..Choice::again(&version, 1, &removed) };
        let ops = super::super::trivial_moves(&version, &done, busy).ops;
        let moved = ops.into_iter().map(|op| match op {
            Op::MoveExtent { table: 1, from, to, id } => (id, SUBLEVELS - from, SUBLEVELS - to),
            other => panic!("{other:?}"),
        });
        moved.collect::<Vec<_>>()
    };
    let sunk = |gone: &[u64], busy: &[ClaimedKeys]| sunk_over(LEVEL_2, gone, busy);
    // 7 reaches into d to f, which stay; 8 lies elsewhere.
    assert_eq!(sunk(&[1, 4], &[]), [(6, 2, 0), (9, 3, 1)]);
    let all_of_two = [(7, 2, 0), (10, 3, 1), (11, 3, 0)];
    assert_eq!(
        sunk(&[1, 2, 4, 5, 6], &[]),
        [&all_of_two[..1], &[(9, 3, 0)], &all_of_two[1..]].concat()
    );
    let busy = [ClaimedKeys::in_all_levels(KeyInterval::closed(b"f", b"g"))];
    assert_eq!(sunk(&[2, 5], &busy), []);
    assert_eq!(sunk(&[1, 2, 4, 5], &busy), [(6, 2, 0), (7, 2, 0), (9, 3, 1), (10, 3, 1)]);
    let below = [ClaimedKeys::new(KeyInterval::closed(b"a", b"b"), (SUBLEVELS, LEVEL_2))];
    assert_eq!(sunk(&[1, 4], &below), [(6, 2, 1), (9, 3, 2)], "not into what is busy");
    // What an intra-L1 compaction writes has the keys of its inputs in the sublevel that it goes
    // to.
    assert_eq!(sunk(&[8], &[]), [(12, 3, 1)]);
    assert_eq!(sunk_over(SUBLEVELS - 1, &[8], &[]), [(12, 3, 2)]);
    assert_eq!(sunk_over(SUBLEVELS - 2, &[12], &[]), [], "8 is merged with it");
}

/// Bug (`work.txt`): with a slow object store, tombstones and dead values in files stayed, and
/// versions that no reader needs, as long as more of them were in objects. Cause: each picker named
/// its best choice, which was then dropped if it was another thread's. Fix: a picker passes over
/// what is another thread's, as over what is busy.
#[test]
fn the_text_cases_hold() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/compaction");
    let mut cases = 0;
    for file in std::fs::read_dir(directory).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            let text = std::fs::read_to_string(&path).unwrap();
            for case in text.split("\n\n").map(str::trim).filter(|case| !case.is_empty()) {
                check_case(&path.display().to_string(), case);
                cases += 1;
            }
        }
    }
    assert!(cases >= 80, "only {cases} cases");
}

/// A compaction is promised no room for what its deletes hide: themselves, and as many records that
/// come in with them. Where a reader is older they hide nothing.
#[test]
fn deletes_hide_as_many_records_as_they_are() {
    let (table, to, is_move, is_copy) = (1, LEVEL_2, false, false);
    let hidden = |upper: &str, under: &[&str], oldest: Lsn| {
        let inputs = vec![(1, vec![extent(upper)])];
        let overlap = under.iter().map(|word| extent(word)).collect();
        let collects = std::collections::BTreeSet::new();
        let choice = Choice { table, inputs, to, overlap, collects, is_move, is_copy };
        choice.hidden_bytes(oldest) >> 10
    };
    assert_eq!(hidden("1:a-z,deletes=100,seq=9", &["2:a-z"], 9), 2048);
    assert_eq!(hidden("1:a-z,deletes=100,seq=9", &["2:a-z"], 8), 0, "a reader is older");
    assert_eq!(hidden("1:a-z,deletes=25", &["2:a-z"], 9), 512, "50 of 200");
    assert_eq!(hidden("1:a-z,deletes=100", &[], 9), 1024, "no more than there is");
}
