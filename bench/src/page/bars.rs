//! The parts of a figure: bars by case and metric, lines over time, and all rows as a table.

use std::fmt::{Result, Write as _};

use serde_json::Value;

use super::escape;
use crate::report::{Row, number};

/// A figure: what it is about, its bars, and its rows.
pub(super) fn figure(page: &mut String, name: &str, rows: &[&Row]) -> Result {
    writeln!(page, "<h2 id=\"{0}\">{0}</h2><p class=legend>{1}</p>", escape(name), about(name))?;
    let mut groups: Vec<(&str, &str)> = Vec::new();
    for row in rows.iter().filter(|row| is_drawn(name, row)) {
        if !groups.contains(&(row.case.as_str(), row.metric.as_str())) {
            groups.push((&row.case, &row.metric));
        }
    }
    for (case, metric) in groups {
        let own = |row: &&&Row| row.case == case && row.metric == metric;
        let own: Vec<&Row> = rows.iter().filter(own).copied().collect();
        bars(page, case, metric, &own)?;
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

/// What a figure is about, in a sentence.
fn about(figure: &str) -> &'static str {
    match figure {
        "sync" => "What a durable write costs on this device, by way of writing. Less is better.",
        "commit" => "Commits by threads × records a batch; bare loops move the same bytes.",
        "memtable" => "Every index maps a key to a record, which is read. More is better.",
        "restart" => "From opening to the first correct read, with everything unflushed.",
        "level0" => "One sorted level 0 beside 58 files of level 0. More is better.",
        "pm-budget" => "What the region holds, and how writers slow down.",
        "ycsb" => "YCSB on 8-byte keys and 500-byte values, all of it in memory. More is better.",
        "alloc" => "An allocation in persistent memory. Less is better.",
        "ods" => "Lines flushed by persistent trees. Less is better.",
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
        "commit" | "ycsb" => row.metric == "throughput",
        _ => row.unit != "×",
    }
}

fn bars(page: &mut String, case: &str, metric: &str, rows: &[&Row]) -> Result {
    let ends = rows.iter().flat_map(|row| [row.high, row.paper.unwrap_or(0.0)]);
    let longest = ends.fold(f64::MIN_POSITIVE, f64::max);
    let unit = rows.first().map_or("", |row| row.unit.as_str());
    writeln!(page, "<h3>{} · {}, {}</h3>", escape(case), escape(metric), escape(unit))?;
    for row in rows {
        let share = |value: f64| (value / longest * 100.0).clamp(0.0, 100.0);
        let bare = row.system.starts_with("bare");
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

/// Lines over time, each column after the first as a share of its greatest value.
pub(super) fn series(page: &mut String, series: &Value) -> Result {
    const COLOURS: [&str; 4] = ["#0072b2", "#d55e00", "#888888", "#009e73"];
    let (width, height) = (860.0, 180.0);
    let points = |column: usize| -> Vec<f64> {
        let rows = series["rows"].as_array().into_iter().flatten();
        rows.filter_map(|row| row[column].as_f64()).collect()
    };
    let seconds = points(0);
    let end = seconds.iter().copied().fold(1e-9, f64::max);
    let text = |field: &str| escape(series[field].as_str().unwrap_or_default());
    writeln!(page, "<h3>{} over time · {}</h3>", text("case"), text("system"))?;
    writeln!(page, "<svg viewBox=\"0 0 {width} {height}\" role=img>")?;
    let columns: Vec<&str> =
        series["columns"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut legend = Vec::new();
    for (column, name) in columns.iter().enumerate().skip(1) {
        let values = points(column);
        let most = values.iter().copied().fold(1e-9, f64::max);
        let colour = COLOURS[(column - 1) % COLOURS.len()];
        let place = |(x, y): (&f64, &f64)| {
            format!("{:.1},{:.1}", x / end * width, height - 2.0 - y / most * (height - 4.0))
        };
        let line: Vec<String> = seconds.iter().zip(&values).map(place).collect();
        writeln!(
            page,
            "<polyline fill=none stroke=\"{colour}\" stroke-width=1.5 points=\"{}\"/>",
            line.join(" ")
        )?;
        legend.push(format!(
            "<span style=\"color:{colour}\">■</span> {}, of {}",
            escape(name),
            number(most)
        ));
    }
    writeln!(page, "</svg><p class=legend>{} · 0 to {end:.1} s</p>", legend.join(" · "))
}
