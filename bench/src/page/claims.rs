//! What Terrace is expected to reach, and where the figures say whether it does.

mod disk;

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
        next: "each relaxed commit hands over whole pages by a system call of its own; \
               several threads' could share one",
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
        next: "each range still searches every level once; the merge compares whole keys",
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
        next: "",
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
        next: "",
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
        next: "",
    },
    Claim {
        what: "Syncs a publisher run, file",
        against: "",
        from: OneRow { figure: COMMIT, case: ONE, system: "terrace-file", metric: "syncs/run" },
        asked: AtMost(1.0),
        next: "",
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
        next: "",
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
        next: "",
    },
    Claim {
        what: "Restart, one core and two, warm and cold",
        against: "RocksDB replaying its log",
        from: Least { figure: "restart", system: "terrace-file", metric: "of rocksdb" },
        asked: AtLeast(5.0),
        next: "",
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
        next: "",
    },
    Claim {
        what: "Region used, at any time",
        against: "what there is of it",
        from: Greatest { figure: "pm-budget", system: "terrace-file", metric: "used of capacity" },
        asked: AtMost(1.0),
        next: "",
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
        next: "",
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
    pub(super) next: &'static str,
}

/// How every claim stands after a run.
pub(super) fn standings(rows: &[Row]) -> Vec<Standing> {
    CLAIMS.iter().chain(disk::CLAIMS).map(|claim| standing(claim, rows)).collect()
}

fn standing(claim: &Claim, rows: &[Row]) -> Standing {
    // A quick run says so at the end of its cases.
    let named = |row: &Row| row.case.split(" (").next().unwrap_or_default().to_string();
    let value = |figure: &str, case: &str, system: &str, metric: &str| {
        let is = |row: &&Row| row.is(figure, &row.case, system, metric) && named(row) == case;
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
    let Claim { what, against, next, .. } = claim;
    Standing { what, against, asked, measured, is_met, next }
}
