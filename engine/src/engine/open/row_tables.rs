//! Row tables at an opening: each that the journal names is checked, and its pages are taken out of
//! the free space of the region.

use std::sync::Arc;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::jobs::install as install_version;
use crate::level0::{Level0, RowTables};
use crate::levels::{Edit, Op};
use crate::os::HashMap;
use crate::record::{Lsn, TableId};
use crate::table::TableCore;

type Tables = HashMap<TableId, Arc<TableCore>>;

/// The row tables of each table that has some.
///
/// # Errors
///
/// `Corrupt` if one does not check out, or two have a page in common; `Invalid` beside a persistent
/// index, which knows nothing of them; or an I/O error.
pub(super) fn open(engine: &Engine, tables: &Tables) -> Result<HashMap<TableId, RowTables>> {
    let (mut opened, mut pages) = (HashMap::default(), Vec::new());
    for table in tables.values() {
        let view = table.view();
        let version = &view.version;
        if version.rows.is_empty() {
            continue;
        }
        let chosen = engine.options.container_of(&version.options);
        let home = (Arc::clone(&engine.shared.pages), chosen);
        let rows = RowTables::open(home, table.id(), &version.rows, &version.drained)?;
        if engine.forest.is_some() {
            drop(view);
            remove_drained(engine, table, &rows)?;
            continue;
        }
        pages.extend(rows.pages());
        opened.insert(table.id(), rows);
    }
    engine.shared.pages.adopt(pages)?;
    Ok(opened)
}

/// Removes the row tables of a table of which all is drained. A persistent index does not know row
/// tables.
///
/// # Errors
///
/// `Invalid` if one of them still has something; or an I/O error.
fn remove_drained(engine: &Engine, table: &TableCore, rows: &RowTables) -> Result<()> {
    let drained = rows.drained();
    if drained.len() < table.view().version.rows.len() {
        return Err(Error::invalid(format!(
            "table {:?} has row tables in level 0, which a persistent index does not know; open \
             the database without Index::Persistent; to open with it, first set the table's level0 \
             option to the global index, compact the table, and close",
            table.name()
        )));
    }
    let remove = |id| Op::RemoveRow { table: table.id(), id };
    let edit = Edit { ops: drained.into_iter().map(remove).collect() };
    let versions = match engine.shared.read_only {
        true => {
            engine.set.adopt(&edit)?;
            engine
                .set
                .version(table.id())
                .map(|version| (table.id(), version))
                .into_iter()
                .collect()
        }
        // An opening has to get through on a full disk.
        false => engine.ctx.apply_freeing(edit)?,
    };
    install_version(table, &mut table.change(), versions, 0);
    Ok(())
}

/// Shows the row tables of tables of which nothing was found in zones.
pub(super) fn install(engine: &Engine, tables: &Tables, rows: HashMap<TableId, RowTables>) {
    for (id, rows) in rows {
        let Some(table) = tables.get(&id) else { continue };
        debug_assert!(engine.forest.is_none(), "a persistent index has no row tables beside it");
        let level0 = Level0::new(rows);
        let mut change = table.change();
        change.apply(|view| view.level0 = level0);
        change.round.low = oldest(table).map_or(0, |oldest| oldest - 1);
    }
}

/// The smallest sequence number in row tables of a table.
pub(super) fn oldest(table: &TableCore) -> Option<Lsn> {
    table.view().version.rows.iter().map(|row| row.oldest).min()
}
