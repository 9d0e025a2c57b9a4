//! Histories of transactions, checked for the cycles that their level forbids (Adya's graphs, as
//! Elle builds them from lists that are only appended to).
//!
//! A value is the list of its writers, once for each time. So what was read shows the order of a
//! key's versions and the version that each reader read. It also shows a read of a part of what a
//! transaction writes (G1b). A range that was read has an empty list for each key that is not
//! there, so phantoms are edges like others. Edges: ww (wrote the next version), wr (read what it
//! wrote), rw (wrote the version after the one that was read), rt (was acknowledged before it was
//! called, where both moments are known). Read committed forbids cycles of ww, wr and rt, and rw
//! before a way to an rt that ends where it began; snapshot those in which no two rw follow each
//! other; serializable all.

use std::collections::{BTreeMap, BTreeSet};

use terrace::Isolation;

/// A committed transaction: what it read of others, and where it appended itself.
#[derive(Clone, Debug, Default)]
pub struct Done {
    pub id: u32,
    /// Key, and the list that was read.
    pub reads: Vec<(u8, Vec<u32>)>,
    /// Keys; it read the list before. Some come twice.
    pub appends: Vec<u8>,
    /// When it was called, and when its commit was acknowledged, if that is known.
    pub called: Option<u64>,
    pub acknowledged: Option<u64>,
}

impl Done {
    /// Whether it was acknowledged before the other was called.
    fn is_before(&self, other: &Done) -> bool {
        let moments = self.acknowledged.zip(other.called);
        moments.is_some_and(|(acknowledged, called)| acknowledged < called)
    }

    /// How often it appended to a key.
    pub fn times(&self, key: u8) -> usize {
        self.appends.iter().filter(|of| **of == key).count()
    }
}

/// How often a transaction is in a list.
pub fn times(list: &[u32], id: u32) -> usize {
    list.iter().filter(|of| **of == id).count()
}

type Edges = BTreeMap<u32, BTreeSet<u32>>;

/// Edges by kind: those of ww, wr and rt together, and rw.
struct Graph {
    depends: Edges,
    anti: Edges,
}

/// Builds the graph. Fails when a list contradicts another, a write is lost or comes from nowhere.
fn graph(history: &[Done]) -> Result<Graph, String> {
    let mut orders: BTreeMap<u8, Vec<u32>> = BTreeMap::new();
    for done in history {
        for (key, list) in &done.reads {
            let order = orders.entry(*key).or_default();
            if list.len() > order.len() {
                order.clone_from(list);
            }
        }
    }
    for done in history {
        for key in &done.appends {
            let order = orders.entry(*key).or_default();
            while times(order, done.id) < done.times(*key) {
                // Unread: only the last versions of a key can be that.
                order.push(done.id);
            }
        }
    }
    let writers: BTreeSet<(u8, u32)> =
        history.iter().flat_map(|d| d.appends.iter().map(|key| (*key, d.id))).collect();
    let (mut depends, mut anti) = (Edges::new(), Edges::new());
    for (key, order) in &orders {
        if let Some(id) = order.iter().find(|id| !writers.contains(&(*key, **id))) {
            return Err(format!("key {key}: {id} was read and never committed"));
        }
        for pair in order.windows(2).filter(|pair| pair[0] != pair[1]) {
            depends.entry(pair[0]).or_default().insert(pair[1]);
        }
    }
    for done in history {
        for (key, list) in &done.reads {
            let order = &orders[key];
            if !order.starts_with(list) {
                return Err(format!("key {key}: {} read {list:?} of {order:?}", done.id));
            }
            if list.last().is_some_and(|last| order.get(list.len()) == Some(last)) {
                return Err(format!("key {key}: {} read a part, {list:?} of {order:?}", done.id));
            }
            if let Some(last) = list.last().filter(|last| **last != done.id) {
                depends.entry(*last).or_default().insert(done.id);
            }
            if let Some(next) = order.get(list.len()).filter(|next| **next != done.id) {
                anti.entry(done.id).or_default().insert(*next);
            }
        }
    }
    for done in history {
        let later = history.iter().filter(|other| done.is_before(other)).map(|other| other.id);
        depends.entry(done.id).or_default().extend(later);
    }
    Ok(Graph { depends, anti })
}

/// What a transaction of read committed has not read though it was acknowledged before its call:
/// the transaction, and that one.
fn stale(history: &[Done], Graph { depends, anti }: &Graph) -> Option<(u32, u32)> {
    let stale = |done: &Done| {
        let mut open: Vec<u32> = anti.get(&done.id)?.iter().copied().collect();
        let mut seen = BTreeSet::new();
        while let Some(id) = open.pop() {
            // What it has not read comes before this one.
            if history.iter().any(|other| other.id == id && other.is_before(done)) {
                return Some((done.id, id));
            }
            if id != done.id && seen.insert(id) {
                open.extend(depends.get(&id).into_iter().flatten());
            }
        }
        None
    };
    history.iter().find_map(stale)
}

/// A node that can be reached from itself.
fn cycle(edges: &Edges) -> Option<u32> {
    let next = |id: u32| edges.get(&id).into_iter().flatten().copied();
    // Kahn: what cannot be taken away in order is on a cycle, or behind one.
    let mut incoming: BTreeMap<u32, usize> = BTreeMap::new();
    for id in edges.keys() {
        incoming.entry(*id).or_default();
        next(*id).for_each(|to| *incoming.entry(to).or_default() += 1);
    }
    let mut free: Vec<u32> = incoming.iter().filter(|(_, n)| **n == 0).map(|(id, _)| *id).collect();
    while let Some(id) = free.pop() {
        incoming.remove(&id);
        for to in next(id) {
            let left = incoming.get_mut(&to).unwrap();
            *left -= 1;
            if *left == 0 {
                free.push(to);
            }
        }
    }
    incoming.keys().next().copied()
}

/// Whether a history has no cycle that its level forbids.
///
/// # Errors
///
/// What is wrong with it.
pub fn check(history: &[Done], level: Isolation) -> Result<(), String> {
    let graph = graph(history)?;
    if let Some((reader, later)) = stale(history, &graph) {
        return Err(format!("{reader} has not read all that was there when {later} had ended"));
    }
    let Graph { depends: mut edges, anti } = graph;
    match level {
        Isolation::ReadCommitted => {}
        Isolation::Snapshot => {
            // One rw may follow each ww or wr: a cycle of such steps is what is forbidden.
            for targets in edges.values_mut() {
                let further: Vec<u32> = targets
                    .iter()
                    .flat_map(|to| anti.get(to).into_iter().flatten())
                    .copied()
                    .collect();
                targets.extend(further);
            }
        }
        Isolation::Serializable => {
            for (from, to) in &anti {
                edges.entry(*from).or_default().extend(to);
            }
        }
    }
    cycle(&edges).map_or(Ok(()), |id| Err(format!("{level:?}: a cycle at or before {id}")))
}

/// The list that a value is.
pub fn list_of(value: Option<&[u8]>) -> Vec<u32> {
    let words = value.unwrap_or_default().as_chunks().0;
    words.iter().map(|word| u32::from_be_bytes(*word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(id: u32, reads: &[(u8, &[u32])], appends: &[u8]) -> Done {
        let reads = reads.iter().map(|(key, list)| (*key, list.to_vec())).collect();
        Done { id, reads, appends: appends.to_vec(), ..Done::default() }
    }

    /// Bug: a transaction could read what was there long before it began. Cause: the graph had no
    /// edges of time. Fix: who was acknowledged comes before who is called later.
    #[test]
    fn a_transaction_reads_what_was_acknowledged_before_its_call() {
        use Isolation::{ReadCommitted, Serializable, Snapshot};
        let at = |done, called, acknowledged| Done {
            called: Some(called),
            acknowledged: Some(acknowledged),
            ..done
        };
        for level in [ReadCommitted, Snapshot, Serializable] {
            let judged = |called| {
                let writer = at(done(1, &[(0, &[])], &[0]), 1, 2);
                check(&[writer, at(done(2, &[(0, &[])], &[]), called, 9)], level)
            };
            judged(2).unwrap();
            assert!(judged(3).is_err());
            // Of a write that another one depends on, which had ended.
            let writer = at(done(1, &[(0, &[])], &[0]), 1, 20);
            let middle = at(done(2, &[(0, &[1])], &[]), 2, 3);
            let reader = at(done(3, &[(0, &[])], &[]), 4, 5);
            assert!(check(&[writer, middle, reader], level).is_err());
        }
        // It reads one key before the other's commit, and the other key after it.
        let writer = at(done(1, &[(0, &[]), (1, &[])], &[0, 1]), 2, 3);
        let reader = at(done(2, &[(0, &[]), (1, &[1])], &[]), 1, 4);
        check(&[writer.clone(), reader.clone()], ReadCommitted).unwrap();
        assert!(check(&[writer, reader], Snapshot).is_err());
    }

    /// The checker finds each planted anomaly at the level that forbids it, and not below.
    #[test]
    fn the_checker_finds_planted_anomalies() {
        use Isolation::{ReadCommitted, Serializable, Snapshot};
        let sound = [done(1, &[(0, &[])], &[0]), done(2, &[(0, &[1])], &[0, 1])];
        for level in [ReadCommitted, Snapshot, Serializable] {
            check(&sound, level).unwrap();
        }
        let twice = [done(1, &[(0, &[])], &[0, 0]), done(2, &[(0, &[1, 1])], &[0])];
        for level in [ReadCommitted, Snapshot, Serializable] {
            check(&twice, level).unwrap();
        }
        let aborted_read = [done(1, &[(0, &[7])], &[])];
        let intermediate_read = [
            done(1, &[(0, &[])], &[0, 0]),
            done(2, &[(0, &[1])], &[]),
            done(3, &[(0, &[1, 1])], &[]),
        ];
        let lost_update = [
            done(1, &[(0, &[])], &[0]),
            done(2, &[(0, &[])], &[0]),
            done(3, &[(0, &[2])], &[]),
            done(4, &[(0, &[1])], &[]),
        ];
        let dirty_write = [
            done(1, &[], &[0, 1]),
            done(2, &[], &[0, 1]),
            done(3, &[(0, &[1, 2]), (1, &[2, 1])], &[]),
        ];
        let circular = [done(1, &[(1, &[2])], &[0]), done(2, &[(0, &[1])], &[1])];
        let forbidden_to_all =
            [&aborted_read[..], &intermediate_read, &lost_update, &dirty_write, &circular];
        for history in forbidden_to_all {
            assert!(check(history, ReadCommitted).is_err(), "{history:?}");
        }
        let read_skew =
            [done(1, &[(0, &[]), (1, &[2])], &[]), done(2, &[(0, &[]), (1, &[])], &[0, 1])];
        check(&read_skew, ReadCommitted).unwrap();
        assert!(check(&read_skew, Snapshot).is_err());
        // The range 0..3 is read twice, and a row has come into it.
        let phantom = [
            done(1, &[(0, &[]), (1, &[]), (2, &[]), (0, &[]), (1, &[2]), (2, &[])], &[]),
            done(2, &[(1, &[])], &[1]),
        ];
        check(&phantom, ReadCommitted).unwrap();
        assert!(check(&phantom, Snapshot).is_err());
        // Two read the range, and each puts a row into it that the other one did not see.
        let empty: &[(u8, &[u32])] = &[(0, &[]), (1, &[]), (2, &[])];
        let predicate_skew = [done(1, empty, &[1]), done(2, empty, &[2])];
        check(&predicate_skew, Snapshot).unwrap();
        assert!(check(&predicate_skew, Serializable).is_err());
        let write_skew =
            [done(1, &[(0, &[]), (1, &[])], &[0]), done(2, &[(0, &[]), (1, &[])], &[1])];
        check(&write_skew, Snapshot).unwrap();
        assert!(check(&write_skew, Serializable).is_err());
    }
}
