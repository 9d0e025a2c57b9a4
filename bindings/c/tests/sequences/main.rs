//! Sequences of calls, valid and invalid ones, through the functions that C calls, held against a
//! model in maps. Each sequence is made of a seed: it runs the same each time.
//!
//! One thread makes all calls. So a direct write of a row that the transaction has locked would
//! wait for nothing: it is made with a deadline, and has to time out.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cursors;
mod model;
mod pointers;
mod rows;
mod transactions;
mod world;

use terrace_c::error::Status;

use world::World;

/// Sequences of one database, and calls of one sequence.
const SEQUENCES: u64 = 250;
const CALLS: u64 = 30;

const OK: Status = Status::TERRACE_OK;
const NOT_FOUND: Status = Status::TERRACE_NOT_FOUND;
const INVALID: Status = Status::TERRACE_INVALID;
const TOO_LARGE: Status = Status::TERRACE_TOO_LARGE;
const CLOSED: Status = Status::TERRACE_CLOSED;

/// Sequences of one database.
fn run(seed: u64) {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::open(&directory.path().join("db"), seed);
    for sequence in 0..SEQUENCES {
        for _ in 0..CALLS {
            world.call();
        }
        if sequence + 1 < SEQUENCES {
            world.free_handles();
        }
        if sequence % 16 == 0 {
            world.check_all();
        }
    }
    assert_eq!(world.calls, SEQUENCES * CALLS);
    world.close();
}

/// Ten thousand sequences, on two threads.
#[test]
fn any_sequence_of_calls_does_what_the_model_does() {
    const DATABASES: u64 = 10_000 / SEQUENCES;
    std::thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || {
                (0..DATABASES).filter(|seed| seed % 2 == thread).for_each(|seed| {
                    let outcome = std::panic::catch_unwind(|| run(seed));
                    assert!(outcome.is_ok(), "the sequences of seed {seed}");
                });
            });
        }
    });
}
