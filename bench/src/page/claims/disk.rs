//! What is expected where the data is larger than memory, and of transactions.

use super::Asked::{AtLeast, AtMost};
use super::From::{Greatest, Least, OverBest, OverLeast, Row};
use super::{Claim, ON_TMPFS, PEERS, ROCKSDB, YCSB};

const STALLS: &str = "stalls";
const WRITES: &str = "random writes of 4096 bytes";
const DEVICE: &str = "device bytes of user bytes";
const WAYS: &str = "downwards a block's entries are decoded and kept before they are walked, a \
                    tenth more of the processor's time: to give them out without a copy of each";
const SPARE: &str = "the region counts, and records of the last level keep sequence numbers that \
                     no reader can tell apart any more: to write them as one, as RocksDB does, \
                     where no range delete or time to live asks for them";
const AMPLIFIED: &str = "level 2 is written again for each stack of level 1's layers; a larger \
                         level 1, and drains that begin later, make stacks higher";

pub(super) const CLAIMS: &[Claim] = &[
    Claim {
        what: "Durable writes, 16 clients, file",
        against: "best peer",
        from: OverBest {
            figure: YCSB,
            case: "puts in memory, durable, 16 clients",
            system: "terrace-file",
            metric: "throughput",
            others: PEERS,
        },
        asked: AtLeast(2.0),
        next: "a commit costs a sleep and a wake-up, which two cores do not hide",
    },
    Claim {
        what: "Durable writes, 1 client, file",
        against: "best peer",
        from: OverBest {
            figure: YCSB,
            case: "puts in memory, durable, 1 client",
            system: "terrace-file",
            metric: "throughput",
            others: PEERS,
        },
        asked: AtLeast(1.2),
        next: "the device's sync is most of it for all stores; a write that it takes as durable by \
               itself would need none",
    },
    Claim {
        what: "YCSB A durable, emulated",
        against: "best peer on tmpfs",
        from: OverBest {
            figure: YCSB,
            case: "A in memory, durable",
            system: "terrace-emulated",
            metric: "throughput",
            others: ON_TMPFS,
        },
        asked: AtLeast(2.0),
        next: "encoding and the index are most of a put: encode in place",
    },
    Claim {
        what: "YCSB A uniform, unsynced, larger, file",
        against: "best peer",
        from: OverBest {
            figure: YCSB,
            case: "A uniform larger, unsynced",
            system: "terrace-file",
            metric: "throughput",
            others: PEERS,
        },
        asked: AtLeast(2.0),
        next: "two of five operations read a block from the device, and wait for little else: \
               blocks kept compressed in the cache, and merges that read less beside them",
    },
    Claim {
        what: "Device bytes, YCSB A larger, emulated",
        against: "best RocksDB",
        from: OverLeast {
            figure: YCSB,
            case: "A larger, unsynced",
            system: "terrace-emulated",
            metric: DEVICE,
            others: ROCKSDB,
        },
        asked: AtMost(0.2),
        next: AMPLIFIED,
    },
    Claim {
        what: "Device bytes, YCSB A larger, file (region counted)",
        against: "best RocksDB",
        from: OverLeast {
            figure: YCSB,
            case: "A larger, unsynced",
            system: "terrace-file",
            metric: DEVICE,
            others: ROCKSDB,
        },
        asked: AtMost(0.6),
        next: AMPLIFIED,
    },
    Claim {
        what: "Device bytes of updates, file, at every size of the data",
        against: "best RocksDB",
        from: Greatest { figure: "write-amp", system: "terrace-file", metric: "of rocksdb" },
        asked: AtMost(0.6),
        next: AMPLIFIED,
    },
    Claim {
        what: "Device bytes of updates, emulated, at every size of the data",
        against: "best RocksDB",
        from: Greatest { figure: "write-amp", system: "terrace-emulated", metric: "of rocksdb" },
        asked: AtMost(0.3),
        next: AMPLIFIED,
    },
    Claim {
        what: "Ranges downwards, the slowest, file",
        against: "upwards",
        from: Least { figure: "scan", system: "terrace-file", metric: "of up" },
        asked: AtLeast(0.9),
        next: WAYS,
    },
    Claim {
        what: "Ranges downwards, the fastest, file",
        against: "upwards",
        from: Greatest { figure: "scan", system: "terrace-file", metric: "of up" },
        asked: AtMost(1.1),
        next: WAYS,
    },
    Claim {
        what: "Stalls: mean throughput, file",
        against: "best RocksDB",
        from: OverBest {
            figure: STALLS,
            case: WRITES,
            system: "terrace-file",
            metric: "throughput",
            others: ROCKSDB,
        },
        asked: AtLeast(1.0),
        next: AMPLIFIED,
    },
    Claim {
        what: "Stalls: p99.9, file",
        against: "RocksDB's defaults",
        from: OverLeast {
            figure: STALLS,
            case: WRITES,
            system: "terrace-file",
            metric: "p99.9",
            others: &["rocksdb"],
        },
        asked: AtMost(0.2),
        next: "the slowest writes wait for a zone to be linked, which is a sync of its own: to \
               link several with one, and ahead of need",
    },
    Claim {
        what: "Stalls: longest gap in ms beyond the probe's",
        against: "",
        from: Row {
            figure: STALLS,
            case: WRITES,
            system: "terrace-file",
            metric: "longest gap beyond the probe's",
        },
        asked: AtMost(100.0),
        next: "jobs sized by time, not only by bytes",
    },
    Claim {
        what: "Space, closed, zstd, both kinds of rows",
        against: "RocksDB zstd",
        from: Greatest { figure: "space", system: "terrace-file", metric: "of rocksdb-zstd" },
        asked: AtMost(1.0),
        next: SPARE,
    },
    Claim {
        what: "Space, closed, zstd, both kinds of rows",
        against: "the rows alone, compressed",
        from: Greatest { figure: "space", system: "terrace-file", metric: "of ideal" },
        asked: AtMost(1.15),
        next: SPARE,
    },
    Claim {
        what: "Transfers, 16 threads, file",
        against: "best TransactionDB",
        from: OverBest {
            figure: "txn",
            case: "16 threads, uniform",
            system: "terrace-file",
            metric: "throughput",
            others: ROCKSDB,
        },
        asked: AtLeast(2.0),
        next: "a commit costs a sleep and a wake-up, which two cores do not hide",
    },
    Claim {
        what: "Transfers, 16 threads, emulated",
        against: "best TransactionDB on tmpfs",
        from: OverBest {
            figure: "txn",
            case: "16 threads, uniform",
            system: "terrace-emulated",
            metric: "throughput",
            others: ON_TMPFS,
        },
        asked: AtLeast(3.0),
        next: "the lock table and a transaction's own map allocate for every row",
    },
];
