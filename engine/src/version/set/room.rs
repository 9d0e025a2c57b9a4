//! Space in the journal: which edits may use how much of what is allocated ahead.
//!
//! A full disk must not stop what frees space, and an edit that follows a durable commit must not
//! fail for want of space. So the journal keeps a reserve, and a caller that is about to commit has
//! the space of its edit reserved first. `docs/internals/full-disk.md` has the rule.
//!
//! Thread safety: every method may be called from any thread; `writer` is held over each.

use super::{Changing, VersionSet, Writer};
use crate::base::error::{Error, ErrorKind, Result};
use crate::version::edit::{Edit, Op};
use crate::version::journal::{Journal, RESERVE, STEP};

/// How much of the journal's space an edit may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// It leaves the reserve and what is reserved.
    Ordinary,
    /// It leaves what is reserved: an edit that frees space, or that is followed by one.
    Freeing,
}

/// Space in the journal for edits to come. What they do not use is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct EditReservation<'a> {
    set: &'a VersionSet,
    bytes: u64,
}

impl Drop for EditReservation<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.set.writer.lock().reserved -= self.bytes;
        }
    }
}

impl VersionSet {
    /// Reserves space for each of `edits`, so that none meets a full disk.
    ///
    /// # Errors
    ///
    /// `Full` when the disk has none, or another I/O error. Nothing has changed then.
    pub(crate) fn reserve_edits(
        &self,
        edits: impl Iterator<Item = Edit>,
        room: Room,
    ) -> Result<EditReservation<'_>> {
        let bytes = edits.map(|edit| Journal::len_of(&with_counters(edit))).sum();
        if bytes > 0 {
            let Changing { mut writer, _inside } = self.lock_for_change()?;
            self.find_room(&mut writer, bytes, room)?;
            writer.reserved += bytes;
        }
        Ok(EditReservation { set: self, bytes })
    }

    /// Looks for space for edits of `bytes`, and keeps none.
    ///
    /// # Errors
    ///
    /// As [`VersionSet::reserve_edits`].
    pub(crate) fn look_for_room(&self, bytes: u64, room: Room) -> Result<()> {
        let Changing { mut writer, _inside } = self.lock_for_change()?;
        self.find_room(&mut writer, bytes, room)
    }

    /// The reservation's part for `edit` is used up: its append follows.
    pub(super) fn spend(writer: &mut Writer, reservation: &mut EditReservation<'_>, edit: &Edit) {
        let len = Journal::len_of(edit);
        debug_assert!(
            len <= reservation.bytes,
            "{len} bytes of {} that were reserved",
            reservation.bytes
        );
        let spent = len.min(reservation.bytes);
        reservation.bytes -= spent;
        writer.reserved -= spent;
    }

    /// Has space for an edit of `bytes` beside what others may count on.
    pub(super) fn find_room(&self, writer: &mut Writer, bytes: u64, room: Room) -> Result<()> {
        let needed = bytes + writer.reserved;
        // Whatever the edit is, the reserve is made whole where that is possible.
        let Err(error) = writer.journal.make_room(needed + RESERVE) else { return Ok(()) };
        if error.kind() == ErrorKind::Full
            && self.store.yield_space((needed + RESERVE).next_multiple_of(STEP))
            && writer.journal.make_room(needed + RESERVE).is_ok()
        {
            return Ok(());
        }
        if error.kind() == ErrorKind::Full && room == Room::Freeing {
            return writer.journal.make_room(needed).map_err(|e| full(&e, writer, bytes));
        }
        Err(if error.kind() == ErrorKind::Full { full(&error, writer, bytes) } else { error })
    }
}

fn full(error: &Error, writer: &Writer, bytes: u64) -> Error {
    let message = format!(
        "an edit of {bytes} bytes finds no space in the journal, which has {} bytes left and keeps \
         {RESERVE} of them for edits that free space: {error}; nothing was changed; free some by \
         drop_table, truncate_table or delete_range, or give the file system more",
        writer.journal.room()
    );
    Error::new(ErrorKind::Full, message)
}

/// The edit as it goes to the journal, as far as its length is concerned.
fn with_counters(mut edit: Edit) -> Edit {
    edit.ops.push(Op::Counters { next_table: 0, next_extent: 0, table_event_lsn: 0 });
    edit
}
