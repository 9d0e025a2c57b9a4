//! Bad bytes for every decoder: the corpora that fuzzing starts from, and everything it ever
//! found, as they are and changed at random. A decoder that panics, takes memory by a length that
//! it did not check, or reads again something else than it accepted, fails here.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests stop and tell")]

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Chance, rounds};

fn corpora() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus")
}

/// What is in the corpus of a decoder, by name of file.
fn corpus(decoder: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = corpora().join(decoder);
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Bytes changed at a place or two: flipped, set, cut, doubled, or taken from elsewhere.
fn changed(bytes: &[u8], chance: &mut Chance) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..1 + chance.below(3) {
        let len = bytes.len() as u64;
        if len == 0 {
            break;
        }
        let (at, to) = (chance.below(len) as usize, chance.below(len) as usize);
        match chance.below(8) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, chance.next() as u8),
            2 => bytes.extend_from_within(at..),
            3 => bytes[at] = *chance.pick(&[0, 1, 0x7f, 0x80, 0xff]),
            4 => bytes[at..].iter_mut().take(8).for_each(|byte| *byte = 0xff),
            5 => bytes[at..].iter_mut().take(4).for_each(|byte| *byte = 0),
            6 => {
                let n = 8.min(len as usize - at.max(to));
                bytes.copy_within(at..at + n, to);
            }
            _ => bytes[at] ^= 1 << chance.below(8),
        }
    }
    bytes
}

#[test]
fn every_decoder_has_a_target_of_its_name() {
    let entries = fs::read_dir(corpora().join("../fuzz_targets")).unwrap();
    let mut targets: Vec<String> = entries
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_string())
        .collect();
    targets.sort();
    let mut decoders: Vec<&str> = terrace::decoders::names().collect();
    decoders.sort_unstable();
    assert_eq!(targets, decoders);
}

#[test]
fn every_decoder_takes_its_corpus_and_what_is_like_it() {
    let mut chance = Chance::new(5);
    for decoder in terrace::decoders::names() {
        let (mut accepted, mut changes) = (0, 0);
        let files = corpus(decoder);
        for (path, bytes) in &files {
            let tried = |bytes: &[u8]| {
                let run = || terrace::decoders::run(decoder, bytes);
                std::panic::catch_unwind(run).unwrap_or_else(|_| {
                    panic!("{decoder} panics on {}, or on: {bytes:02x?}", path.display())
                })
            };
            accepted += u64::from(tried(bytes));
            for _ in 0..rounds(60, 2_000) {
                changes += u64::from(tried(&changed(bytes, &mut chance)));
            }
        }
        eprintln!("{decoder}: {} files, {accepted} accepted, {changes} changed ones", files.len());
        assert!(accepted > 0, "nothing in the corpus of {decoder} is one: cargo xtask corpora");
    }
}
