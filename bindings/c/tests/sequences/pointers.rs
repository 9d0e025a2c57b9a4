//! Pointers as callers in C make them, and what the library lends.

use std::ffi::CString;
use std::mem::MaybeUninit;

use terrace_c::value::*;
use terrace_c::{Buffer, Data, Slice, Slices, Text, Values};

pub(crate) fn data(bytes: &[u8]) -> Data {
    // SAFETY: the callers below pass the length of the same bytes, which outlive the call.
    unsafe { Data::new(bytes.as_ptr().cast()) }
}

pub(crate) fn text(text: &CString) -> Text {
    // SAFETY: the text ends with a zero byte and outlives the call.
    unsafe { Text::new(text.as_ptr()) }
}

/// The bytes that a call has lent.
pub(crate) fn lent<'a>(data: *const std::ffi::c_char, len: usize) -> &'a [u8] {
    assert!(!data.is_null());
    // SAFETY: the library has lent so many bytes, which are looked at before its next call.
    unsafe { std::slice::from_raw_parts(data.cast(), len) }
}

/// What a call has written, whatever its outcome.
pub(crate) fn filled<T>(slot: MaybeUninit<T>) -> T {
    // SAFETY: the callers pass what a call has written.
    unsafe { slot.assume_init() }
}

/// Room for a value.
pub(crate) fn buffer(room: &mut [u8]) -> Buffer {
    // SAFETY: the callers pass the length of the same room, which outlives the call.
    unsafe { Buffer::new(room.as_mut_ptr().cast()) }
}

/// Keys, and room for the value of each.
pub(crate) fn arrays(keys: &[Slice], values: &mut [Value]) -> (Slices, Values) {
    // SAFETY: both have an element for each key, and outlive the call.
    unsafe { (Slices::new(keys.as_ptr()), Values::new(values.as_mut_ptr())) }
}
