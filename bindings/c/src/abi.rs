/// The version of the interface, with which the name of the shared library ends: libterrace.so.2.
/// It grows when a function is gone, or an argument has changed: programs are compiled anew then.
/// TERRACE_VERSION_MAJOR, _MINOR and _PATCH tell what was added.
pub const TERRACE_ABI_VERSION: u32 = 2;
