//! What is expected of the containers of level 0: what MatrixKV's and TriangleKV's authors have.

use super::Asked::{AtLeast, AtMost};
use super::Claim;
use super::From::{OverBest, OverLeast, Row};

const FIGURE: &str = "containers";
const FILL: &str = "fillrandom, 4096 B";
const FIXED: &str = "A at 2000 a second";
const LEVEL0: &str = "reads of level 0";
const ROCKSDB: &[&str] = &["rocksdb-scaled"];
const MATRIX: &[&str] = &["terrace-matrix"];
const BOTH: &[&str] = &["terrace-matrix", "terrace-triangle"];

const COPY: &str = "a row table is a copy within the region, which the source's log in persistent \
                    memory makes too; to compare what drains write";

pub(super) const CLAIMS: &[Claim] = &[
    Claim {
        what: "Random writes, matrix",
        against: "RocksDB",
        from: OverBest {
            figure: FIGURE,
            case: FILL,
            system: "terrace-matrix",
            metric: "throughput",
            others: ROCKSDB,
        },
        asked: AtLeast(3.6),
        next: COPY,
    },
    Claim {
        what: "p99 at a fixed rate, matrix",
        against: "RocksDB",
        from: OverLeast {
            figure: FIGURE,
            case: FIXED,
            system: "terrace-matrix",
            metric: "p99",
            others: ROCKSDB,
        },
        asked: AtMost(0.2),
        next: "reads are half of the operations, and wait for the device",
    },
    Claim {
        what: "Random writes, triangle",
        against: "matrix",
        from: OverBest {
            figure: FIGURE,
            case: FILL,
            system: "terrace-triangle",
            metric: "throughput",
            others: MATRIX,
        },
        asked: AtLeast(1.4),
        next: "drains of a matrix and of a triangle add to level 1 by sublevels, so that keys that \
               meet level 1 twice are not written twice there, as they are in the source",
    },
    Claim {
        what: "Random writes, p99, triangle",
        against: "matrix",
        from: OverLeast {
            figure: FIGURE,
            case: FILL,
            system: "terrace-triangle",
            metric: "p99",
            others: MATRIX,
        },
        asked: AtMost(0.91),
        next: "as above",
    },
    Claim {
        what: "Bytes of a job from level 0, matrix",
        against: "RocksDB",
        from: OverLeast {
            figure: FIGURE,
            case: FILL,
            system: "terrace-matrix",
            metric: "bytes a job",
            others: ROCKSDB,
        },
        asked: AtMost(0.111),
        next: "smaller columns",
    },
    Claim {
        what: "Reads of level 0, matrix",
        against: "RocksDB's, piled up",
        from: Row {
            figure: FIGURE,
            case: LEVEL0,
            system: "terrace-matrix",
            metric: "of RocksDB's",
        },
        asked: AtLeast(17.5),
        next: "a search goes through every row, by hints: fewer and larger rows",
    },
    Claim {
        what: "Random writes, global index",
        against: "matrix and triangle",
        from: OverBest {
            figure: FIGURE,
            case: FILL,
            system: "terrace-emulated",
            metric: "throughput",
            others: BOTH,
        },
        asked: AtLeast(1.0),
        next: "another default",
    },
    Claim {
        what: "Reads of level 0, global index",
        against: "matrix and triangle",
        from: OverBest {
            figure: FIGURE,
            case: LEVEL0,
            system: "terrace-emulated",
            metric: "throughput",
            others: BOTH,
        },
        asked: AtLeast(1.0),
        next: "another default",
    },
];
