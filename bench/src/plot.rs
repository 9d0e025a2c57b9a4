//! Charts as one file of SVG that needs nothing else: lines over time, one chart below the other.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

/// Points are (seconds, share): 0 at the bottom, 1 at the top.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) label: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Lines in one frame.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) lines: Vec<Line>,
}

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 50.0;
const TOP: f64 = 40.0;
const EACH: f64 = HEIGHT + TOP + 50.0;

/// A reader that does not tell red from green tells them apart too.
const COLOURS: [&str; 4] = ["#0072b2", "#d55e00", "#999999", "#009e73"];

/// Writes the charts to a file.
pub(crate) fn write(path: &Path, title: &str, charts: &[Chart]) -> Result<()> {
    let svg = draw(title, charts).context("cannot draw")?;
    std::fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))
}

fn draw(title: &str, charts: &[Chart]) -> Result<String, std::fmt::Error> {
    let mut svg = String::new();
    let height = EACH * charts.len() as f64 + 20.0;
    let width = WIDTH + LEFT + 30.0;
    writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\"><title>{title}</title>\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>"
    )?;
    for (n, chart) in charts.iter().enumerate() {
        frame(&mut svg, chart, EACH * n as f64)?;
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

fn frame(svg: &mut String, chart: &Chart, y: f64) -> std::fmt::Result {
    let ends = chart.lines.iter().flat_map(|l| &l.points).map(|(x, _)| *x);
    let seconds = ends.fold(1e-9, f64::max);
    let top = y + TOP;
    writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"{}\" font-size=\"15\">{}</text>\
         <rect x=\"{LEFT}\" y=\"{top}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" \
         stroke=\"#bbb\"/>",
        y + 22.0,
        chart.title
    )?;
    for tick in 0..=4 {
        let at = f64::from(tick) / 4.0;
        let (level, x) = (top + HEIGHT * (1.0 - at), LEFT + WIDTH * at);
        writeln!(
            svg,
            "<line x1=\"{LEFT}\" y1=\"{level}\" x2=\"{}\" y2=\"{level}\" stroke=\"#eee\"/>\
             <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{:.0} %</text>\
             <text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{:.1} s</text>",
            LEFT + WIDTH,
            LEFT - 6.0,
            level + 4.0,
            at * 100.0,
            top + HEIGHT + 16.0,
            seconds * at
        )?;
    }
    for (n, line) in chart.lines.iter().enumerate() {
        let colour = COLOURS[n % COLOURS.len()];
        let place = |(x, y): &(f64, f64)| {
            let y = y.clamp(0.0, 1.2);
            format!("{:.1},{:.1}", LEFT + WIDTH * x / seconds, top + HEIGHT * (1.0 - y))
        };
        let points: Vec<String> = line.points.iter().map(place).collect();
        let label_at = LEFT + 220.0 + 230.0 * n as f64;
        writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>\
             <text x=\"{label_at}\" y=\"{}\" fill=\"{colour}\">{}</text>",
            points.join(" "),
            y + 22.0,
            line.label
        )?;
    }
    Ok(())
}
