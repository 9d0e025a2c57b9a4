//! Groups as they are read in zones.

use super::super::StreamPlaces;
use super::{Batch, Fixture, Slot};
use crate::base::options::Durability;
use crate::base::record::{Kind, Lsn};

fn put(target: &Slot, key: &str, value: &[u8]) -> Batch<Slot> {
    let mut batch = Batch::default();
    batch.push(target, Kind::Put, key.as_bytes(), value);
    batch
}

/// Threads commit to two streams, at once too; the reader has all groups by their LSNs, each whole,
/// wherever it begins and over the ends of zones.
#[test]
fn groups_come_in_their_order_whichever_stream_they_lie_in() {
    for dax in [false, true] {
        let fixture = Fixture::of_units(dax, 16);
        let (_, second) = fixture.second_table();
        let mut places = StreamPlaces::default();
        for round in 0..10_u64 {
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let (fixture, second) = (&fixture, &second);
                    scope.spawn(move || {
                        for n in 0..25 {
                            let key = format!("{round} {thread} {n}");
                            let value = vec![thread; 100 * n];
                            let own = if thread < 2 { &fixture.target } else { second };
                            let mut batch = put(own, &key, &value);
                            if n % 5 == 0 {
                                batch.push(second, Kind::Put, b"both", key.as_bytes());
                                batch.push(&fixture.target, Kind::Put, b"both", key.as_bytes());
                            }
                            fixture.committer.commit(&mut &batch, Durability::Durable).unwrap();
                        }
                    });
                }
            });
            let last = (round + 1) * 100;
            for from in [round * 100 + 1, last - 37] {
                let groups = fixture.committer.stored_groups(&mut places, from).unwrap();
                let found: Vec<(Lsn, usize, bool)> = groups
                    .map(|group| group.unwrap())
                    .map(|it| (it.lsn, it.parts().len(), it.parts().all(|part| !part.is_empty())))
                    .collect();
                assert_eq!(found.iter().map(|it| it.0).collect::<Vec<_>>(), {
                    (from..=last).collect::<Vec<_>>()
                });
                assert!(
                    found.iter().all(|(_, parts, is_whole)| (1..3).contains(parts) && *is_whole)
                );
                assert!(found.iter().any(|(_, parts, _)| *parts == 2));
            }
        }
        let last = fixture.committer.visible();
        assert!(fixture.committer.stored_groups(&mut places, last + 1).unwrap().next().is_none());
    }
}

/// What does not check out any more is damage, and no end.
#[test]
fn a_damaged_group_is_told() {
    for at in [10, 64 + 20] {
        let fixture = Fixture::new(false);
        for n in 0..3 {
            let batch = put(&fixture.target, "key", &[n; 100]);
            fixture.committer.commit(&mut &batch, Durability::Durable).unwrap();
        }
        let groups = || {
            let mut places = StreamPlaces::default();
            let groups = fixture.committer.stored_groups(&mut places, 1)?;
            groups.map(|group| group.map(|it| it.lsn)).collect::<Result<Vec<_>, _>>()
        };
        assert_eq!(groups().unwrap(), [1, 2, 3]);
        let zone = fixture.zones.zones_from(1)[0].number;
        let at = fixture.zones.geometry().zone(zone) + crate::pm::alloc::ZONE_HEADER + at;
        let byte = fixture.region.bytes(at, 1)[0];
        drop(fixture.region.write(at, &[byte ^ 1]));
        let error = groups().unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Corrupt, "{error}");
    }
}
