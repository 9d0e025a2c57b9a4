//! Lives in which calls of files fail: one seed is one run.

use terrace_sim::coverage::Coverage;
use terrace_sim::run::{Limits, Prepared, Run};

fn runs(seeds: std::ops::Range<u64>) -> Coverage {
    let (mut prepared, mut coverage) = (Prepared::default(), Coverage::default());
    for seed in seeds {
        Run::failing(seed, Limits::SHORT).run(&mut prepared, &mut coverage);
    }
    coverage
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in [2, 5, 8, 15] {
        let [first, second] = [(); 2].map(|()| runs(seed..seed + 1));
        assert_eq!(first.faults.images, second.faults.images, "seed {seed}");
        assert_eq!(first.faults.calls, second.faults.calls, "seed {seed}");
        assert_eq!(first.violations, second.violations, "seed {seed}");
    }
}
