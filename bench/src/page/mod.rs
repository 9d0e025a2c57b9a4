//! `report`: every figure in one run, as one HTML page that needs nothing else, with the raw rows
//! beside it. The answer comes first: what was expected, and whether it holds.

mod bars;
mod chart;
mod choice;
mod claims;
mod curves;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use claims::Standing;
use serde_json::{Value, json};

use crate::Settings;
use crate::guard::Guard;
use crate::report::{Report, Row, commit, number};

/// A figure by its name.
pub(crate) type Measure = fn(&Settings, &mut Report) -> Result<()>;

/// Measures `figures` and writes `report.html` and `report.json` into `out`.
pub(crate) fn run(
    settings: &Settings,
    guard: &Guard,
    figures: &[(&str, Measure)],
    out: &Path,
) -> Result<PathBuf> {
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let from = Instant::now();
    let (mut rows, mut others, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for (name, measure) in figures {
        eprintln!("{name}: measuring, {:.0} s so far", from.elapsed().as_secs_f64());
        let mut report = Report::new(true);
        report.set_figure(name);
        // A place of its own for each, and one that fails does not take the others with it.
        let own = Settings { dir: settings.dir.join(name), ..settings.clone() };
        std::fs::create_dir_all(&own.dir)?;
        if let Err(e) = measure(&own, &mut report) {
            eprintln!("{name}: failed: {e:#}");
            failed.push(format!("{name} ({e:#})"));
        }
        rows.extend(report.rows());
        others.extend(report.others());
        // After each: a run that ends before the hour is over has what was measured by then.
        let mut header = header(settings, guard, from.elapsed().as_secs_f64());
        header["failed"] = json!(failed);
        write(out, &header, &rows, &others)?;
    }
    let page = out.join(PAGE);
    ensure!(failed.is_empty(), "{} says which figures failed", page.display());
    Ok(page)
}

const PAGE: &str = "report.html";

/// Writes the page, and the raw rows beside it.
fn write(out: &Path, header: &Value, rows: &[Row], others: &[Value]) -> Result<()> {
    let mut raw = serde_json::to_string(header)?;
    for line in
        rows.iter().map(serde_json::to_string).chain(others.iter().map(serde_json::to_string))
    {
        raw.push('\n');
        raw.push_str(&line?);
    }
    std::fs::write(out.join("report.json"), raw + "\n")?;
    std::fs::write(out.join(PAGE), html(header, rows, others)?)?;
    Ok(())
}

fn header(settings: &Settings, guard: &Guard, seconds: f64) -> Value {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or_default();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    json!({
        "commit": commit(),
        "version": env!("CARGO_PKG_VERSION"),
        "processor": model.trim_start_matches([' ', '\t', ':']),
        "cores": cores,
        "kernel": kernel.trim(),
        "seed": settings.seed,
        "rounds": settings.rounds,
        "quick": settings.quick,
        "seconds": seconds.round(),
        "load": guard.load,
        "disturbed": guard.disturbed,
    })
}

fn html(header: &Value, rows: &[Row], others: &[Value]) -> Result<String> {
    let mut page = String::new();
    page.push_str(HEAD);
    writeln!(page, "<main><h1>Terrace, measured</h1>")?;
    answer(&mut page, header, &claims::standings(rows, others))?;
    let mut figures: Vec<&str> = Vec::new();
    for row in rows {
        if !figures.contains(&row.figure.as_str()) {
            figures.push(&row.figure);
        }
    }
    for figure in figures {
        let own: Vec<&Row> = rows.iter().filter(|row| row.figure == figure).collect();
        bars::figure(&mut page, figure, &own, others)?;
        for line in choice::of_container(figure, &own) {
            writeln!(page, "<p>{}</p>", escape(&line))?;
        }
        curves::figure(&mut page, figure, others)?;
    }
    writeln!(page, "<h2>How it was measured</h2><dl>")?;
    for (name, value) in header.as_object().into_iter().flatten() {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_string);
        writeln!(page, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(&value))?;
    }
    systems(&mut page, others)?;
    writeln!(
        page,
        "</dl><p>Values are medians of the rounds; the thin line is their spread, the diamond what \
         the source has. Rounds of all systems take turns; figures that take long have one here, \
         and more by themselves. Raw rows: <code>report.json</code>, beside this page; \
         <code>compare OLD NEW</code> says what changed between two of them.</p></main>"
    )?;
    Ok(page)
}

/// Every system's version and settings, once.
fn systems(page: &mut String, others: &[Value]) -> std::fmt::Result {
    let mut said: Vec<(&str, &str)> = Vec::new();
    for one in others.iter().filter(|o| o["metric"] == "settings") {
        let text = |field: &str| one[field].as_str().unwrap_or_default();
        if !said.contains(&(text("system"), text("text"))) {
            said.push((text("system"), text("text")));
            let (system, figure) = (escape(text("system")), escape(text("figure")));
            let settings = escape(text("text"));
            writeln!(page, "<dt>{system}, {figure}</dt><dd>{settings}</dd>")?;
        }
    }
    Ok(())
}

/// The answer: how many expectations hold, and each of them.
fn answer(page: &mut String, header: &Value, standings: &[Standing]) -> std::fmt::Result {
    let met = standings.iter().filter(|s| s.is_met).count();
    let missed = standings.iter().filter(|s| !s.is_met && s.measured.is_some()).count();
    let unknown = standings.len() - met - missed;
    let total = standings.len();
    write!(page, "<p class=lead><b>{met}</b> of {total} expectations hold, ")?;
    write!(page, "<b>{missed}</b> are missed")?;
    if unknown > 0 {
        write!(page, ", {unknown} were not measured in this run")?;
    }
    writeln!(page, ".</p>")?;
    for failed in header["failed"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        writeln!(page, "<p class=warn>A figure failed: {}.</p>", escape(failed))?;
    }
    if let Some(why) = header["disturbed"].as_str() {
        writeln!(page, "<p class=warn>Not to be quoted: {}.</p>", escape(why))?;
    }
    writeln!(
        page,
        "<div class=scroll><table class=answer><thead><tr><th>expected<th>against<th>bound<th>asked\
         <th>measured<th></tr></thead><tbody>"
    )?;
    for s in standings {
        let (class, verdict) = match (s.measured, s.is_met) {
            (None, _) => ("unknown", "not measured"),
            (_, true) => ("met", "holds"),
            (_, false) => ("missed", "missed"),
        };
        let measured = s.measured.map_or("–".into(), number);
        let next = if class == "missed" { s.next } else { "" };
        let bound = s.bound.map_or(String::new(), |mib| format!("{mib} MiB of memory"));
        writeln!(
            page,
            "<tr class={class}><td>{}<td data-is=against>{}<td data-is=bound>{}\
             <td class=num data-is=asked>{}<td class=num data-is=measured>{measured}\
             <td><b>{verdict}</b> {}</tr>",
            escape(s.what),
            escape(s.against),
            escape(&bound),
            escape(&s.asked),
            escape(next)
        )?;
    }
    writeln!(page, "</tbody></table></div>")
}

/// Text as HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The page up to its first word: the look of it.
const HEAD: &str = include_str!("head.html");
