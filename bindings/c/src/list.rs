//! Lists of text.

use std::ffi::{CString, c_char};
use std::ptr;

use crate::error::c_text;
use crate::guard;

/// A list of text.
#[derive(Debug)]
pub struct Strings(Vec<CString>);

impl Strings {
    pub(crate) fn new(strings: Vec<String>) -> Strings {
        Strings(strings.into_iter().map(c_text).collect())
    }
}

/// How many there are; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_strings_len(strings: Option<&Strings>) -> usize {
    strings.map_or(0, |strings| strings.0.len())
}

/// One of them, counted from 0: UTF-8 that ends with a zero byte and belongs to the list. NULL when
/// there is none at that place.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_strings_at(strings: Option<&Strings>, at: usize) -> *const c_char {
    strings.and_then(|strings| strings.0.get(at)).map_or(ptr::null(), |text| text.as_ptr())
}

/// Frees a list. NULL is no error.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_strings_free(strings: Option<Box<Strings>>) {
    guard::free(strings);
}
