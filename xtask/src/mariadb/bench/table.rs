//! What is asked for, beside what was measured.

use super::Engine;

/// What a figure of Terrace has to be, as a part of those of the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bar {
    /// At least so many times InnoDB's and MyRocks's; at most where less is better. None where
    /// nothing is asked.
    to_innodb: Option<f64>,
    to_myrocks: Option<f64>,
    less_is_better: bool,
}

impl Bar {
    pub(super) const READS: Bar = Bar::at_least(0.95);
    pub(super) const WRITES: Bar = Bar::at_least(1.5);
    pub(super) const TPCC: Bar = Bar { to_myrocks: None, ..Bar::at_least(1.5) };
    pub(super) const TPCC_P95: Bar = Bar::at_most(0.5, None);
    pub(super) const SPACE: Bar = Bar::at_most(0.4, Some(1.0));
    pub(super) const RESTART: Bar = Bar::at_most(0.2, None);

    pub(super) const SHOWN: Bar = Bar { to_innodb: None, to_myrocks: None, less_is_better: false };

    const fn at_least(to_innodb: f64) -> Bar {
        Bar { to_innodb: Some(to_innodb), to_myrocks: Some(1.5), less_is_better: false }
    }

    const fn at_most(to_innodb: f64, to_myrocks: Option<f64>) -> Bar {
        Bar { to_innodb: Some(to_innodb), to_myrocks, less_is_better: true }
    }

    /// A ratio beside what is asked for.
    fn judge(&self, ratio: Option<f64>, bar: Option<f64>) -> String {
        let Some(ratio) = ratio else { return "-".into() };
        let Some(bar) = bar else { return format!("{ratio:.2}") };
        let holds = if self.less_is_better { ratio <= bar } else { ratio >= bar };
        let sign = if self.less_is_better { "<=" } else { ">=" };
        format!("{ratio:.2} ({sign} {bar}{})", if holds { "" } else { ", MISSED" })
    }
}

/// One figure of each engine.
struct Row {
    name: String,
    bar: Bar,
    figures: [Option<f64>; 3],
}

/// All figures, in the order in which they came.
#[derive(Default)]
pub(super) struct Table {
    rows: Vec<Row>,
}

impl Table {
    /// Puts a figure where it belongs.
    pub(super) fn put(&mut self, name: &str, bar: Bar, engine: Engine, figure: f64) {
        let at = self.rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
            self.rows.push(Row { name: name.to_owned(), bar, figures: [None; 3] });
            self.rows.len() - 1
        });
        self.rows[at].figures[engine as usize] = Some(figure);
    }

    /// Prints it as a table of Markdown.
    pub(super) fn print(&self) {
        println!("| what | Terrace | InnoDB | MyRocks | to InnoDB (asked) | to MyRocks (asked) |");
        println!("|---|---|---|---|---|---|");
        for row in &self.rows {
            println!("{}", row.line());
        }
    }
}

impl Row {
    fn line(&self) -> String {
        let [ours, innodb, myrocks] = self.figures;
        let shown = |figure: Option<f64>| {
            figure.map_or("-".into(), |it| {
                if it < 100.0 { format!("{it:.2}") } else { format!("{it:.0}") }
            })
        };
        let ratio = |other: Option<f64>| ours.zip(other).map(|(ours, other)| ours / other);
        format!(
            "| {} | {} | {} | {} | {} | {} |",
            self.name,
            shown(ours),
            shown(innodb),
            shown(myrocks),
            self.bar.judge(ratio(innodb), self.bar.to_innodb),
            self.bar.judge(ratio(myrocks), self.bar.to_myrocks)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_judged_by_their_bars() {
        let mut table = Table::default();
        table.put("writes", Bar::WRITES, Engine::Terrace, 300.0);
        table.put("writes", Bar::WRITES, Engine::InnoDb, 100.0);
        table.put("writes", Bar::WRITES, Engine::MyRocks, 250.0);
        table.put("space", Bar::SPACE, Engine::Terrace, 30.0);
        table.put("space", Bar::SPACE, Engine::InnoDb, 100.0);
        let line = "| writes | 300 | 100 | 250 | 3.00 (>= 1.5) | 1.20 (>= 1.5, MISSED) |";
        assert_eq!(table.rows[0].line(), line);
        assert_eq!(table.rows[1].line(), "| space | 30.00 | 100 | - | 0.30 (<= 0.4) | - |");
    }
}
