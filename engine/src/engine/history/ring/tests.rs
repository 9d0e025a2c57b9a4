use super::*;
use proptest::prelude::*;
use terrace_testkit::{SimFiles, Survive};

const DIRECTORY: &str = "/db";

fn values(of: &[(&str, f64)]) -> BTreeMap<String, f64> {
    of.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

/// The moments of all samples.
fn moments(files: &SimFiles) -> Vec<u64> {
    let samples = read(files, Path::new(DIRECTORY), 0).unwrap();
    samples.iter().map(|sample| sample.at).collect()
}

/// Room for some ten samples.
const SMALL: u64 = 2400;

fn ring(files: &Arc<SimFiles>) -> Ring {
    let ring = Ring::new(Arc::clone(files) as _, Path::new(DIRECTORY));
    Ring { most: SMALL, ..ring }
}

#[test]
fn samples_come_back_in_order_with_their_names_also_after_an_opening() {
    let files = SimFiles::new();
    let given = [
        values(&[("a", 1.0), ("b", -0.5)]),
        values(&[("a", 2.0), ("b", f64::MAX)]),
        values(&[("a", 2.0), ("b_total", 5.0), ("c", 7.0)]),
        values(&[("c", 8.0)]),
    ];
    for (of_opening, part) in given.chunks(2).enumerate() {
        let mut ring = ring(&files);
        for (n, values) in part.iter().enumerate() {
            ring.append(10 * of_opening as u64 + n as u64, values.clone()).unwrap();
        }
    }
    let samples = read(&*files, Path::new(DIRECTORY), 0).unwrap();
    assert_eq!(moments(&files), [0, 1, 10, 11]);
    // Names stay as long as a database is open.
    let last = values(&[("a", 0.0), ("b_total", 5.0), ("c", 8.0)]);
    for (sample, given) in samples.iter().zip(given[..3].iter().chain([&last])) {
        let found = sample.names.iter().cloned().zip(sample.values.iter().copied());
        assert_eq!(&found.collect::<BTreeMap<_, _>>(), given);
    }
    let late = read(&*files, Path::new(DIRECTORY), 10).unwrap();
    assert_eq!(late.iter().map(|sample| sample.at).collect::<Vec<_>>(), [10, 11]);
}

/// Twenty values that differ in all bits, so that few samples fill a file.
fn large(n: u64) -> BTreeMap<String, f64> {
    let bits = |name: u64| (n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(name as u32);
    (0..20).map(|name| (format!("{name:02}"), f64::from_bits(bits(name)))).collect()
}

#[test]
fn the_ring_keeps_its_bound_and_at_least_half_of_what_it_has_room_for() {
    let files = SimFiles::new();
    let mut of_process = ring(&files);
    for n in 0..100 {
        if n % 7 == 0 {
            of_process = ring(&files);
        }
        of_process.append(n, large(n)).unwrap();
        for name in NAMES {
            let path = Path::new(DIRECTORY).join(name);
            let len = files.open(&path, OpenHow::Read).map_or(0, |file| file.len().unwrap());
            assert!(len <= SMALL, "{name} has {len} bytes");
        }
        let found = moments(&files);
        assert!(found.len() as u64 >= 9.min(n + 1), "{found:?} at {n}");
        assert_eq!(found, (n + 1 - found.len() as u64..=n).collect::<Vec<_>>());
    }
}

#[test]
fn damage_ends_a_file_and_the_next_writer_goes_on_before_it() {
    let files = SimFiles::new();
    let mut before = ring(&files);
    let mut ends = Vec::new();
    for n in 0..3 {
        before.append(n, values(&[("a", n as f64)])).unwrap();
        ends.push(before.current.as_ref().unwrap().end);
    }
    let path = Path::new(DIRECTORY).join(NAMES[0]);
    files.corrupt(&path, ends[0] + 9, 1);
    assert_eq!(moments(&files), [0]);
    ring(&files).append(7, values(&[("a", 7.0)])).unwrap();
    assert_eq!(moments(&files), [0, 7]);
    // A head that does not check out: the history begins anew.
    files.corrupt(&path, 9, 1);
    assert_eq!(moments(&files), [0; 0]);
    ring(&files).append(8, values(&[("a", 8.0)])).unwrap();
    assert_eq!(moments(&files), [8]);
}

#[test]
fn after_a_power_cut_there_is_a_beginning_of_each_file() {
    for seed in 0..200 {
        let files = SimFiles::new();
        let mut of_process = ring(&files);
        let given = 12 + seed % 9;
        for n in 0..given {
            of_process.append(n, large(n)).unwrap();
        }
        drop(of_process);
        let files = files.crash(Survive::Seeded(seed));
        let found = moments(&files);
        assert!(found.is_sorted() && found.iter().all(|at| *at < given), "{found:?}");
        ring(&files).append(given, large(given)).unwrap();
        assert_eq!(moments(&files).last(), Some(&given));
    }
}

#[test]
fn a_sample_that_cannot_be_written_is_left_out_and_later_ones_are_kept() {
    for failing in 1..9 {
        let files = SimFiles::new();
        let mut ring = ring(&files);
        files.fail_write_after(failing);
        let kept: Vec<u64> = (0..30).filter(|n| ring.append(*n, large(*n)).is_ok()).collect();
        assert_eq!(kept.len(), 29);
        let found = moments(&files);
        assert_eq!(found[..], kept[kept.len() - found.len()..], "write {failing} failed");
        assert!(found.len() >= 9);
    }
}

proptest! {
    #[test]
    fn any_cut_leaves_the_samples_before_it(
        rows in prop::collection::vec(prop::collection::vec(any::<f64>(), 3), 1..9),
        at in any::<prop::sample::Index>(),
    ) {
        let mut encoder = SampleEncoder::new(5);
        let mut bytes = encoder.head();
        let mut ends = Vec::new();
        for (n, row) in rows.iter().enumerate() {
            let row = values(&[("a", row[0]), ("b", row[1]), ("c", row[2])]);
            bytes.extend(encoder.encode(n as u64, row));
            ends.push(bytes.len());
        }
        let cut = at.index(bytes.len());
        let whole = ends.iter().filter(|end| **end <= cut).count();
        let found = decode(&bytes[..cut], 0).map_or_else(Vec::new, |found| found.samples);
        prop_assert_eq!(found.len(), whole);
        for (sample, row) in found.iter().zip(&rows) {
            let bits = |row: &[f64]| row.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&sample.values), bits(row));
        }
    }
}
