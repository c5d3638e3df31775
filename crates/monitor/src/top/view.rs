//! The screen: GPUs, processes, and the selected one's details.
//!
//! ```text
//!   warpscope top    3 GPU processes                                  07:51:32
//!   GPU 0 NVIDIA H200 ████████ 93 %   ███ 12.0 of 141 GiB   412 W   61 °C
//!    pid   user   live   peak   launches/s   HtoD/s   DtoH/s   errors   launches   name
//!   ─────────────────────── details, on Enter, or history, on t ───────────────────────
//!   sorted by live memory   filter: train                               ? for help
//! ```

use ratatui::{
    Frame,
    layout::{Alignment, Constraint, Layout, Rect},
    style::{Color, Style},
    text::{Line, Span},
    widgets::{Block, Borders, Clear, Gauge, Paragraph, Row, Table, TableState, Wrap},
};
use text::{
    names::printable,
    units::{bytes, counted},
};

use super::{
    App,
    app::Pane,
    column::{Column, Shown, title},
    parts::{BOLD, DIM, clear_centre},
};
use crate::{
    console::cut,
    snapshot::{
        Device,
        rates::{Pace, errors},
        utc::stamp,
    },
};

/// Maximum number of GPUs shown.
const MAX_DEVICES: usize = 8;
/// The keys, as many as fit.
const HINTS: [&str; 4] = [
    "q quit  ↑↓ select  Enter details  t history  r record  s sort  c columns  / filter  ? help",
    "q quit  Enter details  t history  r record  ? help",
    "q quit  Enter details  ? help",
    "? help",
];
/// The keys of the details, of the filter, and of the list of columns.
const DETAIL_HINTS: [&str; 3] =
    ["q quit  Esc close  PgUp PgDn scroll  t history  r record  ? help", "Esc close  PgDn scroll  ? help", "? help"];
const FILTER_HINTS: [&str; 2] = ["Enter apply  Esc clear", "Esc clear"];
const CHOICE_HINTS: [&str; 2] = ["↑↓ select  Space show or hide  Esc close", "Esc close"];

impl App {
    /// Draws the screen.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let rows = self.rows();
        let devices = self.now.devices.len().min(MAX_DEVICES) as u16;
        let closed = self.pane == Pane::Closed || rows.is_empty();
        let pane = if closed { Constraint::Length(0) } else { Constraint::Percentage(60) };
        let [head, gpus, table, selected, foot] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(devices),
            Constraint::Min(2),
            pane,
            Constraint::Length(1),
        ])
        .areas(frame.area());
        self.draw_head(frame, head);
        for (line, device) in self.now.devices.iter().take(MAX_DEVICES).enumerate() {
            let area = Rect { y: gpus.y.saturating_add(line as u16), height: 1, ..gpus };
            draw_device(frame, area.intersection(gpus), device);
        }
        let shown = self.draw_table(frame, table, &rows);
        if let (false, Some(place)) = (closed, self.place(&rows)) {
            self.draw_pane(frame, selected, &rows[place]);
        }
        self.draw_foot(frame, foot);
        if let Some(row) = self.choosing {
            self.draw_choice(frame, row, &shown);
        }
        if self.help {
            draw_help(frame);
        }
    }

    fn draw_head(&self, frame: &mut Frame<'_>, area: Rect) {
        let living = self.now.processes.iter().filter(|process| !process.ended).count() as u64;
        let mut spans = vec![
            Span::styled("warpscope top", BOLD),
            Span::raw("  "),
            Span::raw(counted(living, "GPU process", "GPU processes")),
        ];
        let lost: u64 = self.now.health.lost.iter().map(|(_, calls)| *calls).sum();
        if lost > 0 {
            let text = format!("  {} not counted", counted(lost, "call", "calls"));
            spans.push(Span::styled(text, Style::new().fg(Color::Yellow)));
        }
        if self.now.devices.len() > MAX_DEVICES {
            spans.push(Span::raw(format!("  {MAX_DEVICES} of {} GPUs shown", self.now.devices.len())));
        }
        if self.paused {
            spans.push(Span::styled("  paused", Style::new().fg(Color::Yellow)));
        }
        let (left, right) = (Line::from(spans), Line::styled(stamp(self.now.unix_ns), DIM));
        let both = left.width() + right.width() + 2;
        frame.render_widget(left, area);
        if self.now.unix_ns > 0 && both <= area.width.into() {
            frame.render_widget(right.alignment(Alignment::Right), area);
        }
    }

    /// Draws the selected process.
    fn draw_pane(&self, frame: &mut Frame<'_>, area: Rect, pace: &Pace<'_>) {
        let span = self.graph_span();
        let room = usize::from(area.width).saturating_sub(span.width() + 1);
        let title: String = format!(" {} {} ", pace.process.pid, title(pace.process)).chars().take(room).collect();
        let block = Block::default()
            .borders(Borders::TOP)
            .title(Span::styled(title, BOLD))
            .title(span.style(DIM).alignment(Alignment::Right));
        let inner = block.inner(area);
        frame.render_widget(block, area);
        match self.pane {
            Pane::Closed => {}
            Pane::Details => self.draw_detail(frame, inner, pace),
            Pane::History => self.draw_history(frame, inner, pace),
        }
    }

    /// Draws the processes. Returns the columns that fit.
    fn draw_table(&self, frame: &mut Frame<'_>, area: Rect, rows: &[Pace<'_>]) -> Vec<Column> {
        if rows.is_empty() {
            let text = if self.now.processes.is_empty() {
                "No process uses CUDA. Processes appear here when they do."
            } else {
                "No process matches the filter; press Esc to clear it."
            };
            frame.render_widget(Paragraph::new(text).style(DIM).wrap(Wrap { trim: true }), area);
            return Vec::new();
        }
        let shown = Shown::fitting(&self.columns, self.sort, area.width, rows, &self.now, &self.past);
        let header = shown.iter().map(|shown| {
            let title = shown.column.title();
            let title = match (shown.column.sort() == Some(self.sort), self.reverse) {
                (false, _) => return shown.cell(title.to_owned()).style(DIM),
                (true, false) => format!("{title}▾"),
                (true, true) => format!("{title}▴"),
            };
            shown.cell(title).style(BOLD)
        });
        let row = |(place, pace): (usize, &Pace<'_>)| {
            let cells = shown.iter().map(|shown| {
                let style = match shown.column {
                    Column::Errors if errors(pace.process) > 0 => Style::new().fg(Color::Red),
                    Column::LaunchHistory => Style::new().fg(Color::Blue),
                    Column::MemoryHistory => Style::new().fg(Color::Green),
                    _ => Style::new(),
                };
                shown.cell(shown.texts[place].clone()).style(style)
            });
            let row = Row::new(cells);
            if pace.process.ended { row.style(DIM) } else { row }
        };
        let table = Table::new(rows.iter().enumerate().map(row), shown.iter().map(Shown::constraint))
            .header(Row::new(header))
            // Not reversed: an empty history would look full.
            .row_highlight_style(BOLD.bg(Color::DarkGray));
        let mut state = TableState::new().with_selected(self.place(rows));
        frame.render_stateful_widget(table, area, &mut state);
        shown.iter().map(|shown| shown.column).collect()
    }

    fn draw_foot(&self, frame: &mut Frame<'_>, area: Rect) {
        let order = if self.reverse { ", reversed" } else { "" };
        let (text, hints): (String, &[&str]) = match (self.pane, self.message.as_str()) {
            _ if self.filtering => (format!("filter: {}_", printable(&self.filter)), &FILTER_HINTS),
            _ if self.choosing.is_some() => (String::new(), &CHOICE_HINTS),
            (_, message) if !message.is_empty() => (printable(message).into_owned(), &["? help"]),
            (pane, _) => {
                let filter = match self.filter.as_str() {
                    "" => String::new(),
                    filter => format!("   filter: {}", printable(filter)),
                };
                let hints: &[&str] = if pane == Pane::Details { &DETAIL_HINTS } else { &HINTS };
                (format!("sorted by {}{order}{filter}", self.sort.name()), hints)
            }
        };
        // The shortest one is shown in any case.
        let width = usize::from(area.width);
        let fits = |hint: &&&str| text.chars().count() + 2 + hint.chars().count() <= width;
        let hint = hints.iter().find(fits).or(hints.last()).copied().unwrap_or_default();
        let room = width.saturating_sub(hint.chars().count() + 2);
        let text = cut(&text, Some(room));
        frame.render_widget(Line::styled(text, if self.message.is_empty() { DIM } else { BOLD }), area);
        let length = (hint.chars().count() as u16).min(area.width);
        let right = Rect { x: area.x + area.width - length, width: length, ..area };
        frame.render_widget(Clear, right);
        frame.render_widget(Line::styled(hint, DIM), right);
    }
}

fn draw_device(frame: &mut Frame<'_>, area: Rect, device: &Device) {
    let widths = match area.width {
        100.. => [Constraint::Length(24), Constraint::Fill(2), Constraint::Fill(3), Constraint::Length(26)],
        // The numbers fit; the name gets the rest.
        width => [
            Constraint::Length(width.saturating_sub(51).clamp(6, 24)),
            Constraint::Length(11),
            Constraint::Length(22),
            Constraint::Fill(1),
        ],
    };
    let [name, busy, memory, rest] = Layout::horizontal(widths).spacing(1).areas(area);
    frame.render_widget(Line::from(format!("GPU {} {}", device.index, printable(&device.name))), name);
    if device.lost {
        frame.render_widget(
            Line::styled("lost: the GPU no longer responds", Style::new().fg(Color::Red)),
            busy.union(rest),
        );
        return;
    }
    let gauge = |share: f64, label: String, colour| {
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        Gauge::default().ratio(share).label(label).gauge_style(Style::new().fg(colour).bg(Color::DarkGray))
    };
    if let Some(share) = device.utilisation {
        frame.render_widget(gauge(share, format!("{:.0} % busy", share * 100.0), Color::Green), busy);
    }
    if let (Some(used), Some(total)) = (device.memory_used, device.memory_total) {
        let label = format!("{} of {}", bytes(used), bytes(total));
        frame.render_widget(gauge(used as f64 / total.max(1) as f64, label, Color::Blue), memory);
    }
    let mut parts = Vec::new();
    parts.extend(device.power.map(|watts| format!("{watts:.0} W")));
    parts.extend(device.temperature.map(|degrees| format!("{degrees:.0} °C")));
    parts.extend(device.xids.iter().map(|(xid, _)| format!("Xid {xid}")));
    // A part that does not fit is left out: half a number is a wrong one.
    while !parts.is_empty() && parts.join("  ").chars().count() > rest.width.into() {
        parts.pop();
    }
    frame.render_widget(Line::from(parts.join("  ")), rest);
}

fn draw_help(frame: &mut Frame<'_>) {
    const KEYS: [(&str, &str); 14] = [
        ("q, Ctrl-C", "quit"),
        ("↑ ↓, j k", "select a process"),
        ("Home End, g G", "select the first or last process"),
        ("Enter, Tab", "details: kernels, memory by line, errors"),
        ("t", "history: the last minutes as graphs"),
        ("PgUp PgDn", "scroll the details; also with Space"),
        ("Esc", "close the details or the history"),
        ("r", "record the process for some seconds"),
        ("s", "sort by the next column"),
        ("R", "reverse the order"),
        ("c", "choose columns"),
        ("/", "filter: name, user, container, pid, kernel"),
        ("p", "pause"),
        ("?, h", "this help; any key closes it"),
    ];
    let lines: Vec<Line<'_>> = KEYS
        .iter()
        .map(|(key, what)| Line::from(vec![Span::styled(format!(" {key:<14}"), BOLD), Span::raw(*what)]))
        .collect();
    let area = clear_centre(frame, 60, lines.len());
    let block = Block::default().borders(Borders::ALL).title(" keys ");
    frame.render_widget(Paragraph::new(lines).block(block), area);
}
