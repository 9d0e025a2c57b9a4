//! The comparisons of a node, one for each kind of processor.

use std::sync::atomic::{AtomicU8, Ordering};

use super::{Heads, NODE};

/// How a node is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Lanes {
    /// One head after the other.
    Scalar = 1,
    /// Four heads at once.
    #[cfg(target_arch = "x86_64")]
    Avx2 = 2,
    /// Eight heads at once.
    #[cfg(target_arch = "x86_64")]
    Avx512 = 3,
    /// Two heads at once.
    #[cfg(target_arch = "aarch64")]
    Neon = 4,
}

/// The one that is used, by its number; 0 before the first search.
static CHOSEN: AtomicU8 = AtomicU8::new(0);

/// The one that all searches use.
#[inline]
pub(super) fn chosen() -> Lanes {
    match CHOSEN.load(Ordering::Relaxed) {
        #[cfg(target_arch = "x86_64")]
        2 => Lanes::Avx2,
        #[cfg(target_arch = "x86_64")]
        3 => Lanes::Avx512,
        #[cfg(target_arch = "aarch64")]
        4 => Lanes::Neon,
        1 => Lanes::Scalar,
        _ => choose(),
    }
}

#[cold]
fn choose() -> Lanes {
    let best = Lanes::available().last().copied().unwrap_or(Lanes::Scalar);
    CHOSEN.store(best as u8, Ordering::Relaxed);
    best
}

impl Lanes {
    /// Those that this processor has, the slowest first.
    pub(crate) fn available() -> Vec<Lanes> {
        let mut lanes = vec![Lanes::Scalar];
        #[cfg(target_arch = "x86_64")]
        {
            let has_popcnt = std::arch::is_x86_feature_detected!("popcnt");
            if has_popcnt && std::arch::is_x86_feature_detected!("avx2") {
                lanes.push(Lanes::Avx2);
            }
            if has_popcnt && std::arch::is_x86_feature_detected!("avx512f") {
                lanes.push(Lanes::Avx512);
            }
        }
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("neon") {
            lanes.push(Lanes::Neon);
        }
        lanes
    }

    /// Has all searches of the process use these, which the processor has to have; the best again
    /// with `None`. For figures alone.
    #[cfg(feature = "bench")]
    pub(crate) fn force(lanes: Option<Lanes>) {
        CHOSEN.store(lanes.map_or(0, |lanes| lanes as u8), Ordering::Relaxed);
    }

    /// How many heads are smaller than `sought`.
    #[inline]
    pub(super) fn lower_bound(self, heads: Heads<'_>, sought: u64) -> Option<usize> {
        match self {
            Lanes::Scalar => heads.search(sought, |node| scalar(node, sought)),
            // SAFETY: `available` is where they come from, so the processor has AVX2 and POPCNT.
            #[cfg(target_arch = "x86_64")]
            Lanes::Avx2 => unsafe { x86::avx2(heads, sought) },
            // SAFETY: `available` is where they come from, so it has AVX-512 F and POPCNT.
            #[cfg(target_arch = "x86_64")]
            Lanes::Avx512 => unsafe { x86::avx512(heads, sought) },
            // SAFETY: `available` is where they come from, so the processor has NEON.
            #[cfg(target_arch = "aarch64")]
            Lanes::Neon => unsafe { arm::neon(heads, sought) },
        }
    }
}

/// How many heads of a node are smaller than `sought`.
#[inline(always)]
fn scalar(node: &[u8; NODE], sought: u64) -> usize {
    let heads = node.as_chunks::<8>().0;
    heads.iter().map(|head| usize::from(u64::from_le_bytes(*head) < sought)).sum()
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::super::{Heads, NODE};

    #[target_feature(enable = "avx2,popcnt")]
    pub(super) fn avx2(heads: Heads<'_>, sought: u64) -> Option<usize> {
        // AVX2 compares signed numbers alone. With the first bit turned, these are in the order of
        // the unsigned ones.
        let turn = _mm256_set1_epi64x(i64::MIN);
        let greater = _mm256_xor_si256(_mm256_set1_epi64x(sought.cast_signed()), turn);
        heads.search(sought, |node: &[u8; NODE]| {
            let [low, high] = [0, 32].map(|at| {
                // SAFETY: 32 bytes from 0 or 32 on lie within the 64 of the node; the load may be
                // unaligned.
                let heads = unsafe { _mm256_loadu_si256(node.as_ptr().add(at).cast()) };
                let smaller = _mm256_cmpgt_epi64(greater, _mm256_xor_si256(heads, turn));
                _mm256_movemask_pd(_mm256_castsi256_pd(smaller)).cast_unsigned()
            });
            (low | high << 4).count_ones() as usize
        })
    }

    #[target_feature(enable = "avx512f,popcnt")]
    pub(super) fn avx512(heads: Heads<'_>, sought: u64) -> Option<usize> {
        let all = _mm512_set1_epi64(sought.cast_signed());
        heads.search(sought, |node: &[u8; NODE]| {
            // SAFETY: a node has 64 bytes; the load may be unaligned.
            let heads = unsafe { _mm512_loadu_epi64(node.as_ptr().cast()) };
            _mm512_cmplt_epu64_mask(heads, all).count_ones() as usize
        })
    }
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use std::arch::aarch64::*;

    use super::super::{Heads, NODE};

    #[target_feature(enable = "neon")]
    pub(super) fn neon(heads: Heads<'_>, sought: u64) -> Option<usize> {
        let all = vdupq_n_u64(sought);
        heads.search(sought, |node: &[u8; NODE]| {
            let mut count = vdupq_n_u64(0);
            for at in [0, 16, 32, 48] {
                // SAFETY: 16 bytes from `at` on lie within the 64 of the node; the load may be
                // unaligned.
                let two = unsafe { vld1q_u64(node.as_ptr().add(at).cast()) };
                // All ones, which is minus one, where a head is smaller.
                count = vsubq_u64(count, vcltq_u64(two, all));
            }
            vaddvq_u64(count) as usize
        })
    }
}
