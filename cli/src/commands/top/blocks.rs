//! A picture as blocks of lines.

use terrace_monitor::model::{Picture, Section, Step};

use crate::grid::{Align, Grid};
use crate::text::escape;

/// Characters in a bar.
const BAR: usize = 12;

/// A heading with lines.
pub(super) struct Block {
    pub(super) title: String,
    pub(super) lines: Vec<String>,
}

/// What a picture shows, block by block. Another process may have sent it: what changes a terminal
/// is escaped.
pub(super) fn of(picture: &Picture) -> Vec<Block> {
    let mut blocks = vec![first(picture), stairs(&picture.stairs)];
    blocks.extend(picture.sections.iter().map(section));
    for block in &mut blocks {
        for line in block.lines.iter_mut().chain([&mut block.title]) {
            *line = escape(line.as_bytes(), char::is_control);
        }
    }
    blocks
}

fn first(picture: &Picture) -> Block {
    let heads = [("", Align::Left), ("", Align::Right), ("", Align::Left)];
    let mut grid = Grid::new(&heads);
    for line in &picture.first {
        grid.row([&*line.name, &line.value, &line.remark]);
    }
    let mut lines = grid.lines().split_off(1);
    lines.extend(picture.notes.iter().cloned());
    Block { title: "Look at first".to_owned(), lines }
}

fn stairs(steps: &[Step]) -> Block {
    let heads =
        [("step", Align::Left), ("holds", Align::Right), ("", Align::Left), ("", Align::Left)];
    let mut grid = Grid::new(&heads);
    for (at, step) in steps.iter().enumerate() {
        let name = format!("{}{}", " ".repeat(at), step.name);
        let bar = step.share.map_or_else(String::new, bar);
        grid.row([&*name, &step.size, &step.bound, &bar]);
    }
    // A terminal of 80 columns shows all of it.
    let mut lines = grid.lines().into_iter();
    let mut shown: Vec<String> = lines.next().into_iter().collect();
    for (line, step) in lines.zip(steps) {
        let answered = if step.answered.is_empty() { "" } else { "; answers " };
        let flow = format!("      ↓ {}{answered}{}", step.flow, step.answered);
        shown.extend([flow, line]);
    }
    Block { title: "Where the data lies".to_owned(), lines: shown }
}

fn section(section: &Section) -> Block {
    let align = |at: usize| if at == 0 { Align::Left } else { Align::Right };
    let heads = section.columns.iter().enumerate().map(|(at, name)| (name.as_str(), align(at)));
    let has_bars = section.rows.iter().any(|row| row.share.is_some());
    let heads: Vec<_> = heads.chain(has_bars.then_some(("", Align::Left))).collect();
    let mut grid = Grid::new(&heads);
    for row in &section.rows {
        let bar = has_bars.then(|| row.share.map_or_else(String::new, bar));
        grid.row([&row.name].into_iter().chain(&row.cells).chain(&bar));
    }
    let note = Some(section.note.clone()).filter(|note| !note.is_empty());
    let rows = if section.rows.is_empty() { Vec::new() } else { grid.lines() };
    Block { title: section.title.clone(), lines: note.into_iter().chain(rows).collect() }
}

/// A bar as far as a part of a whole goes.
fn bar(share: f64) -> String {
    let full = (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    format!("{}{}", "█".repeat(full), "░".repeat(BAR - full))
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_monitor::model::Row;

    #[test]
    fn a_section_lines_up_and_names_change_no_terminal() {
        let row =
            |name: &str, share| Row { name: name.to_owned(), share, cells: vec!["1".to_owned()] };
        let mut picture = Picture::default();
        picture.sections.push(Section {
            title: "Tables".to_owned(),
            note: "All of them.".to_owned(),
            columns: vec!["table".to_owned(), "n".to_owned()],
            rows: vec![row("\x1b[2J", None), row("b", Some(0.5))],
            ..Section::default()
        });
        let block = of(&picture).pop().unwrap();
        assert_eq!(block.title, "Tables");
        let expected = ["All of them.", "table  n", "\\x1b[2J   1", "b      1  ██████░░░░░░"];
        assert_eq!(block.lines, expected);
    }
}
