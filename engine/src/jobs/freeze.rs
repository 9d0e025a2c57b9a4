//! Freezes a memtable that has grown large: it takes no more records, and is merged into level 0.

use super::context::{JobContext, Outcome};
use super::ops;
use crate::error::Result;

/// The least memory of an index for which a memtable is frozen.
const LEAST_INDEX: u64 = 64 << 10;

/// Bytes of records, and memory of their index, at which a memtable is frozen. A merge has its
/// records in two indexes for a while.
pub(crate) fn bounds(ctx: &JobContext) -> (u64, u64) {
    let memory = ctx.memory.most_indexes().map(|most| (most / 8).max(LEAST_INDEX));
    (ctx.freeze_at(), memory.unwrap_or(u64::MAX))
}

/// Freezes the first large memtable; beside a persistent index also what has older records, for the
/// boundary of that index to move on.
pub(crate) fn step(ctx: &JobContext) -> Result<Outcome> {
    let (bytes, memory) = bounds(ctx);
    let large = ctx.tables.index().large(bytes, memory);
    let Some(table) = large.filter(|table| ops::freeze(ctx, table)) else {
        return Ok(Outcome::NOTHING);
    };
    if ctx.forest.is_some()
        && let Some(boundary) = table.view().oldest_in_memtables()
    {
        let older = ctx.tables.index().in_memtables_below(boundary);
        for table in &older {
            ops::freeze(ctx, table);
        }
    }
    Ok(Outcome::DONE)
}
