mod counts;
mod cuts;
mod interleaved;
mod killed;
mod model;
mod stress;
mod support;
mod versions;
