use super::prefetchers::{LANES, MOST};
use super::*;
use crate::base::memory::Gauge;
use crate::sstable::index::{Index, IndexBuilder};

/// The index of an extent of so many blocks of 16 KiB.
fn index(blocks: u32) -> Index {
    let mut builder = IndexBuilder::default();
    (0..blocks).for_each(|n| builder.add(n << 14, 1 << 14, &n.to_be_bytes(), 1));
    Index::decode(7, builder.finish(7)).unwrap()
}

const BLOCK: u32 = 1 << 14;

/// The pieces that a reader of these blocks reads, as block numbers. None is cached.
fn pieces(ahead: &ReadAhead, index: &Index, blocks: impl Iterator<Item = usize>) -> Vec<[u32; 2]> {
    counted_pieces(ahead, index, blocks, &Arc::default())
}

/// The same, with what is held of them counted.
fn counted_pieces(
    ahead: &ReadAhead,
    index: &Index,
    blocks: impl Iterator<Item = usize>,
    gauge: &Arc<Gauge>,
) -> Vec<[u32; 2]> {
    let mut read = Vec::new();
    for n in blocks {
        let entry = &index.entries()[n];
        let mut prefetchers = ahead.prefetchers(u64::MAX, PieceParts::One);
        let prefetcher = prefetchers.come_to(7, n, entry.len);
        if prefetcher.read_ahead(entry.offset, entry.len).is_some() || !prefetcher.is_walk() {
            continue;
        }
        let (offset, len) = prefetcher.next_piece(index, n, |_| false);
        assert!(offset <= entry.offset && entry.offset + entry.len <= offset + len);
        prefetcher.take(offset, vec![0; len as usize], gauge.hold(u64::from(len)));
        read.push([offset / BLOCK, len / BLOCK]);
    }
    read
}

#[test]
fn a_walk_reads_pieces_that_double_and_leaves_no_crumbs() {
    let (index, user) = (index(200), ReadAhead::for_user());
    let forward = pieces(&user, &index, 0..200);
    assert_eq!(forward, [[1, 4], [5, 8], [13, 16], [29, 32], [61, 64], [125, 75]]);
    let backward = pieces(&ReadAhead::for_user(), &index, (0..200).rev());
    assert_eq!(backward, [[195, 4], [187, 8], [171, 16], [139, 32], [75, 64], [0, 75]]);
    let job = pieces(&ReadAhead::for_job(1), &index, 0..200);
    assert_eq!(job, [[0, 64], [64, 64], [128, 72]]);
}

#[test]
fn leaps_are_no_walk_and_a_turn_begins_anew() {
    let (index, user) = (index(200), ReadAhead::for_user());
    assert_eq!(pieces(&user, &index, (0..200).step_by(3)), [[0; 2]; 0]);
    assert_eq!(pieces(&user, &index, [10, 11, 15, 16, 17].into_iter()), [[11, 4], [16, 4]]);
    assert_eq!(pieces(&user, &index, [16, 15, 14].into_iter()), [[12, 4]]);
}

#[test]
fn a_walk_goes_on_behind_the_border() {
    let (index, user) = (index(30), ReadAhead::for_user());
    assert_eq!(pieces(&user, &index, 0..30), [[1, 4], [5, 8], [13, 17]]);
    // The extent behind it has the number 7 too: what was read of the former does not pass.
    user.cross(7, 8, false);
    user.cross(8, 7, false);
    assert_eq!(pieces(&user, &index, 0..30), [[0, 30]]);
    user.cross(7, 8, true);
    user.cross(8, 7, true);
    assert_eq!(pieces(&user, &index, (20..30).rev()), [[26, 4], [18, 8]]);
}

#[test]
fn what_is_cached_at_the_far_end_is_not_read() {
    let (index, user) = (index(200), ReadAhead::for_user());
    let mut prefetchers = user.prefetchers(u64::MAX, PieceParts::One);
    prefetchers.come_to(7, 10, BLOCK);
    let prefetcher = prefetchers.come_to(7, 11, BLOCK);
    assert_eq!(
        prefetcher.next_piece(&index, 11, |offset| offset >= 13 * BLOCK),
        (11 * BLOCK, 2 * BLOCK)
    );
    assert_eq!(prefetcher.next_piece(&index, 11, |offset| offset == 13 * BLOCK).1, 4 * BLOCK);
    assert_eq!(
        prefetcher.next_piece(&index, 11, |_| true),
        (11 * BLOCK, BLOCK),
        "the one asked for is"
    );
}

#[test]
fn a_smaller_piece_is_tried_where_no_more_may_be_held() {
    let (index, user) = (index(200), ReadAhead::for_user());
    pieces(&user, &index, 0..30);
    let mut prefetchers = user.prefetchers(u64::MAX, PieceParts::One);
    let prefetcher = prefetchers.come_to(7, 30, BLOCK);
    let mut lens = Vec::new();
    loop {
        lens.push(prefetcher.next_piece(&index, 30, |_| false).1 / BLOCK);
        if !prefetcher.narrow() {
            break;
        }
    }
    assert_eq!(lens, [64, 32, 16, 8, 4]);
}

#[test]
fn walks_of_many_extents_do_not_grow_in_number() {
    let user = ReadAhead::for_user();
    let mut prefetchers = user.prefetchers(u64::MAX, PieceParts::One);
    for extent in 0..100 {
        prefetchers.come_to(extent, 3, BLOCK);
        prefetchers.come_to(extent, 4, BLOCK);
    }
    assert_eq!(prefetchers.walks.prefetchers.len(), LANES);
}

/// Bug: a range over seventeen runs and levels or more never read ahead. Cause: it kept sixteen
/// walks, and the one that was begun first made room for the next one. Fix: it has a walk for each
/// place that it reads, and the one that was used longest ago makes room.
#[test]
fn a_reader_of_many_places_walks_in_all_of_them() {
    let (user, places) = (ReadAhead::for_user(), 3 * LANES as u64);
    let walks = |n: usize, extents: std::ops::Range<u64>| {
        let mut prefetchers = user.prefetchers(u64::MAX, PieceParts::One);
        extents.filter(|at| prefetchers.come_to(*at, n, BLOCK).is_walk()).count() as u64
    };
    walks(0, 0..places);
    assert_eq!(walks(1, 0..places), 0, "it is known to read no more than sixteen");
    user.goes_through(places as usize);
    walks(0, 0..places);
    assert_eq!(walks(1, 0..places), places);
    // Others come and go. What is used stays.
    for other in 0..2 * places {
        walks(0, 1000 + other..1001 + other);
        assert_eq!(walks(2 + other as usize, 7..8), 1);
    }
}

/// Bug: some hundred iterators that rested left nothing to others of what may be read ahead. Cause:
/// what a reader had read ahead stayed with it until it went on. Fix: a reader that rests gives it
/// up where more than half of what may be is held.
#[test]
fn readers_that_rest_leave_room_for_others() {
    let ((_, store), index) = (crate::sstable::tests::sim_store(), index(200));
    let (cache, gauge) = (512 * u64::from(MOST), &store.memory().ahead);
    let most = store.memory().most_ahead(cache, false);
    let walk = |user: &ReadAhead, blocks| counted_pieces(user, &index, blocks, gauge).len();
    let users: Vec<_> = (0..100).map(|_| ReadAhead::for_user()).collect();
    for user in &users {
        assert!(walk(user, 0..100) > 1);
        user.rest(&store, cache);
        assert!(gauge.bytes() <= most / 2, "{} of {most}", gauge.bytes());
    }
    // One that gave it up goes on where it was.
    assert_eq!(counted_pieces(&users[0], &index, 99..104, gauge), [[99, 4], [103, 8]]);
    // What is most of it is left to the one that has it.
    drop(users);
    assert_eq!(gauge.bytes(), 0);
    let alone = ReadAhead::for_user();
    walk(&alone, 0..100);
    let held = gauge.bytes();
    alone.rest(&store, held);
    assert_eq!(gauge.bytes(), held);
}

/// Bug: from three on, scans at the same time read each piece twice. Cause: where all held more
/// than half of what they may, a scan dropped what it had read ahead at the end of each chunk,
/// though it went on at once. Fix: a scan that goes on keeps it, and those that rest longest drop
/// theirs.
#[test]
fn readers_that_go_on_keep_what_they_have_read_ahead() {
    let ((_, store), index) = (crate::sstable::tests::sim_store(), index(200));
    let gauge = &store.memory().ahead;
    let walk = |user: &ReadAhead, blocks| counted_pieces(user, &index, blocks, gauge);
    let users: Vec<_> = (0..5).map(|_| ReadAhead::for_user()).collect();
    for user in &users {
        assert!(walk(user, 0..100).len() > 1);
    }
    // Half of what they may hold is what two of them have.
    let each = gauge.bytes() / 5;
    let cache = 16 * 2 * 2 * each;
    for user in users.iter().chain(&users) {
        user.rest(&store, cache);
        assert_eq!(gauge.bytes(), 5 * each, "the others go on");
        drop(user.prefetchers(u64::MAX, PieceParts::One));
    }
    users[..2].iter().for_each(|user| user.rest(&store, cache));
    assert_eq!(gauge.bytes(), 5 * each);
    users[2].rest(&store, cache);
    assert_eq!(gauge.bytes(), 4 * each, "the first one has rested longest");
    drop(users);
    assert_eq!((gauge.bytes(), store.memory().resting.kept()), (0, 0));
}

/// Bug: a reader rested with all that it had read ahead, and no bound counted that. Cause: another
/// one lowered the bound while it began to rest, so the sweep evicted its own place, and it has its
/// walks locked then. Fix: it looks afterwards whether its place is there still.
#[test]
fn a_reader_that_is_evicted_while_it_begins_to_rest_holds_nothing() {
    /// Lowers the bound as soon as it is evicted.
    struct Lowers(Arc<Clock>);

    impl LetGo for Lowers {
        fn was_used(&self) -> bool {
            false
        }

        fn release(&self) {
            self.0.set_most(1);
        }
    }

    let ((_, store), index) = (crate::sstable::tests::sim_store(), index(200));
    let (gauge, resting) = (&store.memory().ahead, &store.memory().resting);
    let user = ReadAhead::for_user();
    counted_pieces(&user, &index, 0..100, gauge);
    assert!(gauge.bytes() > 0);
    resting.keep(Arc::new(Lowers(Arc::clone(resting))), u64::MAX / 2);
    user.rest(&store, 0);
    assert_eq!((gauge.bytes(), resting.kept()), (0, 0));
}

/// Walks through many extents as the walk of a merge does, which names no border: what it holds
/// then, as the store counts it, at most.
fn walk_many(ahead: &ReadAhead, job_ahead: u64) -> u64 {
    let (index, gauge) = (index(200), Arc::new(Gauge::default()));
    let mut most = 0;
    for extent in 0..40 {
        for n in 0..200 {
            let entry = &index.entries()[n];
            let mut prefetchers = ahead.prefetchers(job_ahead, PieceParts::One);
            let prefetcher = prefetchers.come_to(extent, n, entry.len);
            if prefetcher.read_ahead(entry.offset, entry.len).is_none() {
                let (offset, len) = prefetcher.next_piece(&index, n, |_| false);
                prefetcher.release();
                prefetcher.take(offset, vec![0; len as usize], gauge.hold(u64::from(len)));
            }
            most = most.max(gauge.bytes());
        }
    }
    most
}

/// Bug: a compaction through many extents held up to 16 MiB of what it had read, whatever the limit
/// of memory. Cause: each extent that a merge came to got a prefetcher of its own, and its last
/// piece stayed with the prefetcher until sixteen others had come. Fix: a job has as many
/// prefetchers as levels that it walks in.
#[test]
fn a_job_holds_one_piece_of_a_level() {
    assert_eq!(walk_many(&ReadAhead::for_job(1), u64::MAX), u64::from(MOST) * 9 / 8);
}

#[test]
fn a_job_reads_ahead_no_more_than_it_may() {
    let most = 256 * 1024;
    let held = walk_many(&ReadAhead::for_job(1), most);
    assert!((most..=most + most / 2).contains(&held), "{held} bytes");
    assert!(walk_many(&ReadAhead::for_job(4), most) <= most + most / 2);
    assert_eq!(walk_many(&ReadAhead::for_job(12), 1), 12 * u64::from(BLOCK), "a block each");
}
