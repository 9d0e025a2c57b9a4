//! What Terrace is expected to reach, and where the figures say whether it does.

mod containers;
mod disk;

use serde_json::Value;

use crate::report::Row;

/// Peers with a log and levels of files.
const ROCKSDB: &[&str] = &["rocksdb", "rocksdb-tuned"];
/// Every store that others wrote.
const PEERS: &[&str] =
    &["rocksdb", "rocksdb-tuned", "fjall", "fjall-tuned", "redb", "lmdb", "lmdb-tuned"];
/// Those that were measured where a sync costs nothing.
const ON_TMPFS: &[&str] = &["rocksdb on tmpfs", "rocksdb-tuned on tmpfs", "fjall on tmpfs"];

/// Where the number comes from.
enum From {
    /// A row as it is.
    Row { figure: &'static str, case: &'static str, system: &'static str, metric: &'static str },
    /// A row divided by that of the best of others in the same case.
    OverBest {
        figure: &'static str,
        case: &'static str,
        system: &'static str,
        metric: &'static str,
        others: &'static [&'static str],
    },
    /// The same with the least of others, where less is better.
    OverLeast {
        figure: &'static str,
        case: &'static str,
        system: &'static str,
        metric: &'static str,
        others: &'static [&'static str],
    },
    /// The greatest value of any case.
    Greatest { figure: &'static str, system: &'static str, metric: &'static str },
    /// The least value of any case.
    Least { figure: &'static str, system: &'static str, metric: &'static str },
}

use From::{Greatest, Least, OverBest, OverLeast, Row as OneRow};

enum Asked {
    AtLeast(f64),
    AtMost(f64),
}

use Asked::{AtLeast, AtMost};

/// One expectation.
struct Claim {
    what: &'static str,
    against: &'static str,
    from: From,
    asked: Asked,
    /// Why it is missed where it is, and what comes next.
    next: &'static str,
}

const YCSB: &str = "ycsb";
const COMMIT: &str = "commit";
const ONE: &str = "1×1 in 1 tables";

/// Of what is counted and not timed.
const COUNTED: &str = "a count, the same on every machine: a commit has raised it";

const CLAIMS: &[Claim] = &[
    Claim {
        what: "YCSB A durable, 16 clients, file",
        against: "best peer",
        from: OverBest {
            figure: YCSB,
            case: "A in memory, durable",
            system: "terrace-file",
            metric: "throughput",
            others: PEERS,
        },
        asked: AtLeast(2.0),
        next: "a commit costs a sleep and a wake-up; with more cores, or a device that \
               syncs slower, they would be hidden",
    },
    Claim {
        what: "YCSB A unsynced, file",
        against: "best peer",
        from: OverBest {
            figure: YCSB,
            case: "A in memory, unsynced",
            system: "terrace-file",
            metric: "throughput",
            others: PEERS,
        },
        asked: AtLeast(2.0),
        next: "a quarter of the clients' time goes into the index of the region, which reads ask \
               first, and a fifth into the region's file; LMDB, which comes nearest, keeps no log \
               and writes into its map: a small filter before the index, and groups that are \
               written together",
    },
    Claim {
        what: "Random reads, in memory (YCSB C)",
        against: "RocksDB",
        from: OverBest {
            figure: YCSB,
            case: "C in memory, unsynced",
            system: "terrace-file",
            metric: "throughput",
            others: ROCKSDB,
        },
        asked: AtLeast(2.0),
        next: "blocks with a search that compares several keys at once, and pointers in place of \
               the cache's look-up",
    },
    Claim {
        what: "Ranges of 1 to 100, in memory (YCSB E)",
        against: "RocksDB",
        from: OverBest {
            figure: YCSB,
            case: "E in memory, unsynced",
            system: "terrace-file",
            metric: "throughput",
            others: ROCKSDB,
        },
        asked: AtLeast(2.0),
        next: "each range searches every level once, and makes a cursor for each",
    },
    Claim {
        what: "A lone durable put, p50",
        against: "bare overwrite + sync",
        from: OneRow {
            figure: COMMIT,
            case: "1×1 in 1 tables, p50",
            system: "terrace-file",
            metric: "of bare",
        },
        asked: AtMost(1.5),
        next: "the sync is most of it; a write that the device takes as durable by itself would \
               need none",
    },
    Claim {
        what: "A lone durable put, p99",
        against: "bare overwrite + sync",
        from: OneRow {
            figure: COMMIT,
            case: "1×1 in 1 tables, p99",
            system: "terrace-file",
            metric: "of bare",
        },
        asked: AtMost(2.0),
        next: "the slowest syncs are those that others of the device are in the way of: fewer of \
               them by the background",
    },
    Claim {
        what: "16 writers, file",
        against: "one writer",
        from: OneRow {
            figure: COMMIT,
            case: "16 writers of 1",
            system: "terrace-file",
            metric: "speed-up",
        },
        asked: AtLeast(8.0),
        next: "a commit costs the processor a sleep and a wake-up, which two cores and a fast \
               device do not hide; clients that enqueue and wait later would share them",
    },
    Claim {
        what: "Fences a group, lone writer, emulated",
        against: "",
        from: OneRow {
            figure: COMMIT,
            case: ONE,
            system: "terrace-emulated",
            metric: "fences/group",
        },
        asked: AtMost(2.0),
        next: COUNTED,
    },
    Claim {
        what: "Syncs a publisher run, file",
        against: "",
        from: OneRow { figure: COMMIT, case: ONE, system: "terrace-file", metric: "syncs/run" },
        asked: AtMost(1.0),
        next: COUNTED,
    },
    Claim {
        what: "Commit of one record, emulated",
        against: "bare streaming loop",
        from: OneRow { figure: COMMIT, case: ONE, system: "terrace-emulated", metric: "of bare" },
        asked: AtLeast(0.6),
        next: "the loop does not index what it stores; inserting into the index and encoding \
               take longer than the fence",
    },
    Claim {
        what: "Memtable inserts, 8-byte keys",
        against: "skip list",
        from: OneRow {
            figure: "memtable",
            case: "8-byte keys, 1 threads",
            system: "terrace",
            metric: "insert of skip list",
        },
        asked: AtLeast(3.0),
        next: "the profile of an insertion, by instructions: `instructions`",
    },
    Claim {
        what: "Memtable look-ups, 24-byte keys",
        against: "best index",
        from: OneRow {
            figure: "memtable",
            case: "24-byte keys, 1 threads",
            system: "terrace",
            metric: "get of best peer",
        },
        asked: AtLeast(1.0),
        next: "keys of more than eight bytes are compared in the record, a cache line of its own",
    },
    Claim {
        what: "Restart, one core and two, warm and cold",
        against: "RocksDB replaying its log",
        from: Least { figure: "restart", system: "terrace-file", metric: "of rocksdb" },
        asked: AtLeast(5.0),
        next: "records are read, checked and sorted before the first is served: to serve while \
               others are read",
    },
    Claim {
        what: "Restart with the persistent index, one core and two, emulated",
        against: "RocksDB replaying its log on tmpfs",
        from: Least { figure: "restart", system: "terrace-index", metric: "of rocksdb on tmpfs" },
        asked: AtLeast(20.0),
        next: "what is left is opening files and the journal: to do both while the region is \
               looked at",
    },
    Claim {
        what: "Restart, one core and two, warm and cold",
        against: "bare checksummed read + insert",
        from: Least { figure: "restart", system: "terrace-file", metric: "of bare" },
        asked: AtLeast(0.8),
        next: "with a cold cache sorting and building begin when all was read: to sort what one \
               zone has while others are read; a quick run is small, and says little",
    },
    Claim {
        what: "Region used, under each of four loads",
        against: "the bound: one turn, open and pinned zones",
        from: Greatest { figure: "pm-budget", system: "terrace-file", metric: "used of bound" },
        asked: AtMost(1.1),
        next: "zones that a few records keep: to clean them sooner",
    },
    Claim {
        what: "Region used, at any time",
        against: "what there is of it",
        from: Greatest { figure: "pm-budget", system: "terrace-file", metric: "used of capacity" },
        asked: AtMost(1.0),
        next: COUNTED,
    },
    Claim {
        what: "Slowest 100 ms of writers, uniform inserts",
        against: "the median",
        from: OneRow {
            figure: "pm-budget",
            case: "uniform inserts",
            system: "terrace-file",
            metric: "slowest 100 ms of median",
        },
        asked: AtLeast(0.25),
        next: "writers go as fast as drains do, which share processor and device with \
               compactions; a steady share for each",
    },
    Claim {
        what: "Allocation, fences",
        against: "",
        from: OneRow { figure: "alloc", case: "128 B", system: "pool", metric: "fences" },
        asked: AtMost(1.1),
        next: COUNTED,
    },
];

/// How a claim stands.
pub(super) struct Standing {
    pub(super) what: &'static str,
    pub(super) against: &'static str,
    pub(super) asked: String,
    /// None: not measured in this run.
    pub(super) measured: Option<f64>,
    pub(super) is_met: bool,
    /// MiB that the process and the system's cache of its files had together, where that was seen
    /// to.
    pub(super) bound: Option<u64>,
    pub(super) next: &'static str,
}

/// How every claim stands after a run, by its rows and by what else it said.
pub(super) fn standings(rows: &[Row], others: &[Value]) -> Vec<Standing> {
    CLAIMS
        .iter()
        .chain(disk::CLAIMS)
        .chain(containers::CLAIMS)
        .map(|claim| standing(claim, rows, others))
        .collect()
}

/// A case without what a quick run says at its end.
fn plain(case: &str) -> &str {
    case.split(" (").next().unwrap_or_default()
}

impl From {
    /// The figure, the case if it is one alone, and the system.
    fn of(&self) -> (&'static str, Option<&'static str>, &'static str) {
        match *self {
            OneRow { figure, case, system, .. }
            | OverBest { figure, case, system, .. }
            | OverLeast { figure, case, system, .. } => (figure, Some(case), system),
            Greatest { figure, system, .. } | Least { figure, system, .. } => {
                (figure, None, system)
            }
        }
    }

    /// How many MiB the process had that measured it, if it was bounded.
    fn bound(&self, others: &[Value]) -> Option<u64> {
        let (figure, case, system) = self.of();
        let is = |other: &&Value| {
            let named = |field: &str| other[field].as_str().unwrap_or_default();
            (named("metric"), named("figure"), named("system")) == ("bound", figure, system)
                && case.is_none_or(|case| plain(named("case")) == case)
        };
        others.iter().find(is).and_then(|other| other["mib"].as_u64())
    }
}

fn standing(claim: &Claim, rows: &[Row], others: &[Value]) -> Standing {
    let value = |figure: &str, case: &str, system: &str, metric: &str| {
        let is = |row: &&Row| row.is(figure, &row.case, system, metric) && plain(&row.case) == case;
        rows.iter().find(is).map(|row| row.value)
    };
    let all = |figure: &str, system: &str, metric: &str| -> Vec<f64> {
        let own = rows.iter().filter(|row| row.is(figure, &row.case, system, metric));
        own.map(|row| row.value).collect()
    };
    let measured = match claim.from {
        OneRow { figure, case, system, metric } => value(figure, case, system, metric),
        OverBest { figure, case, system, metric, others } => {
            let best = others.iter().filter_map(|other| value(figure, case, other, metric));
            let best = best.fold(f64::NAN, f64::max);
            value(figure, case, system, metric).map(|ours| ours / best).filter(|r| r.is_finite())
        }
        OverLeast { figure, case, system, metric, others } => {
            let least = others.iter().filter_map(|other| value(figure, case, other, metric));
            let least = least.fold(f64::NAN, f64::min);
            value(figure, case, system, metric).map(|ours| ours / least).filter(|r| r.is_finite())
        }
        Greatest { figure, system, metric } => {
            all(figure, system, metric).into_iter().reduce(f64::max)
        }
        Least { figure, system, metric } => {
            all(figure, system, metric).into_iter().reduce(f64::min)
        }
    };
    let (asked, is_met) = match claim.asked {
        AtLeast(bar) => (format!("≥ {bar} ×"), measured.is_some_and(|m| m >= bar)),
        AtMost(bar) => (format!("≤ {bar}"), measured.is_some_and(|m| m <= bar)),
    };
    let bound = claim.from.bound(others);
    let Claim { what, against, next, .. } = claim;
    Standing { what, against, asked, measured, is_met, bound, next }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_bound_is_that_of_the_case_that_a_claim_is_about() {
        let bound = |case: &str, mib: u64| {
            json!({"metric": "bound", "figure": "stalls", "system": "terrace-file",
                "case": case, "mib": mib})
        };
        let others = [bound("reads", 76), bound("writes (quick: seconds)", 46)];
        let (figure, system, metric) = ("stalls", "terrace-file", "throughput");
        let one = OneRow { figure, case: "writes", system, metric };
        assert_eq!(one.bound(&others), Some(46));
        assert_eq!(one.bound(&others[..1]), None);
        assert_eq!(Greatest { figure, system, metric }.bound(&others), Some(76));
        assert_eq!(Greatest { figure: "scan", system, metric }.bound(&others), None);
    }

    #[test]
    fn every_claim_is_about_a_figure_that_there_is() {
        for claim in CLAIMS.iter().chain(disk::CLAIMS).chain(containers::CLAIMS) {
            let (figure, ..) = claim.from.of();
            assert!(crate::FIGURES.iter().any(|(name, _)| *name == figure), "{}", claim.what);
        }
    }
}
