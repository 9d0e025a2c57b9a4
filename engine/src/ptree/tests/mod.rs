mod bytes;
mod bytes_cuts;
mod cuts;
mod interleaved;
mod killed;
mod model;
mod stress;
pub(super) mod support;
mod versions;
