//! Cache-line write-back: which instruction this processor has, chosen at run time.
//!
//! `TERRACE_FLUSH=clflush` (or `clflushopt`, `clwb`, `none`) in the environment overrides the
//! choice: valgrind, for one, does not know the newer instructions. `none` is for `emulated` alone:
//! in `dax` mode it is refused, unless the platform flushes its caches by itself.

use super::LINE;

/// How lines are sent to the media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flush {
    /// Write back and keep the line.
    #[cfg(target_arch = "x86_64")]
    Clwb,
    /// Write back and drop the line, in any order.
    #[cfg(target_arch = "x86_64")]
    Clflushopt,
    /// Write back and drop the line, one after the other.
    #[cfg(target_arch = "x86_64")]
    Clflush,
    /// Clean to the point of persistence.
    #[cfg(target_arch = "aarch64")]
    DcCvap,
    /// The caches are flushed when the power fails (eADR): only order counts.
    None,
}

impl Flush {
    /// What the environment asks for, or else the best that this processor has.
    pub(super) fn detect() -> Flush {
        Flush::asked_for().unwrap_or_else(Flush::of_processor)
    }

    /// What the environment asks for.
    pub(super) fn asked_for() -> Option<Flush> {
        Flush::named(&std::env::var("TERRACE_FLUSH").ok()?)
    }

    /// The one of this name, if this kind of processor can have it.
    pub(super) fn named(name: &str) -> Option<Flush> {
        match name {
            #[cfg(target_arch = "x86_64")]
            "clwb" => Some(Flush::Clwb),
            #[cfg(target_arch = "x86_64")]
            "clflushopt" => Some(Flush::Clflushopt),
            #[cfg(target_arch = "x86_64")]
            "clflush" => Some(Flush::Clflush),
            "none" => Some(Flush::None),
            _ => None,
        }
    }

    /// The best that this processor has.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn of_processor() -> Flush {
        let leaf = std::arch::x86_64::__cpuid_count(7, 0);
        if leaf.ebx & (1 << 24) != 0 {
            Flush::Clwb
        } else if leaf.ebx & (1 << 23) != 0 {
            Flush::Clflushopt
        } else {
            Flush::Clflush
        }
    }

    /// The one that there is.
    #[cfg(target_arch = "aarch64")]
    pub(super) fn of_processor() -> Flush {
        Flush::DcCvap
    }

    /// Sends every line of `bytes` on its way, to be completed by a fence; how many.
    pub(super) fn lines(self, bytes: &[u8]) -> u64 {
        if self == Flush::None || bytes.is_empty() {
            return 0;
        }
        let line = LINE as usize;
        let first = bytes.as_ptr() as usize / line * line;
        let end = bytes.as_ptr() as usize + bytes.len();
        for address in (first..end).step_by(line) {
            self.line(address);
        }
        ((end - first) as u64).div_ceil(LINE)
    }

    #[cfg(target_arch = "x86_64")]
    fn line(self, address: usize) {
        use std::arch::asm;
        // SAFETY: the address lies in a line that holds a byte of a live slice; writing a line
        // back changes no memory.
        unsafe {
            match self {
                Flush::Clwb => asm!("clwb [{}]", in(reg) address, options(nostack)),
                Flush::Clflushopt => asm!("clflushopt [{}]", in(reg) address, options(nostack)),
                Flush::Clflush => asm!("clflush [{}]", in(reg) address, options(nostack)),
                Flush::None => {}
            }
        }
    }

    #[cfg(target_arch = "aarch64")]
    fn line(self, address: usize) {
        use std::arch::asm;
        // SAFETY: as on x86-64.
        unsafe { asm!("dc cvap, {}", in(reg) address, options(nostack)) }
    }
}

/// Orders everything this thread stored and flushed before everything it stores after.
pub(super) fn store_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `sfence` has no operands and is part of the baseline of x86-64.
    unsafe {
        std::arch::asm!("sfence", options(nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier has no operands.
    unsafe {
        std::arch::asm!("dsb sy", options(nostack));
    }
}
