//! Which library this is.

use std::ffi::c_char;

use crate::abi::TERRACE_ABI_VERSION;

/// The version of the library that this header belongs to: 0 in 0.1.2.
pub const TERRACE_VERSION_MAJOR: u32 = 0;
/// As TERRACE_VERSION_MAJOR: 1 in 0.1.2.
pub const TERRACE_VERSION_MINOR: u32 = 1;
/// As TERRACE_VERSION_MAJOR: 2 in 0.1.2.
pub const TERRACE_VERSION_PATCH: u32 = 0;

/// The version of the interface that the library has. It is TERRACE_ABI_VERSION of the header that
/// the program was compiled with, unless the program was linked with another library.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_the_version_of_the_package() {
        let [major, minor, patch] =
            [TERRACE_VERSION_MAJOR, TERRACE_VERSION_MINOR, TERRACE_VERSION_PATCH];
        assert_eq!(format!("{major}.{minor}.{patch}"), env!("CARGO_PKG_VERSION"));
    }
}
