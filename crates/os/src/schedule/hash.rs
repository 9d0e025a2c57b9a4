//! Hashes of places, equal for equal places in all processes.

use std::hash::Hasher;

/// Spreads the bits of an address.
#[derive(Default)]
pub(super) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().map(|&byte| u64::from(byte)).fold(self.0, mixed);
    }

    fn write_usize(&mut self, address: usize) {
        self.0 = mixed(self.0, address as u64);
    }
}

/// A hash with one part more: each bit of either changes it.
pub(super) fn mixed(hash: u64, part: u64) -> u64 {
    let product = (hash.rotate_left(5) ^ part).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    product ^ (product >> 32)
}
