//! Gives the shared library the name under which programs look for it: that of its ABI version. The
//! linker hides what other crates would export.

#![allow(clippy::print_stdout, reason = "cargo reads what a build script prints")]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libterrace.so.2");
    // The library exports its own functions alone: crates that it links may have some for C.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
}
