//! The superblock: what the region is, and its openings (`docs/format.md`, section 1).

use crate::base::error::{Damage, Error, Mismatch, Result};
use crate::base::limits::LONG_LIST;
use crate::base::record::{
    LSN_MAX, Lsn, Reader, SealRefused, Sealable, other_format, put_u32, put_u64,
};
use crate::pm::{Durable, Geometry, PAGE, Region, Span};

const LIST_AT: usize = 256;

/// The longest incarnation list that a superblock holds.
const MAX_INCARNATIONS: usize = 160;

/// Earlier openings whose records up to a cut are alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lived {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) cut: Lsn,
}

/// Which sub-entries are alive: the opening that wrote them, and up to which LSN it counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Incarnations {
    /// The number of the latest opening, from 1.
    pub(crate) current: u64,
    /// Earlier openings that still have records in zones, ascending and disjoint.
    pub(crate) earlier: Vec<Lived>,
}

impl Incarnations {
    /// Whether a sub-entry of `incarnation` with `lsn` counts.
    pub(crate) fn alive(&self, incarnation: u64, lsn: Lsn) -> bool {
        if incarnation == self.current {
            return true;
        }
        let at = self.earlier.partition_point(|lived| lived.last < incarnation);
        self.earlier.get(at).is_some_and(|l| l.first <= incarnation && lsn <= l.cut)
    }

    /// Closes the current incarnation at `cut` and starts the next one. Incarnations that are not
    /// `still_used` have nothing left in any zone and are forgotten.
    pub(crate) fn begin_next(&mut self, cut: Lsn, still_used: impl Fn(&Lived) -> bool) {
        self.earlier.push(Lived { first: self.current, last: self.current, cut });
        self.earlier.retain(still_used);
        self.current += 1;
    }

    /// Whether the list should be joined before it is too long to be written.
    pub(crate) fn is_long(&self) -> bool {
        self.earlier.len() >= LONG_LIST
    }

    /// Joins the whole list into one entry. Only right once nothing dead of these incarnations is
    /// left in any zone.
    pub(crate) fn join(&mut self) {
        if let (Some(first), Some(last)) = (self.earlier.first(), self.earlier.last()) {
            self.earlier = vec![Lived { first: first.first, last: last.last, cut: last.cut }];
        }
    }
}

/// A superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) database_id: [u8; 16],
    pub(crate) generation: u64,
    pub(crate) geometry: Geometry,
    /// At least every LSN of an earlier incarnation.
    pub(crate) lsn_base: Lsn,
    /// What openings found since the shared store last agreed with this directory: the least of
    /// their last commits. Commits above it may have been lost here, or are not the store's. A node
    /// has one too, of its own LSNs, and nothing asks for it.
    pub(crate) shared_cut: Option<Lsn>,
    /// Every later commit lies in a zone, unless the shared store has it. None where zones may have
    /// been released that had others.
    pub(crate) kept: Option<Lsn>,
    pub(crate) incarnations: Incarnations,
}

impl Sealable for Superblock {
    const MAGIC: &'static [u8; 8] = b"TERRACE\0";
    const WHAT: &'static str = "superblock";
    const LEAST: usize = PAGE as usize;

    fn encode_rest(&self, page: &mut Vec<u8>) {
        debug_assert!(self.incarnations.earlier.len() <= MAX_INCARNATIONS, "checked by the opener");
        page.extend_from_slice(&self.database_id);
        put_u64(page, self.generation);
        put_u64(page, self.geometry.unit);
        put_u32(page, self.geometry.zone_slots);
        put_u32(page, self.geometry.units);
        put_u64(page, self.incarnations.current);
        put_u64(page, self.lsn_base);
        put_u32(page, self.incarnations.earlier.len() as u32);
        put_u32(page, self.geometry.target);
        [self.shared_cut, self.kept].iter().for_each(|it| put_u64(page, it.map_or(0, |it| it + 1)));
        page.resize(LIST_AT, 0);
        for Lived { first, last, cut } in &self.incarnations.earlier {
            [first, last, cut].into_iter().for_each(|lsn| put_u64(page, *lsn));
        }
        page.resize(PAGE as usize, 0);
    }

    fn decode_rest(r: &mut Reader<'_>) -> Option<Superblock> {
        let database_id = r.take(16)?.try_into().ok()?;
        let generation = r.u64()?;
        let (unit, zone_slots, units) = (r.u64()?, r.u32()?, r.u32()?);
        let (current, lsn_base) = (r.u64()?, r.u64()?);
        let (count, target) = (r.u32()? as usize, r.u32()?);
        let geometry = Geometry { unit, zone_slots, units, target }.check().ok()?;
        let (shared_cut, kept) = (r.u64()?.checked_sub(1), r.u64()?.checked_sub(1));
        r.take(LIST_AT - 96)?;
        let mut list = Reader::new(r.take(PAGE as usize - LIST_AT)?);
        let mut lived = || Some(Lived { first: list.u64()?, last: list.u64()?, cut: list.u64()? });
        let earlier = (0..count).map(|_| lived()).collect::<Option<Vec<_>>>()?;
        let is_sound = earlier.is_sorted_by(|a, b| a.last < b.first) && lsn_base < LSN_MAX;
        let incarnations = Incarnations { current, earlier };
        is_sound.then_some(Superblock {
            database_id,
            generation,
            geometry,
            lsn_base,
            shared_cut,
            kept,
            incarnations,
        })
    }
}

impl Superblock {
    /// Whether the first bytes of a file are those of a region, sound or damaged.
    pub(crate) fn is_region(pages: &[u8]) -> bool {
        let second = pages.get(PAGE as usize..).unwrap_or_default();
        pages.starts_with(Superblock::MAGIC) || second.starts_with(Superblock::MAGIC)
    }

    /// The right copy out of the region's first two pages, and what is wrong with the other.
    pub(crate) fn read(
        pages: &[u8],
        path: &std::path::Path,
    ) -> Result<(Superblock, Option<Damage>)> {
        let (a, b) = pages.split_at(pages.len().min(PAGE as usize));
        if !Superblock::is_region(pages) {
            return Err(Error::invalid(format!(
                "{} is no Terrace region: it starts with {:02x?} instead of {:02x?}",
                path.display(),
                &a[..a.len().min(8)],
                Superblock::MAGIC
            )));
        }
        let damage = |copy: u64, found: Mismatch| {
            let what = format!("superblock copy {}", ["A", "B"][copy as usize]);
            found.at(what, "pm", path, Geometry::superblock(copy))
        };
        // One is enough: another program may have been cut short between the two.
        let read = |page: &[u8]| match Superblock::decode(page) {
            Ok(superblock) => Ok(Ok(superblock)),
            Err(SealRefused::Damaged(found)) => Ok(Err(found)),
            Err(SealRefused::Format(version)) => Err(other_format(path.display(), version)),
        };
        let copies = (read(a)?, read(b)?);
        match copies {
            (Ok(a), Ok(b)) if b.generation > a.generation => Ok((b, None)),
            (Ok(a), Ok(_)) => Ok((a, None)),
            (Ok(a), Err(e)) => Ok((a, Some(damage(1, e)))),
            (Err(e), Ok(b)) => Ok((b, Some(damage(0, e)))),
            (Err(e), Err(_)) => Err(Error::corrupt(damage(0, e))),
        }
    }

    /// Writes both copies, the first durable before the other is touched. What the region was
    /// opened by comes last: the other copy may be torn, and then it is the only sound one.
    pub(crate) fn write(&mut self, region: &Region) -> Result<Durable> {
        let a = Superblock::decode(region.bytes(Geometry::superblock(0), PAGE));
        let a_is_current = a.is_ok_and(|a| a.generation == self.generation);
        let (first, last) = if a_is_current { (1, 0) } else { (0, 1) };
        self.generation += 1;
        let page = self.encode();
        region.persist([region.write(Geometry::superblock(first), &page)])?;
        region.persist([region.write(Geometry::superblock(last), &page)])
    }

    /// The pages that hold it.
    pub(crate) fn span() -> Span {
        Span { at: 0, len: 2 * PAGE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::ErrorKind;
    use crate::base::record::checksum;
    use std::path::Path;

    fn lived(first: u64, last: u64, cut: Lsn) -> Lived {
        Lived { first, last, cut }
    }

    fn sample() -> Superblock {
        Superblock {
            database_id: *b"0123456789abcdef",
            generation: 3,
            geometry: Geometry::for_size(4 << 20),
            lsn_base: 77,
            shared_cut: Some(70),
            kept: Some(60),
            incarnations: Incarnations {
                current: 5,
                earlier: vec![lived(1, 2, 10), lived(4, 4, 70)],
            },
        }
    }

    fn pages_of(page: &[u8]) -> Vec<u8> {
        [page, page].concat()
    }

    fn pages(a: &Superblock, b: &Superblock) -> Vec<u8> {
        [a.encode(), b.encode()].concat()
    }

    #[test]
    fn greater_generation_wins() {
        let (old, mut new) = (sample(), sample());
        new.generation = 4;
        for pair in [pages(&old, &new), pages(&new, &old)] {
            assert_eq!(Superblock::read(&pair, Path::new("r")).unwrap(), (new.clone(), None));
        }
    }

    #[test]
    fn every_flipped_byte_is_found_and_the_other_copy_serves() {
        let sound = pages(&sample(), &sample());
        for at in 0..PAGE as usize {
            let mut pages = sound.clone();
            pages[at] ^= 0x40;
            let (read, damage) = Superblock::read(&pages, Path::new("r")).unwrap();
            assert_eq!(read, sample());
            assert_eq!(damage.map(|d| d.offset), Some(0), "byte {at}");
        }
    }

    /// A program that does not know what is kept for the shared store writes zeros there.
    #[test]
    fn a_superblock_without_the_word_keeps_nothing() {
        let mut page = sample().encode();
        page[88..96].fill(0);
        let sum = checksum(&[1], &page[16..]);
        page[12..16].copy_from_slice(&sum.to_le_bytes());
        let (read, damage) = Superblock::read(&pages_of(&page), Path::new("r")).unwrap();
        assert_eq!((read, damage), (Superblock { kept: None, ..sample() }, None));
    }

    #[test]
    fn newer_format_is_refused_by_number() {
        let mut page = sample().encode();
        page[8] = 9;
        let sum = checksum(&[9], &page[16..]);
        page[12..16].copy_from_slice(&sum.to_le_bytes());
        let error = Superblock::read(&[page.clone(), page].concat(), Path::new("r")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("format 9"), "{error}");
    }

    #[test]
    fn dead_incarnations_stay_dead() {
        let i = sample().incarnations;
        assert!(i.alive(5, 1000) && i.alive(4, 70) && i.alive(2, 10));
        assert!(!i.alive(4, 71) && !i.alive(3, 1) && !i.alive(2, 11));
    }
}
