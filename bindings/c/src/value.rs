//! Values that C holds without a copy: a structure of the caller's, which keeps the bytes alive.
//!
//! Invariants:
//!
//! 1. While `data` is not NULL, `owner` holds a live `Bytes` whose bytes `data` and `len` name.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use bytes::Bytes;

use crate::guard;

/// What a `Bytes` takes, in pointers.
const OWNER: usize = size_of::<Bytes>() / size_of::<*const c_void>();

const _: () = assert!(size_of::<Bytes>() == 4 * size_of::<*const c_void>());
const _: () = assert!(align_of::<Bytes>() == align_of::<*const c_void>());

/// A value that a read has found, kept alive without a copy. The structure is the caller's. It may
/// be moved, and not copied; terrace_value_release ends it. It keeps a block of memory, so copy
/// bytes that are kept for long. It stays valid when its table or its database is closed.
#[derive(Debug)]
#[repr(C)]
pub struct Value {
    /// The bytes; NULL when there is no value. A value of no bytes has another address.
    pub data: *const c_char,
    /// How many bytes.
    pub len: usize,
    /// For the library.
    pub owner: [*const c_void; 4],
}

impl Value {
    /// No value.
    pub(crate) const NONE: Value = Value { data: ptr::null(), len: 0, owner: [ptr::null(); OWNER] };

    /// Takes the bytes over.
    #[inline]
    pub(crate) fn new(bytes: Option<Bytes>) -> Value {
        let Some(bytes) = bytes else { return Value::NONE };
        let (data, len) = (bytes.as_ptr().cast(), bytes.len());
        // SAFETY: both types have one size and alignment, as asserted above, and every bit pattern
        // is a raw pointer. The bytes are not dropped here but by `release` (invariant 1).
        let owner = unsafe { std::mem::transmute::<Bytes, [*const c_void; OWNER]>(bytes) };
        Value { data, len, owner }
    }

    /// Gives the bytes back; without any it does nothing.
    fn release(&mut self) {
        let owned = std::mem::replace(self, Value::NONE);
        if !owned.data.is_null() {
            // SAFETY: invariant 1; the value has none any more, so this is the only time.
            drop(unsafe { std::mem::transmute::<[*const c_void; OWNER], Bytes>(owned.owner) });
        }
    }
}

impl Default for Value {
    fn default() -> Value {
        Value::NONE
    }
}

/// Where C wants a value. What is there is not read.
pub(crate) type ValueOut<'a> = Option<&'a mut MaybeUninit<Value>>;

/// Ends a value. It is empty afterwards, and may be released again. NULL is no error.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_value_release(value: Option<&mut Value>) {
    guard::plain((), || {
        if let Some(value) = value {
            value.release();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_keeps_its_bytes_until_it_is_released() {
        let bytes = Bytes::from(vec![7_u8; 100]);
        let mut value = Value::new(Some(bytes.clone()));
        assert_eq!((value.data.cast(), value.len), (bytes.as_ptr(), 100));
        assert!(!bytes.is_unique());
        terrace_value_release(Some(&mut value));
        assert!(bytes.is_unique());
        terrace_value_release(Some(&mut value));
        terrace_value_release(None);
        assert!(value.data.is_null());
    }

    #[test]
    fn a_value_of_no_bytes_is_a_value() {
        let mut value = Value::new(Some(Bytes::new()));
        assert!(!value.data.is_null());
        terrace_value_release(Some(&mut value));
        assert!(Value::new(None).data.is_null());
    }
}
