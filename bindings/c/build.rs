//! Gives the shared library the name under which programs look for it: that of its ABI version. The
//! linker hides what other crates would export.

#![allow(clippy::print_stdout, reason = "cargo reads what a build script prints")]

#[expect(unreachable_pub, reason = "the library exports it")]
#[path = "src/abi.rs"]
mod abi;

fn main() {
    let soname = format!("libterrace.so.{}", abi::TERRACE_ABI_VERSION);
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/abi.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{soname}");
    // The library exports its own functions alone: crates that it links may have some for C.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
}
