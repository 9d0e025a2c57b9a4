//! Draws the blocks in columns, once a second, until a key ends it.

use std::io;
use std::sync::mpsc;
use std::thread;

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::Stylize;
use ratatui::text::{Line, Text};
use ratatui::widgets::Paragraph;
use terrace_monitor::INTERVAL;

use super::blocks::{self, Block};
use super::{Look, Source};
use crate::interrupt;

/// A column has this width at least, where there are several.
const COLUMN: u16 = 84;

/// Runs until a key ends it. The terminal is as it was before then.
pub(super) fn run(source: Source, first: Look) -> io::Result<()> {
    interrupt::on_signals();
    let mut terminal = ratatui::try_init().inspect_err(|_| ratatui::restore())?;
    let done = show(&mut terminal, source, first);
    let restored = ratatui::try_restore();
    done.and(restored)
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    mut source: Source,
    first: Look,
) -> io::Result<()> {
    let (mut look, mut scrolled, (send, looks)) = (first, 0_u16, mpsc::channel());
    // While a page does not answer, keys do their work.
    let keep_looking = move || {
        loop {
            thread::park_timeout(INTERVAL);
            if send.send(source.look()).is_err() {
                break;
            }
        }
    };
    thread::Builder::new().spawn(keep_looking)?;
    while !interrupt::is_asked_for() {
        terminal.draw(|frame| draw(frame, &look, &mut scrolled))?;
        if event::poll(INTERVAL / 10)?
            && let Event::Key(key) = event::read()?
        {
            // Some systems tell of the release too.
            let height = terminal.size()?.height;
            match key.is_press().then(|| moved(key, height)).flatten() {
                Some(Move::End) => break,
                Some(Move::By(lines)) => scrolled = scrolled.saturating_add_signed(lines),
                None => {}
            }
        }
        match looks.try_recv() {
            Ok(Ok(now)) => look = now,
            // What was seen last stays.
            Ok(Err(error)) => look.state = format!("no answer: {error}"),
            Err(_) => {}
        }
    }
    Ok(())
}

/// What a key does.
enum Move {
    By(i16),
    End,
}

fn moved(key: KeyEvent, height: u16) -> Option<Move> {
    let page = i16::try_from(height.saturating_sub(2)).unwrap_or(i16::MAX);
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if is_control => Some(Move::End),
        KeyCode::Char('q') | KeyCode::Esc => Some(Move::End),
        KeyCode::Down | KeyCode::Char('j') => Some(Move::By(1)),
        KeyCode::Up | KeyCode::Char('k') => Some(Move::By(-1)),
        KeyCode::PageDown | KeyCode::Char(' ') => Some(Move::By(page)),
        KeyCode::PageUp => Some(Move::By(-page)),
        KeyCode::Home => Some(Move::By(i16::MIN)),
        _ => None,
    }
}

/// Draws a look. It is scrolled no further than to its last line.
fn draw(frame: &mut Frame<'_>, look: &Look, scrolled: &mut u16) {
    let rows = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]);
    let [head, body] = rows.areas(frame.area());
    let state = crate::text::escape(look.heading().as_bytes(), char::is_control);
    let keys = "  arrows and pages move, q ends".dim();
    frame.render_widget(Line::from(vec!["terrace top: ".bold(), state.bold(), keys]), head);
    let Some(picture) = &look.picture else { return };
    let mut blocks = blocks::of(picture).into_iter();
    // The first two blocks are wide, so they stand above the columns.
    let wide = text(blocks.by_ref().take(2));
    let count = usize::from((body.width / COLUMN).max(1));
    let mut columns: Vec<Text<'_>> = vec![Text::default(); count];
    for block in blocks {
        if let Some(least) = columns.iter_mut().min_by_key(|column| column.height()) {
            least.extend(text([block].into_iter()));
        }
    }
    let lines = wide.height() + columns.iter().map(Text::height).max().unwrap_or(0);
    *scrolled = (*scrolled).min(u16::try_from(lines).unwrap_or(u16::MAX).saturating_sub(1));
    let scrolled = *scrolled;
    let above = u16::try_from(wide.height()).unwrap_or(u16::MAX).saturating_sub(scrolled);
    let [top, below] =
        Layout::vertical([Constraint::Length(above), Constraint::Fill(1)]).areas(body);
    let behind = scrolled.saturating_sub(u16::try_from(wide.height()).unwrap_or(u16::MAX));
    frame.render_widget(Paragraph::new(wide).scroll((scrolled, 0)), top);
    let areas = Layout::horizontal(vec![Constraint::Fill(1); count]).split(below);
    for (column, area) in columns.into_iter().zip(areas.iter()) {
        frame.render_widget(Paragraph::new(column).scroll((behind, 0)), *area);
    }
}

fn text(blocks: impl Iterator<Item = Block>) -> Text<'static> {
    let lines = |block: Block| {
        let lines = block.lines.into_iter().map(Line::from);
        [Line::from(block.title.bold())].into_iter().chain(lines).chain([Line::default()])
    };
    blocks.flat_map(lines).collect()
}
