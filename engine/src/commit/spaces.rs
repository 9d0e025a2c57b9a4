//! Zones for streams, and streams for tables: everything that makes space ready before a ticket.
//!
//! Thread safety: every method takes `&self`. A thread that links, seals or gives back a zone holds
//! `linking`, which is taken before the sequencer and never in it.

use super::committer::Committer;
use super::group::{Group, SHARED_STREAM};
use super::sequencer::StreamTail;
use crate::base::error::{Error, ErrorKind, Result};
use crate::pm::alloc::{Frees, Link, StreamKind, StreamObject, StreamPool, ZONE_HEADER};
use crate::pm::{Purpose, STREAM_SLOTS, SpentOn};

impl Committer {
    /// Links a standby zone with room for a part of `len` bytes to a stream that has none such. A
    /// smaller one that it has goes back first: its units may be what is missing. `frees` says that
    /// it is for a commit that frees space, which may take the region's reserve.
    pub(crate) fn make_standby(&self, stream: u32, len: u64, frees: Frees) -> Result<()> {
        let _spent = SpentOn::purpose(Purpose::Allocation);
        let _linking = self.linking.lock();
        self.poison.check()?;
        let (tail, outgrown) = {
            let mut sequencer = self.sequencer.lock();
            if sequencer.is_shut {
                return Err(Error::closed());
            }
            let s = &mut sequencer.streams[stream as usize];
            if s.standby_fits(len) {
                return Ok(());
            }
            (*s, s.standby.take())
        };
        if let Some(outgrown) = outgrown {
            self.zones.release(&[outgrown.number]).inspect_err(|e| self.stop(e))?;
        }
        let (stream_units, geometry) = (tail.units.max(1), self.zones.geometry());
        let least = geometry.units_for(ZONE_HEADER + len);
        let linked = self.zones.link(&Link {
            stream,
            ordinal: tail.ordinal + 1,
            incarnation: self.incarnation,
            units: stream_units.min(self.fair_share()).max(least),
            least,
            frees,
        });
        if let Err(e) = &linked
            && e.kind() != ErrorKind::Full
        {
            self.stop(e);
        }
        let zone = linked?;
        self.sequencer.lock().streams[stream as usize].standby = Some(zone);
        Ok(())
    }

    /// Makes room for a group that is about to become dear, and that takes its ticket later: other
    /// groups may take the room before.
    pub(crate) fn make_room(&self, group: &Group) -> Result<()> {
        loop {
            let (lacks, is_kept) = {
                let sequencer = self.sequencer.lock();
                (sequencer.lacks_space(group), sequencer.is_kept_from(group, &self.zones))
            };
            match lacks {
                Some((stream, len)) => self.make_standby(stream, len, group.frees)?,
                None if is_kept => return Err(self.zones.kept_back(group.frees)),
                None => return Ok(()),
            }
        }
    }

    /// The most units that a stream takes to have fewer switches: less as the region fills, so that
    /// what is left lasts for all the streams that are in use.
    fn fair_share(&self) -> u32 {
        let shares = (4 * self.streams_used()).clamp(4, 16);
        let left = (self.zones.free() / shares).checked_ilog2().map_or(1, |log| 1 << log);
        self.zones.geometry().usual_units().min(left)
    }

    /// Whether some stream that is in use has no standby zone.
    pub(crate) fn lacks_standby(&self) -> Option<u32> {
        let sequencer = self.sequencer.lock();
        sequencer.streams.iter().position(|s| s.standby.is_none() && !s.idle).map(|s| s as u32)
    }

    /// A stream for a busy table: one that is idle, or else a new one, durably.
    pub(crate) fn open_stream(&self) -> Result<u32> {
        let _spent = SpentOn::purpose(Purpose::Allocation);
        let _linking = self.linking.lock();
        let next = {
            let mut sequencer = self.sequencer.lock();
            let idle = |(stream, s): &(u32, &StreamTail)| s.idle && self.cleaner != Some(*stream);
            if let Some((stream, _)) = (0..).zip(&sequencer.streams).find(idle) {
                sequencer.streams[stream as usize].idle = false;
                return Ok(stream);
            }
            sequencer.streams.len() as u32
        };
        if next == STREAM_SLOTS {
            let message = format!("all {STREAM_SLOTS} streams of the region are taken");
            return Err(Error::new(ErrorKind::Full, message));
        }
        let object = StreamObject { stream: next, generation: 0, kind: StreamKind::Own };
        let made = self.region.persist(StreamPool::take(&self.region, &object));
        made.inspect_err(|e| self.stop(e))?;
        self.sequencer.lock().streams.push(StreamTail::default());
        Ok(next)
    }

    /// Closes a stream that no table has any more: its zone is sealed, its standby zone given back.
    pub(crate) fn close_stream(&self, stream: u32) -> Result<()> {
        debug_assert_ne!(stream, SHARED_STREAM, "the shared stream is never closed");
        let _spent = SpentOn::purpose(Purpose::Allocation);
        let _linking = self.linking.lock();
        let (sealed, standby) = {
            let mut sequencer = self.sequencer.lock();
            let s = &mut sequencer.streams[stream as usize];
            s.idle = true;
            s.units = 1;
            let sealed = s.zone.take().map(|z| self.zones.seal(z.number, s.tail, s.greatest));
            (sealed, s.standby.take().map(|zone| zone.number))
        };
        let closed =
            self.region.persist(sealed).and_then(|_| self.zones.release(standby.as_slice()));
        closed.map(|_| ()).inspect_err(|e| self.stop(e))
    }

    /// How many streams tables have.
    pub(crate) fn streams_used(&self) -> u32 {
        self.sequencer.lock().streams.iter().filter(|s| !s.idle).count() as u32
    }

    /// Streams without a zone that is or will be appended to.
    pub(super) fn idle_streams(&self) -> Vec<u32> {
        self.streams_that(|s| s.zone.is_none() && s.standby.is_none())
    }

    /// Streams to be closed again. No table has them, and a group that was encoded for them came
    /// late. Or it is the cleaner's, which copies go on in until another stream could use its zone.
    pub(crate) fn reopened_streams(&self) -> Vec<u32> {
        self.streams_that(|s| s.idle && (s.zone.is_some() || s.standby.is_some()))
    }

    fn streams_that(&self, are: impl Fn(&StreamTail) -> bool) -> Vec<u32> {
        let sequencer = self.sequencer.lock();
        let streams = sequencer.streams.iter().zip(0..);
        streams.filter(|(stream, _)| are(stream)).map(|(_, n)| n).collect()
    }

    /// Takes in the units that the region has more of, once `note` has made that durable.
    pub(crate) fn grow(&self, units: u32, note: impl FnOnce() -> Result<()>) -> Result<()> {
        let _spent = SpentOn::purpose(Purpose::Allocation);
        let _linking = self.linking.lock();
        note().inspect_err(|e| self.stop(e))?;
        self.zones.grow(units);
        Ok(())
    }
}
