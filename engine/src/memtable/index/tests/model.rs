//! The index under the scheduler: the types of production with tiny nodes, on three threads, in
//! many schedules. `cargo test -p terrace index::tests::model`
//!
//! The scheduler interleaves at every access to atomics; what epochs do is one step.

use std::sync::Arc;

use crate::os::schedule::explore;
use crate::os::thread;

use super::slab::Slab;
use crate::base::record::LSN_MAX;
use crate::memtable::index::{Index, Records};

type Tiny = Index<Slab, 2, 2>;

fn filled(keys: &[&str]) -> (Arc<Slab>, Arc<Tiny>) {
    let slab = Slab::new(64);
    let index = Arc::new(Tiny::new(Arc::clone(&slab)));
    keys.iter().for_each(|key| put(&slab, &index, key));
    (slab, index)
}

fn put(slab: &Slab, index: &Tiny, key: &str) {
    index.insert(key.as_bytes(), 1, slab.add(key.as_bytes(), 1));
}

fn take(slab: &Arc<Slab>, index: &Tiny, key: &str) {
    let at = index.remove(key.as_bytes(), 1).unwrap();
    slab.reuse(at);
}

fn keys(slab: &Slab, index: &Tiny, forward: bool) -> Vec<String> {
    let mut cursor = index.cursor();
    let mut keys = Vec::new();
    if forward {
        cursor.seek(b"", LSN_MAX);
    } else {
        cursor.seek_before(None);
    }
    while let Some((_, at)) = cursor.version() {
        keys.push(String::from_utf8(slab.locate(at).0.to_vec()).unwrap());
        if forward {
            cursor.next();
        } else {
            cursor.prev();
        }
    }
    if !forward {
        keys.reverse();
    }
    keys
}

/// Strictly ascending, with all that stays.
fn check(keys: &[String], stable: &[&str]) {
    assert!(keys.is_sorted_by(|a, b| a < b), "{keys:?}");
    for key in stable {
        assert!(keys.iter().any(|found| found == key), "{key} is missing in {keys:?}");
    }
}

#[test]
fn insert_insert_get() {
    explore(|| {
        let (slab, index) = filled(&["b"]);
        let threads = [["a", "aa"], ["ab", "c"]].map(|own| {
            let (slab, index) = (Arc::clone(&slab), Arc::clone(&index));
            thread::spawn("model", move || {
                for key in own {
                    put(&slab, &index, key);
                    assert!(index.get(key.as_bytes(), LSN_MAX).is_some(), "{key}");
                }
            })
        });
        assert!(index.get(b"b", LSN_MAX).is_some());
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(keys(&slab, &index, true), ["a", "aa", "ab", "b", "c"]);
    });
}

#[test]
fn split_and_scan() {
    explore(|| {
        let stable = ["b", "d", "f"];
        let (slab, index) = filled(&stable);
        let writer = {
            let (slab, index) = (Arc::clone(&slab), Arc::clone(&index));
            thread::spawn("model", move || ["c", "e", "a"].map(|key| put(&slab, &index, key)))
        };
        let reader = {
            let (slab, index) = (Arc::clone(&slab), Arc::clone(&index));
            thread::spawn("model", move || check(&keys(&slab, &index, false), &["b", "d", "f"]))
        };
        check(&keys(&slab, &index, true), &stable);
        writer.join().unwrap();
        reader.join().unwrap();
        check(&keys(&slab, &index, true), &["a", "b", "c", "d", "e", "f"]);
    });
}

#[test]
fn remove_and_get() {
    explore(|| {
        let (slab, index) = filled(&["a", "b", "c", "d", "e"]);
        let writer = {
            let (slab, index) = (Arc::clone(&slab), Arc::clone(&index));
            thread::spawn("model", move || {
                for key in ["c", "d", "b"] {
                    take(&slab, &index, key);
                }
                assert!(index.get(b"c", LSN_MAX).is_none());
                put(&slab, &index, "b");
            })
        };
        let reader = {
            let (slab, index) = (Arc::clone(&slab), Arc::clone(&index));
            thread::spawn("model", move || check(&keys(&slab, &index, false), &["a", "e"]))
        };
        assert!(index.get(b"e", LSN_MAX).is_some());
        check(&keys(&slab, &index, true), &["a", "e"]);
        writer.join().unwrap();
        reader.join().unwrap();
        assert_eq!(keys(&slab, &index, true), ["a", "b", "e"]);
    });
}

/// A key gets a second version, which splits its leaf; meanwhile the first is moved to another
/// place and pruned, in whatever order. Its remover is given the offset that it has by then.
#[test]
fn a_version_is_moved_while_it_is_pruned() {
    explore(|| {
        let (slab, index) = filled(&["a", "c"]);
        let [from, to] = [(); 2].map(|()| slab.add(b"b", 1));
        index.insert(b"b", 1, from);
        let mover = {
            let (slab, index) = (Arc::clone(&slab), Arc::clone(&index));
            thread::spawn("model", move || {
                let moved = index.relocate(b"b", 1, from, to);
                if moved {
                    slab.reuse(from);
                }
                assert!(!index.relocate(b"b", 1, from, to), "it is there no more");
                moved
            })
        };
        let pruner = {
            let (slab, index) = (Arc::clone(&slab), Arc::clone(&index));
            thread::spawn("model", move || {
                index.insert(b"b", 2, slab.add(b"b", 2));
                let (seq, at) = index.get(b"b", 1).expect("only this thread removes it");
                assert!(seq == 1 && (at == from || at == to), "version {seq} at {at}");
                let removed = index.remove(b"b", 1).expect("only this thread removes it");
                slab.reuse(removed);
                removed
            })
        };
        let newest = index.get(b"b", LSN_MAX).expect("one version or the other is there");
        assert!([(1, from), (1, to)].contains(&newest) || newest.0 == 2, "{newest:?}");
        check_versions(&slab, &index);
        let (moved, removed) = (mover.join().unwrap(), pruner.join().unwrap());
        assert_eq!(removed, if moved { to } else { from });
        assert_eq!(index.get(b"b", 1), None);
        assert_eq!(index.get(b"b", LSN_MAX).map(|(seq, _)| seq), Some(2));
        assert_eq!(keys(&slab, &index, true), ["a", "b", "c"]);
    });
}

/// All versions, by key and the newest first, with those that stay.
fn check_versions(slab: &Slab, index: &Tiny) {
    let mut cursor = index.cursor();
    cursor.seek(b"", LSN_MAX);
    let mut seen = Vec::new();
    while let Some((seq, at)) = cursor.version() {
        seen.push((slab.locate(at).0.to_vec(), std::cmp::Reverse(seq)));
        cursor.next();
    }
    assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
    for key in [b"a", b"c"] {
        assert!(seen.iter().any(|(seen, _)| seen == key), "{key:?} is missing in {seen:?}");
    }
}

/// An end of the tree goes while a cursor leaves it, so that its neighbour, a few levels up, takes
/// over its range; what is then put there does not follow what the cursor has shown.
#[test]
fn a_neighbour_takes_over() {
    const KEYS: [&str; 12] = ["b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m"];
    for gone in 0..8 {
        for forward in [true, false] {
            explore(move || {
                let (slab, index) = filled(&KEYS);
                let mut order = KEYS;
                if !forward {
                    order.reverse();
                }
                order[..gone].iter().for_each(|key| take(&slab, &index, key));
                // Room in the neighbour's first leaf.
                take(&slab, &index, order[gone + 2]);
                let writer = {
                    let (slab, index) = (Arc::clone(&slab), Arc::clone(&index));
                    thread::spawn("model", move || {
                        take(&slab, &index, order[gone]);
                        put(&slab, &index, if forward { "a" } else { "n" });
                    })
                };
                check(&keys(&slab, &index, forward), &order[gone + 3..]);
                writer.join().unwrap();
            });
        }
    }
}

/// Leaves thin out and are merged, then the nodes above them, until the root takes over what its
/// only child has; meanwhile keys come between those that go, and cursors walk both ways.
#[test]
fn thin_neighbours_are_merged() {
    const KEYS: [&str; 10] = ["b", "c", "d", "e", "f", "g", "h", "i", "j", "k"];
    for (going, coming) in
        [(["c", "e", "g"], "cc"), (["j", "h", "i"], "hh"), (["d", "f", "e"], "ee")]
    {
        for forward in [true, false] {
            explore(move || {
                let (slab, index) = filled(&KEYS);
                // Thin already, but for those that go now.
                let early: Vec<_> = KEYS[1..9].iter().filter(|k| !going.contains(k)).collect();
                early[2..].iter().for_each(|key| take(&slab, &index, key));
                let stable = ["b", early[0], early[1], "k"];
                let writer = {
                    let (slab, index) = (Arc::clone(&slab), Arc::clone(&index));
                    thread::spawn("model", move || going.map(|key| take(&slab, &index, key)))
                };
                let other = {
                    let (slab, index) = (Arc::clone(&slab), Arc::clone(&index));
                    thread::spawn("model", move || {
                        put(&slab, &index, coming);
                        assert!(index.get(coming.as_bytes(), LSN_MAX).is_some(), "{coming}");
                    })
                };
                check(&keys(&slab, &index, forward), &stable);
                stable.iter().for_each(|key| {
                    assert!(index.get(key.as_bytes(), LSN_MAX).is_some(), "{key}");
                });
                writer.join().unwrap();
                other.join().unwrap();
                let mut left: Vec<_> = stable.into_iter().chain([coming]).collect();
                left.sort_unstable();
                assert_eq!(keys(&slab, &index, true), left);
            });
        }
    }
}
