//! One seed is one run.

use terrace_sim::run::{Limits, Prepared, Run};
use terrace_sim::scenario::Scenario;

#[test]
fn the_same_seed_leaves_the_same_trace_byte_for_byte() {
    let mut prepared = Prepared::default();
    let mut seen = std::collections::BTreeSet::new();
    for seed in (0..108).filter(|seed| seed % 4 < 2) {
        let run = Run::of(seed, Limits::SHORT);
        if matches!(run.scenario, Scenario::Recovery | Scenario::Joining) {
            continue;
        }
        let (first, second) = (run.trace(&mut prepared), run.trace(&mut prepared));
        assert_eq!(first.len(), second.len(), "{run:?}");
        assert_eq!(first.fingerprint(), second.fingerprint(), "{run:?}");
        seen.insert(first.fingerprint());
    }
    assert!(seen.len() > 40, "different seeds are different runs: {}", seen.len());
}
