//! The parts of a figure: bars by case and metric, and all rows as a table.

use std::collections::BTreeSet;
use std::fmt::{Result, Write as _};

use serde_json::Value;

use super::escape;
use crate::report::{Row, number};

/// A figure: what it is about, under what bound and without what, its bars, and its rows.
pub(super) fn figure(page: &mut String, name: &str, rows: &[&Row], others: &[Value]) -> Result {
    writeln!(page, "<h2 id=\"{0}\">{0}</h2><p class=legend>{1}</p>", escape(name), about(name))?;
    remarks(page, name, others)?;
    let mut groups: Vec<(&str, &str)> = Vec::new();
    for row in rows.iter().filter(|row| is_drawn(name, row)) {
        if !groups.contains(&(row.case.as_str(), row.metric.as_str())) {
            groups.push((&row.case, &row.metric));
        }
    }
    for (case, metric) in groups {
        let own = |row: &&&Row| row.case == case && row.metric == metric;
        let own: Vec<&Row> = rows.iter().filter(own).copied().collect();
        bars(page, name, case, metric, &own)?;
    }
    writeln!(page, "<details><summary>All {} rows</summary><div class=scroll><table>", rows.len())?;
    writeln!(
        page,
        "<thead><tr><th>case<th>system<th>metric<th>median<th>spread<th>source</tr></thead>"
    )?;
    for row in rows {
        writeln!(
            page,
            "<tr><td>{}<td>{}<td>{}<td class=num>{} {}<td class=num>{} – {}<td class=num>{}</tr>",
            escape(&row.case),
            escape(&row.system),
            escape(&row.metric),
            number(row.value),
            escape(&row.unit),
            number(row.low),
            number(row.high),
            row.paper.map_or(String::new(), number)
        )?;
    }
    writeln!(page, "</table></div></details>")
}

/// What memory was bounded to, and what is missing.
fn remarks(page: &mut String, figure: &str, others: &[Value]) -> Result {
    let said = |metric: &'static str| {
        others.iter().filter(move |o| o["figure"] == figure && o["metric"] == metric)
    };
    let bounds: BTreeSet<u64> = said("bound").filter_map(|o| o["mib"].as_u64()).collect();
    if !bounds.is_empty() {
        let bounds: Vec<String> = bounds.iter().map(u64::to_string).collect();
        writeln!(
            page,
            "<p class=legend>Where data is larger than memory, the kernel held each process and \
             the cache of its files to {} MiB together.</p>",
            bounds.join(" or ")
        )?;
    }
    for text in said("skipped").filter_map(|o| o["text"].as_str()) {
        writeln!(page, "<p class=warn>Left out: {}.</p>", escape(text))?;
    }
    Ok(())
}

/// What a figure is about, in a sentence.
fn about(figure: &str) -> &'static str {
    match figure {
        "sync" => "What a durable write costs on this device, by way of writing. Less is better.",
        "commit" => "Commits by threads × records a batch; bare loops move the same bytes.",
        "memtable" => "Every index maps a key to a record, which is read. More is better.",
        "restart" => "From opening to the first correct read, with everything unflushed.",
        "level0" => "One sorted level 0 beside 58 files of level 0. More is better.",
        "pm-budget" => "What the region holds, and how writers slow down.",
        "ycsb" => {
            "YCSB on 8-byte keys and 500-byte values. In memory: all of it fits in what each store \
             may cache. Larger: four times as much data as memory. LMDB's reads are drawn as a \
             bound: they copy nothing and check nothing. More is better, but for device bytes."
        }
        "durability" => {
            "Syncs that each store makes for a durable put, counted in a pass of its own: every \
             store is measured with the promise it keeps."
        }
        "stalls" => {
            "Random writes with memory for an eighth of the data. A store that puts work off pays \
             for it in gaps."
        }
        "containers" => {
            "The containers of level 0 by the workloads of MatrixKV's authors: ten times as much \
             data as level 0 has. Less is better of jobs, bytes and times, more of the rest."
        }
        "write-amp" => {
            "Bytes sent to the device for each byte of keys and values, region included where it \
             is a file. Less is better."
        }
        "space" => "What the closed directory takes, region included. Less is better.",
        "scan" => "Ranges up and down over data that memory does not hold. More is better.",
        "txn" => {
            "Transfers between two rows, durable, beside RocksDB's TransactionDB; hot is sixteen \
             rows. The sum was right at the end of each. More is better."
        }
        "tpcc" => {
            "A TPC-C-like driver, not an audited benchmark: no keying or thinking times. The \
             standard's consistency conditions were checked at the end of each run."
        }
        "defaults" => {
            "Every store as it opens with no option set, the process and its pages bounded by the \
             kernel. More is better."
        }
        "growth" => {
            "The main figures as data, threads and values grow, with memory that does not. The \
             slope is what a doubling brings."
        }
        "instructions" => {
            "Instructions of the calling thread, counted by callgrind: the processor's work \
             without the machine's noise. Less is better."
        }
        "alloc" => "An allocation in persistent memory. Less is better.",
        "ods" => "Lines flushed by persistent trees. Less is better.",
        "scheduler" => {
            "One step of the background while one table of many is written. It must not grow with \
             the number of tables. Less is better."
        }
        "queue" => {
            "Reads of the head of a queue, by windows. A store whose deletes stay in front of it \
             reads it ever more slowly. Less is better."
        }
        _ => "",
    }
}

/// The metrics that bars show; the rest is in the table.
fn is_drawn(figure: &str, row: &Row) -> bool {
    match figure {
        "sync" => row.metric == "p50",
        "ods" => row.metric == "lines",
        "restart" => row.metric == "rate",
        "pm-budget" => matches!(row.metric.as_str(), "used of bound" | "slowest 100 ms of median"),
        "alloc" => matches!(row.metric.as_str(), "time" | "fences"),
        "commit" | "scan" | "defaults" => row.metric == "throughput",
        "durability" => row.metric == "syncs a durable put",
        "stalls" => {
            matches!(row.metric.as_str(), "throughput" | "p99.9" | "longest gap" | "longest write")
        }
        "queue" => row.metric.starts_with("p99"),
        "txn" => row.metric == "throughput",
        "tpcc" => matches!(row.metric.as_str(), "new orders a minute" | "new order, p95"),
        "growth" => row.metric == "throughput by doubling",
        "write-amp" => row.metric == "device bytes of user bytes",
        "space" => matches!(row.metric.as_str(), "closed" | "peak"),
        "ycsb" if row.case.contains("larger") => {
            matches!(row.metric.as_str(), "throughput" | "device bytes of user bytes")
        }
        "ycsb" if row.case.contains("/s") => row.metric == "p99",
        "ycsb" => row.metric == "throughput",
        _ => row.unit != "×",
    }
}

/// Whether a row is no rival's but a bound: LMDB hands out pointers into its mapping.
fn is_bound(figure: &str, row: &Row) -> bool {
    let reads = row.case.starts_with("C ") || row.case.starts_with("E ") || figure == "scan";
    row.system.starts_with("lmdb") && reads
}

fn bars(page: &mut String, name: &str, case: &str, metric: &str, rows: &[&Row]) -> Result {
    let ends = rows.iter().flat_map(|row| [row.high, row.paper.unwrap_or(0.0)]);
    let longest = ends.fold(f64::MIN_POSITIVE, f64::max);
    let unit = rows.first().map_or("", |row| row.unit.as_str());
    writeln!(page, "<h3>{} · {}, {}</h3>", escape(case), escape(metric), escape(unit))?;
    for row in rows {
        let share = |value: f64| (value / longest * 100.0).clamp(0.0, 100.0);
        let bare = row.system.starts_with("bare") || is_bound(name, row);
        let ours = ["terrace", "pool", "ods", "file, ", "emulated, "];
        let class = match ours.iter().any(|own| row.system.starts_with(own)) {
            true => "bar ours",
            false if bare => "bar bare",
            false => "bar",
        };
        write!(
            page,
            "<div class=\"{class}\"><span class=name>{}</span><span class=of>\
             <span class=len style=\"width:{:.2}%\"></span>\
             <span class=spread style=\"left:{:.2}%;width:{:.2}%\"></span>",
            escape(&row.system),
            share(row.value),
            share(row.low),
            share(row.high - row.low)
        )?;
        if let Some(paper) = row.paper {
            let at = share(paper);
            write!(page, "<span class=src style=\"left:{at:.2}%\" title=\"source\">◆</span>")?;
        }
        writeln!(
            page,
            "</span><span class=num>{} {}</span></div>",
            number(row.value),
            escape(unit)
        )?;
    }
    Ok(())
}
