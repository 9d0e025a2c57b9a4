mod cuts;
mod model;
mod stress;
pub(super) mod support;
