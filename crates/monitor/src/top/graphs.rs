//! Graphs of the last minutes of one process.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Style},
    text::{Line, Span},
    widgets::{Block, Sparkline},
};
use text::units::bytes;

use super::{
    App,
    column::gpus,
    history::{Bar, Ring},
    parts::DIM,
};
use crate::{
    console::{byte_rate, rate},
    snapshot::rates::Pace,
};

/// The least rows of a graph, with its title.
const LEAST_ROWS: u16 = 3;
/// The least columns of a graph: its title must not be cut.
const LEAST_COLUMNS: u16 = 20;

/// One graph.
struct Graph<'a> {
    title: String,
    ring: &'a Ring,
    bar: Bar,
    /// Formats a value.
    text: fn(u64) -> String,
    /// The value of the highest bar, if it does not depend on the values.
    most: Option<u64>,
    colour: Color,
}

impl App {
    /// Draws the graphs in two lines, or in one if there is little room.
    pub(super) fn draw_history(&self, frame: &mut Frame<'_>, area: Rect, pace: &Pace<'_>) {
        if area.height < 2 * LEAST_ROWS {
            return self.draw_graphs(frame, &[area], pace);
        }
        let lines: [Rect; 2] = Layout::vertical([Constraint::Fill(1); 2]).areas(area);
        self.draw_graphs(frame, &lines, pace);
    }

    /// Draws memory, launches, copies and the GPUs of a process, as many as there is room for, spread over some lines.
    pub(super) fn draw_graphs(&self, frame: &mut Frame<'_>, lines: &[Rect], pace: &Pace<'_>) {
        let Some(history) = self.past.processes.get(&pace.process.id) else { return };
        let indices: Vec<u32> = gpus(&self.now, pace.process.pid).collect();
        let busy = self.past.mean_busy(&indices);
        let graph = |title: &str, ring, bar, text, colour| Graph {
            title: title.to_owned(),
            ring,
            bar,
            text,
            most: None,
            colour,
        };
        let mut graphs = vec![
            graph("live memory", &history.live, Bar::Largest, bytes, Color::Green),
            graph("launches/s", &history.launches, Bar::Mean, |value| rate(value as f64), Color::Blue),
            graph("copies", &history.copied, Bar::Mean, |value| byte_rate(value as f64), Color::Cyan),
        ];
        if let Some(busy) = &busy {
            let percent = |value| format!("{} %", (value + 5) / 10);
            let title = match indices.as_slice() {
                [index] => format!("GPU {index} busy"),
                indices => format!("{} GPUs busy", indices.len()),
            };
            graphs.push(Graph { most: Some(1000), ..graph(&title, busy, Bar::Mean, percent, Color::Yellow) });
        }
        let room = lines.first().map_or(0, |line| (line.width + 1) / (LEAST_COLUMNS + 1));
        let columns = graphs.len().div_ceil(lines.len()).min(room.max(1).into());
        for (line, graphs) in lines.iter().zip(graphs.chunks(columns)) {
            let places = Layout::horizontal(vec![Constraint::Fill(1); columns]).spacing(1).split(*line);
            for (place, graph) in places.iter().zip(graphs) {
                self.draw_graph(frame, *place, graph);
            }
        }
    }

    fn draw_graph(&self, frame: &mut Frame<'_>, area: Rect, graph: &Graph<'_>) {
        let bars = self.past.bars(graph.ring, area.width.into(), graph.bar);
        let largest = graph.ring.iter().copied().max().unwrap_or(0);
        let mut title = format!("{} {}", graph.title, (graph.text)(graph.ring.back().copied().unwrap_or(0)));
        let longer = format!("{title}, max {}", (graph.text)(largest));
        if graph.most.is_none() && largest > 0 && longer.chars().count() <= area.width.into() {
            title = longer;
        }
        let most = graph.most.unwrap_or_else(|| bars.iter().copied().max().unwrap_or(0)).max(1);
        let block = Block::default().title(Span::styled(title, DIM));
        let bars = Sparkline::default().block(block).data(bars).max(most).style(Style::new().fg(graph.colour));
        frame.render_widget(bars, area);
    }

    /// Says how much time the graphs show, once there is some.
    pub(super) fn graph_span(&self) -> Line<'static> {
        let seconds = (self.past.span_ns() + 500_000_000) / 1_000_000_000;
        match (seconds / 60, seconds % 60) {
            (0, 0) => Line::default(),
            (0, seconds) => Line::from(format!(" last {seconds} s ")),
            (minutes, 0) => Line::from(format!(" last {minutes} min ")),
            (minutes, seconds) => Line::from(format!(" last {minutes} min {seconds} s ")),
        }
    }
}
