//! The page, made on the server with the last sample. A script only replaces parts of it.

use maud::{DOCTYPE, Markup, html};

use crate::model::{KeyMap, LookFirst, MapLevel, Picture, Section, Step};
use crate::sampler::Sampler;
use crate::units::{clock, size};

/// Charts that the script draws: each an id, a title, and the unit of its numbers.
const CHARTS: [[&str; 3]; 4] = [
    ["flow", "Bytes written and read", "bytes a second"],
    ["waits", "What writers wait", "milliseconds a second"],
    ["latency", "99th percentile", "milliseconds"],
    ["fill", "Region and memory taken", "percent"],
];

/// The page of a database in `path`.
pub(crate) fn render(path: &str, sampler: &Sampler) -> Markup {
    let state = sampler.state();
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Terrace: " (path) }
                link rel="icon" href="data:,";
                link rel="stylesheet" href="/uplot.css";
                link rel="stylesheet" href="/style.css";
                script src="/uplot.js" defer {}
                script src="/app.js" defer {}
            }
            body {
                a.skip href="#live" { "Skip to the numbers" }
                header {
                    h1 { "Terrace" }
                    p.path { (path) }
                    p.state #state role="status" data-state=(state) { (state) }
                }
                main {
                    div #live {
                        @match sampler.picture() {
                            Some(picture) => (live(picture)),
                            None => p { "The database was closed before anybody looked." },
                        }
                    }
                    (charts())
                }
                footer {
                    noscript { p { a href="/" { "Load the page again" } } }
                    p {
                        "Also: " a href="/sample.json" { "sample.json" } ", "
                        a href="/history.json" { "history.json" } ", "
                        a href="/metrics" { "metrics" } "."
                    }
                }
            }
        }
    }
}

fn live(picture: &Picture) -> Markup {
    html! {
        p.note { "As of " (clock(picture.at_ms)) "." }
        @for note in &picture.notes { p.alert { (note) } }
        section.first aria-labelledby="first-title" {
            h2 #first-title { "Look at first" }
            div.cards { @for line in &picture.first { (card(line)) } }
        }
        section aria-labelledby="stairs-title" {
            h2 #stairs-title { "Where the data lies" }
            p.note { "Region in mode " (picture.mode) ". Data moves down, from step to step." }
            ol.stairs { @for step in &picture.stairs { (stair(step)) } }
        }
        @if !picture.maps.is_empty() {
            section.table #map aria-labelledby="map-title" {
                h2 #map-title { "Keys and levels" }
                p.note {
                    "From left to right the keys: each column has as many bytes of the largest \
                     level. The stronger the colour, the more it was read of late. A frame is a \
                     job at work."
                }
                div.maps { @for map in &picture.maps { (key_map(map)) } }
            }
        }
        div.sections { @for section in &picture.sections { (table(section)) } }
    }
}

fn card(line: &LookFirst) -> Markup {
    html! {
        div.card {
            h3 { (line.name) }
            p.value { (line.value) }
            p.note { (line.remark) }
        }
    }
}

fn stair(step: &Step) -> Markup {
    html! {
        li.step {
            p.flow { span aria-hidden="true" { "↓ " } (step.flow) }
            div.tread {
                h3 { (step.name) }
                p.value {
                    (step.size)
                    @if !step.bound.is_empty() { " " span.note { (step.bound) } }
                }
                @if let Some(share) = step.share { (bar(share)) }
                @if !step.answered.is_empty() { p.note { (step.answered) } }
            }
        }
    }
}

fn key_map(map: &KeyMap) -> Markup {
    let most = map.levels.iter().flat_map(|level| &level.reads).max().map_or(0, |most| *most);
    html! {
        div {
            h3 { bdi { (map.table) } }
            @for level in &map.levels {
                p.note { "level " (level.level) ", " (size(level.bytes.iter().sum())) }
                (map_level(map, level, most))
            }
        }
    }
}

fn map_level(map: &KeyMap, level: &MapLevel, most: u32) -> Markup {
    // A column that is read a tenth as much is to be told from one that is not read.
    let shade = |reads: u32| {
        let part = f64::from(reads).ln_1p() / f64::from(most).ln_1p().max(1.0);
        format!("{:.2}", 0.15 + 0.85 * part)
    };
    let cells = level.bytes.iter().zip(&level.reads).enumerate();
    let jobs = map.jobs.iter().filter(|job| (job.top..=job.bottom).contains(&level.level));
    let view = format!("0 0 {} 4", level.bytes.len());
    html! {
        svg.map viewBox=(view) preserveAspectRatio="none" aria-hidden="true" {
            @for (n, (_, reads)) in cells.filter(|(_, (bytes, _))| **bytes > 0) {
                rect.part x=(n) width="1" height="4" fill-opacity=(shade(*reads)) {}
            }
            @for job in jobs {
                rect.job x=(job.from) width=(job.to - job.from + 1) height="4" {}
            }
        }
    }
}

/// A bar as far as a part of a whole goes. The numbers beside it say the same.
fn bar(share: f64) -> Markup {
    let width = format!("{:.1}", 100.0 * share.clamp(0.0, 1.0));
    html! {
        svg.bar viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true" {
            rect.whole width="100" height="4" {}
            rect.part width=(width) height="4" {}
        }
    }
}

fn table(section: &Section) -> Markup {
    let (id, has_bars) = (&section.id, section.rows.iter().any(|row| row.share.is_some()));
    let title = format!("{id}-title");
    html! {
        section.table id=(id) aria-labelledby=(title) {
            h2 id=(title) { (section.title) }
            @if !section.note.is_empty() { p.note { (section.note) } }
            @if !section.rows.is_empty() {
                div.scroll role="group" aria-labelledby=(title) tabindex="0" {
                    table {
                        thead {
                            tr {
                                @for column in &section.columns { th scope="col" { (column) } }
                                @if has_bars { th.bars scope="col" { span.hidden { "as a bar" } } }
                            }
                        }
                        tbody {
                            @for row in &section.rows {
                                tr {
                                    th scope="row" { (row.name) }
                                    @for cell in &row.cells { td { (cell) } }
                                    @if has_bars {
                                        td.bars { @if let Some(share) = row.share { (bar(share)) } }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn charts() -> Markup {
    html! {
        section #charts hidden aria-labelledby="charts-title" {
            h2 #charts-title { "The last ten minutes" }
            div.charts {
                @for [id, title, unit] in CHARTS {
                    figure {
                        figcaption { (title) ", " (unit) }
                        div.chart data-chart=(id) role="img" aria-label=(title) {}
                        p.note {}
                    }
                }
            }
        }
    }
}
