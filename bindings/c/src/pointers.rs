//! Pointers that C passes with a length or an end: bytes, text, buffers, arrays. With `value.rs`,
//! `operator.rs` and `callback.rs` it has the unsafe code of this crate.
//!
//! Each type has the ABI of the pointer in it. C promises, at the head of the header, that a
//! pointer is NULL or valid for the length that it comes with, until the call returns. What is read
//! here is borrowed from the argument, and so cannot outlive the call.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::guard::{Failure, Result};
use crate::statistics::Statistics;
use crate::value::Value;

/// Bytes to read, with a length beside them.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Data(*const c_void);

impl Data {
    /// NULL.
    pub const fn null() -> Data {
        Data(std::ptr::null())
    }

    /// For callers in Rust.
    ///
    /// # Safety
    ///
    /// For as long as the calls last that get it, `pointer` is valid for as many bytes as they are
    /// told.
    pub const unsafe fn new(pointer: *const c_void) -> Data {
        Data(pointer)
    }

    /// The bytes. NULL stands for none.
    #[inline]
    pub(crate) fn bytes(&self, len: usize, name: &'static str) -> Result<&[u8]> {
        if len == 0 {
            return Ok(&[]);
        }
        if self.0.is_null() {
            return Err(Failure::Null(name));
        }
        if len > isize::MAX as usize {
            return Err(Failure::Invalid(format!("{name} cannot have {len} bytes")));
        }
        // SAFETY: C promises that a pointer which is not NULL is valid for its length during the
        // call, and the slice is borrowed from an argument of the call.
        Ok(unsafe { std::slice::from_raw_parts(self.0.cast(), len) })
    }
}

/// Text that ends with a zero byte.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Text(*const c_char);

impl Text {
    /// NULL.
    pub const fn null() -> Text {
        Text(std::ptr::null())
    }

    /// For callers in Rust.
    ///
    /// # Safety
    ///
    /// For as long as the calls last that get it, `pointer` is valid up to a zero byte.
    pub const unsafe fn new(pointer: *const c_char) -> Text {
        Text(pointer)
    }

    fn bytes(&self, name: &'static str) -> Result<&[u8]> {
        if self.0.is_null() {
            return Err(Failure::Null(name));
        }
        // SAFETY: C promises that text which is not NULL is valid up to its zero byte during the
        // call, and the slice is borrowed from an argument of the call.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }

    /// The text, which must be UTF-8.
    pub(crate) fn text(&self, name: &'static str) -> Result<&str> {
        std::str::from_utf8(self.bytes(name)?)
            .map_err(|e| Failure::Invalid(format!("{name} is not UTF-8: {e}")))
    }

    /// The text as a path, which may hold any bytes.
    pub(crate) fn path(&self, name: &'static str) -> Result<&Path> {
        self.bytes(name).map(|bytes| Path::new(OsStr::from_bytes(bytes)))
    }
}

/// Bytes to write, with a capacity beside them.
#[repr(transparent)]
#[derive(Debug)]
pub struct Buffer(*mut c_void);

impl Buffer {
    /// NULL.
    pub const fn null() -> Buffer {
        Buffer(std::ptr::null_mut())
    }

    /// For callers in Rust.
    ///
    /// # Safety
    ///
    /// For as long as the calls last that get it, `pointer` is valid for writes of as many bytes as
    /// they are told, and nothing else uses these.
    pub const unsafe fn new(pointer: *mut c_void) -> Buffer {
        Buffer(pointer)
    }

    /// Copies `bytes` to the buffer; whether they fit. If they do not, nothing is copied.
    #[inline]
    pub(crate) fn fill(&mut self, capacity: usize, bytes: &[u8]) -> Result<bool> {
        if bytes.len() > capacity {
            return Ok(false);
        }
        if bytes.is_empty() {
            return Ok(true);
        }
        if self.0.is_null() {
            return Err(Failure::Null("buffer"));
        }
        // SAFETY: C promises that a buffer which is not NULL is valid for `capacity` bytes, which
        // are at least as many, and that nothing else uses it during the call.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.cast(), bytes.len()) };
        Ok(true)
    }
}

/// Some bytes: an element of an array of keys.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// Where they begin. NULL only without bytes.
    pub data: Data,
    /// How many bytes.
    pub len: usize,
}

/// An array of slices, with their number beside it.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Slices(*const Slice);

impl Slices {
    /// For callers in Rust.
    ///
    /// # Safety
    ///
    /// As [`Data::new`], for an array and for each slice in it.
    pub const unsafe fn new(pointer: *const Slice) -> Slices {
        Slices(pointer)
    }

    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// The slices.
    pub(crate) fn slices(&self, count: usize, name: &'static str) -> Result<&[Slice]> {
        check_array(self.0, count, name)?;
        if count == 0 {
            return Ok(&[]);
        }
        // SAFETY: C promises that an array which is not NULL is valid for its number of elements
        // during the call; `check_array` has refused NULL and numbers that cannot be.
        Ok(unsafe { std::slice::from_raw_parts(self.0, count) })
    }
}

/// An array of values to write, with their number beside it.
#[repr(transparent)]
#[derive(Debug)]
pub struct Values(*mut Value);

impl Values {
    /// For callers in Rust.
    ///
    /// # Safety
    ///
    /// As [`Buffer::new`], for an array.
    pub const unsafe fn new(pointer: *mut Value) -> Values {
        Values(pointer)
    }

    /// Writes as many values as the iterator has, at most `count`.
    pub(crate) fn write(
        &mut self,
        count: usize,
        values: impl Iterator<Item = Value>,
    ) -> Result<()> {
        check_array(self.0, count, "values")?;
        for (at, value) in values.take(count).enumerate() {
            // SAFETY: C promises that an array which is not NULL is valid for writes of `count`
            // elements, which `at` is less than. What was there is not read or dropped.
            unsafe { self.0.add(at).write(value) };
        }
        Ok(())
    }
}

fn check_array<T>(array: *const T, count: usize, name: &'static str) -> Result<()> {
    if array.is_null() && count > 0 {
        return Err(Failure::Null(name));
    }
    if count > isize::MAX as usize / size_of::<T>() {
        return Err(Failure::Invalid(format!("{name} cannot have {count} elements")));
    }
    Ok(())
}

/// Where statistics go, with a size beside it: callers that were compiled with an older header have
/// a shorter structure.
#[repr(transparent)]
#[derive(Debug)]
pub struct StatisticsOut(*mut Statistics);

impl StatisticsOut {
    /// For callers in Rust.
    ///
    /// # Safety
    ///
    /// As [`Buffer::new`].
    pub const unsafe fn new(pointer: *mut Statistics) -> StatisticsOut {
        StatisticsOut(pointer)
    }

    /// Writes as much of the statistics as there is room for, and zeros beyond them.
    pub(crate) fn write(&mut self, size: usize, statistics: &Statistics) -> Result<()> {
        if self.0.is_null() {
            return Err(Failure::Null("statistics"));
        }
        if size == 0 || !size.is_multiple_of(size_of::<u64>()) || size > 1 << 16 {
            return Err(Failure::Invalid(format!(
                "the statistics cannot have a size of {size} bytes; pass sizeof(terrace_statistics)"
            )));
        }
        let mut words = [0_u64; size_of::<Statistics>() / size_of::<u64>()];
        statistics.write_to(&mut words);
        let have = size / size_of::<u64>();
        let most = have.min(words.len());
        let to: *mut u64 = self.0.cast();
        // SAFETY: C promises that the structure is valid for writes of `size` bytes; `have` words
        // are as many, and no more than those are written. Their alignment is that of a `u64`.
        unsafe {
            std::ptr::copy_nonoverlapping(words.as_ptr(), to, most);
            std::ptr::write_bytes(to.add(most), 0, have - most);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_no_bytes_and_nothing_else() {
        assert_eq!(Data::null().bytes(0, "key").unwrap(), b"");
        assert!(matches!(Data::null().bytes(1, "key"), Err(Failure::Null("key"))));
        // SAFETY: it is refused by its length before anything is read.
        let data = unsafe { Data::new(b"x".as_ptr().cast()) };
        assert!(matches!(data.bytes(usize::MAX, "key"), Err(Failure::Invalid(_))));
        assert_eq!(data.bytes(1, "key").unwrap(), b"x");
    }

    #[test]
    fn text_is_utf_8() {
        // SAFETY: the text ends with a zero byte and is static.
        let text = unsafe { Text::new(c"\xff".as_ptr()) };
        assert!(matches!(text.text("name"), Err(Failure::Invalid(_))));
        assert_eq!(text.path("path").unwrap().as_os_str().as_bytes(), b"\xff");
        assert!(matches!(Text::null().path("path"), Err(Failure::Null("path"))));
    }

    #[test]
    fn a_buffer_takes_what_fits() {
        let mut room = [0_u8; 4];
        // SAFETY: the room has four bytes and is used by nothing else.
        let mut buffer = unsafe { Buffer::new(room.as_mut_ptr().cast()) };
        assert!(!buffer.fill(4, b"12345").unwrap());
        assert!(buffer.fill(4, b"123").unwrap());
        assert!(Buffer::null().fill(0, b"").unwrap());
        assert!(Buffer::null().fill(3, b"123").is_err());
        assert_eq!(&room, b"123\0");
    }

    #[test]
    fn an_older_structure_gets_what_it_has_room_for() {
        let statistics = Statistics { visible: 7, durable: 9, ..Statistics::default() };
        let mut room = [u64::MAX; 2];
        // SAFETY: the room has two words, as the calls are told, and is used by nothing else.
        let mut out = unsafe { StatisticsOut::new(room.as_mut_ptr().cast()) };
        out.write(8, &statistics).unwrap();
        assert!(out.write(0, &statistics).is_err());
        assert!(out.write(12, &statistics).is_err());
        assert_eq!(room, [7, u64::MAX]);
    }
}
