//! A chart of lines: the drawing stretches with the page, the words around it do not, so that both
//! can be read on any screen.

use std::fmt::{Result, Write as _};

use super::escape;

/// The drawing's own measures; the page stretches it.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 300.0;

/// One line. Points are shares of the axes: (0, 0) is bottom left, (1, 1) top right.
pub(super) struct Line {
    pub(super) label: String,
    pub(super) colour: &'static str,
    pub(super) dashed: bool,
    pub(super) points: Vec<(f64, f64)>,
}

impl Line {
    /// A system's line, in the colour that it has in every chart.
    pub(super) fn of(system: &str, points: Vec<(f64, f64)>) -> Line {
        let label = system.to_string();
        let dashed = system.contains("tmpfs") || system.contains("300ns");
        Line { label, colour: colour(system), dashed, points }
    }
}

/// Words at shares of an axis, from 0 to 1.
pub(super) struct Axis {
    pub(super) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// From nothing to `most`, in four steps.
    pub(super) fn even(most: f64, word: impl Fn(f64) -> String) -> Axis {
        let tick = |n: u32| (f64::from(n) / 4.0, word(most * f64::from(n) / 4.0));
        Axis { ticks: (0..=4).map(tick).collect() }
    }
}

/// A reader that does not tell red from green tells the colours apart too.
fn colour(system: &str) -> &'static str {
    let colours = [
        ("terrace-file", "#0072b2"),
        ("terrace-emu", "#56b4e9"),
        ("rocksdb-tuned", "#e69f00"),
        ("rocksdb-zstd", "#e69f00"),
        ("rocksdb-opt", "#b07d00"),
        ("rocksdb", "#d55e00"),
        ("fjall", "#009e73"),
        ("redb", "#cc79a7"),
        ("lmdb", "#8a8a8a"),
        ("bare", "#8a8a8a"),
    ];
    colours.iter().find(|(prefix, _)| system.starts_with(prefix)).map_or("#0072b2", |(_, c)| c)
}

/// Draws lines in a frame.
pub(super) fn draw(page: &mut String, title: &str, y: &Axis, x: &Axis, lines: &[Line]) -> Result {
    writeln!(page, "<figure class=chart><h3>{}</h3><div class=plot><div class=y>", escape(title))?;
    for (at, word) in &y.ticks {
        writeln!(page, "<span style=\"bottom:{:.1}%\">{}</span>", at * 100.0, escape(word))?;
    }
    writeln!(
        page,
        "</div><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=none role=img>"
    )?;
    for (at, _) in &y.ticks {
        let level = HEIGHT * (1.0 - at);
        writeln!(page, "<path class=grid d=\"M0 {level:.1}H{WIDTH}\"/>")?;
    }
    for (at, _) in &x.ticks {
        writeln!(page, "<path class=grid d=\"M{:.1} 0V{HEIGHT}\"/>", at * WIDTH)?;
    }
    for line in lines {
        let place = |(x, y): &(f64, f64)| {
            let y = HEIGHT * (1.0 - y.clamp(0.0, 1.0));
            format!("{:.1},{y:.1}", x * WIDTH)
        };
        let points: Vec<String> = line.points.iter().map(place).collect();
        let dash = if line.dashed { " stroke-dasharray=\"5 4\"" } else { "" };
        let (colour, points) = (line.colour, points.join(" "));
        writeln!(page, "<polyline stroke=\"{colour}\"{dash} points=\"{points}\"/>")?;
    }
    writeln!(page, "</svg></div><div class=x>")?;
    for (at, word) in &x.ticks {
        writeln!(page, "<span style=\"left:{:.1}%\">{}</span>", at * 100.0, escape(word))?;
    }
    writeln!(page, "</div><figcaption class=legend>")?;
    for line in lines {
        let sign = if line.dashed { "┅" } else { "━" };
        writeln!(
            page,
            "<span><b style=\"color:{}\">{sign}</b> {}</span>",
            line.colour,
            escape(&line.label)
        )?;
    }
    writeln!(page, "</figcaption></figure>")
}
