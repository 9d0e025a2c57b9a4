mod bytes;
#[cfg(not(feature = "shuttle"))]
mod bytes_cuts;
#[cfg(not(feature = "shuttle"))]
mod cuts;
#[cfg(feature = "shuttle")]
mod interleaved;
#[cfg(not(feature = "shuttle"))]
mod killed;
#[cfg(not(feature = "shuttle"))]
mod model;
#[cfg(not(feature = "shuttle"))]
mod stress;
pub(super) mod support;
#[cfg(not(feature = "shuttle"))]
mod versions;
