/// The version of the interface, with which the name of the shared library ends: libterrace.so.3.
/// A release that removes a function or changes an argument raises it. Programs must be compiled
/// again then.
/// TERRACE_VERSION_MAJOR, _MINOR and _PATCH tell what was added.
pub const TERRACE_ABI_VERSION: u32 = 3;
