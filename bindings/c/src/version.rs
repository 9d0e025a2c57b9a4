//! Which library this is.

use std::ffi::c_char;

/// The version of this interface. It grows when something is added. A program that was compiled
/// with one version runs with any later library of the same soname.
pub const TERRACE_ABI_VERSION: u32 = 1;

/// The version of the interface that the library has; at least TERRACE_ABI_VERSION of the header
/// that the program was compiled with, unless the library is older than the header.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_abi_version() -> u32 {
    TERRACE_ABI_VERSION
}

/// The version of the library as text, such as "0.1.0". It is static.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
