//! A region on the persistent memory of a simulated machine.

use std::path::Path;
use std::sync::Arc;

use super::region::{Media, Region};
use crate::base::error::{Error, Result};
use terrace_testkit::Machine;

impl Region {
    /// The memory of `machine` as a region, all of it loaded; `len` bytes of zeros where there is
    /// none yet.
    pub(crate) fn of_machine(machine: &Machine, len: u64) -> Result<Arc<Region>> {
        let missing = || Error::invalid("the simulated machine has no persistent memory");
        let pm = machine.make_memory(len).ok_or_else(missing)?;
        let len = pm.len();
        let region = Region::new(Media::Simulated(pm), Path::new("simulated"), len)?;
        region.load(super::Span { at: 0, len })?;
        Ok(Arc::new(region))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pm::Span;

    #[test]
    fn a_region_has_nothing_of_the_ones_before_it() {
        const LEN: u64 = 3 << 16;
        let all = |region: &Region| region.bytes(0, LEN).to_vec();
        for round in 1..20u8 {
            let machine = Machine::with_memory();
            let region = Region::of_machine(&machine, LEN).unwrap();
            assert!(all(&region).iter().all(|byte| *byte == 0), "round {round}");
            let at = u64::from(round) * 9000;
            drop(region.write(at, &[round; 700]));
            drop(region.write(at + 4093, &[round; 5]));
            drop(region.store_word(64 * u64::from(round), 7));
            region.write_volatile(LEN - 3, &[round; 3]);
            drop(region.rewrite(Span { at: 0, len: LEN }));
            let again = Region::of_machine(&machine.kill(), LEN).unwrap();
            assert_eq!(all(&again), all(&region), "round {round}");
        }
    }
}
