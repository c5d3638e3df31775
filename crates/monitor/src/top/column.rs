//! The columns of the table of processes.

use ratatui::{
    layout::{Alignment, Constraint},
    text::Line,
    widgets::Cell,
};
use text::{
    names::printable,
    units::{bytes, count},
};

use super::{
    history::{Past, sparkline},
    sort::Sort,
};
use crate::{
    console::{byte_rate, rate},
    snapshot::{
        Kinds, Process, Snapshot,
        rates::{Pace, errors, live_bytes, peak_bytes},
    },
};

/// The least columns of a text that can be cut.
const LEAST_NAME: u16 = 11;
/// The bars of a history.
const BARS: usize = 16;

/// A column, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Column {
    /// The pid.
    Pid,
    /// The user.
    User,
    /// The GPUs, by index.
    Gpus,
    /// Live memory.
    Live,
    /// The peak of live memory.
    Peak,
    /// GPU memory as the driver counts it.
    Used,
    /// Launches per second.
    Launches,
    /// Bytes per second to GPUs.
    ToDevice,
    /// Bytes per second from GPUs.
    ToHost,
    /// Failed calls.
    Errors,
    /// Live memory over time.
    MemoryHistory,
    /// Launches over time.
    LaunchHistory,
    /// The command line.
    Name,
}

impl Column {
    /// All columns, in order.
    pub const ALL: [Self; 13] = [
        Self::Pid,
        Self::User,
        Self::Gpus,
        Self::Live,
        Self::Peak,
        Self::Used,
        Self::Launches,
        Self::ToDevice,
        Self::ToHost,
        Self::Errors,
        Self::MemoryHistory,
        Self::LaunchHistory,
        Self::Name,
    ];

    /// Finds a column by its name on the command line.
    pub fn parse(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|column| column.name() == name.trim().to_lowercase());
        found.ok_or_else(|| format!("choose from {}", Self::ALL.map(Self::name).join(", ")))
    }

    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pid => "pid",
            Self::User => "user",
            Self::Gpus => "gpus",
            Self::Live => "live",
            Self::Peak => "peak",
            Self::Used => "used",
            Self::Launches => "launches",
            Self::ToDevice => "htod",
            Self::ToHost => "dtoh",
            Self::Errors => "errors",
            Self::MemoryHistory => "memory-history",
            Self::LaunchHistory => "launch-history",
            Self::Name => "name",
        }
    }

    /// Returns its title in the table.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Launches => "launches/s",
            Self::ToDevice => "HtoD/s",
            Self::ToHost => "DtoH/s",
            Self::MemoryHistory => "memory",
            Self::LaunchHistory => "launches",
            other => other.name(),
        }
    }

    /// Says what it shows.
    pub(super) fn meaning(self) -> &'static str {
        match self {
            Self::Pid => "process id",
            Self::User => "user",
            Self::Gpus => "GPUs that it uses",
            Self::Live => "live memory",
            Self::Peak => "peak of live memory",
            Self::Used => "GPU memory counted by the driver",
            Self::Launches => "launches per second",
            Self::ToDevice => "copies to GPUs per second",
            Self::ToHost => "copies from GPUs per second",
            Self::Errors => "failed calls",
            Self::MemoryHistory => "live memory over time",
            Self::LaunchHistory => "launches over time",
            Self::Name => "command line",
        }
    }

    /// Whether it is shown unless others are chosen.
    pub(super) fn is_default(self) -> bool {
        !matches!(self, Self::Gpus | Self::Used | Self::MemoryHistory)
    }

    /// Whether it is always shown.
    pub(super) fn is_fixed(self) -> bool {
        matches!(self, Self::Pid | Self::Name)
    }

    /// Whether its values are counted.
    pub(super) fn is_counted(self, kinds: Kinds) -> bool {
        match self {
            Self::Live | Self::Peak | Self::MemoryHistory => kinds.memory,
            Self::Launches | Self::LaunchHistory => kinds.launches,
            Self::ToDevice | Self::ToHost => kinds.copies,
            Self::Errors => kinds.errors,
            Self::Pid | Self::User | Self::Gpus | Self::Used | Self::Name => true,
        }
    }

    /// What the table is sorted by if it is sorted by this column.
    pub(super) fn sort(self) -> Option<Sort> {
        match self {
            Self::Pid => Some(Sort::Pid),
            Self::Live => Some(Sort::Memory),
            Self::Launches => Some(Sort::Launches),
            Self::ToDevice | Self::ToHost => Some(Sort::Bandwidth),
            Self::Errors => Some(Sort::Errors),
            _ => None,
        }
    }

    /// The higher, the sooner it is left out where there is no room; 0: never.
    fn order(self) -> u8 {
        match self {
            Self::Pid | Self::Name => 0,
            Self::Live => 1,
            Self::Used => 2,
            Self::Launches => 3,
            Self::Gpus => 4,
            Self::ToDevice => 5,
            Self::ToHost => 6,
            Self::Errors => 7,
            Self::Peak => 8,
            Self::User => 9,
            Self::MemoryHistory => 10,
            Self::LaunchHistory => 11,
        }
    }

    fn text(self, pace: &Pace<'_>, now: &Snapshot, past: &Past) -> String {
        let process = pace.process;
        let history = past.processes.get(&process.id);
        match self {
            Self::Pid => process.pid.to_string(),
            Self::User => printable(&process.user).into_owned(),
            Self::Gpus => gpus(now, process.pid).map(|index| index.to_string()).collect::<Vec<_>>().join(","),
            Self::Live => bytes(live_bytes(process)),
            Self::Peak => bytes(peak_bytes(process)),
            Self::Used => pace.driver_bytes.map_or("-".to_owned(), bytes),
            Self::Launches => rate(pace.launches()),
            Self::ToDevice => byte_rate(pace.to_device()),
            Self::ToHost => byte_rate(pace.to_host()),
            Self::Errors => count(errors(process)),
            Self::MemoryHistory => history.map(|history| sparkline(&history.live, BARS)).unwrap_or_default(),
            Self::LaunchHistory => history.map(|history| sparkline(&history.launches, BARS)).unwrap_or_default(),
            Self::Name => match process.container.as_str() {
                "" => title(process),
                container => format!("{}: {}", printable(container), title(process)),
            },
        }
    }
}

/// Returns a process's title on the terminal: its command line, or its short name if it has none.
pub(super) fn title(process: &Process) -> String {
    let name = if process.command.is_empty() { &process.comm } else { &process.command };
    printable(name).into_owned()
}

/// Returns the GPUs that a process uses, if NVML knows them.
pub(super) fn gpus(now: &Snapshot, pid: u32) -> impl Iterator<Item = u32> {
    let uses = move |processes: &[(u32, u64)]| processes.iter().any(|(user, _)| *user == pid);
    now.devices.iter().filter(move |device| uses(&device.processes)).map(|device| device.index)
}

/// A column that is shown, with its cells.
pub(super) struct Shown {
    pub column: Column,
    pub texts: Vec<String>,
}

impl Shown {
    /// Returns the columns that fit. A number that is cut is a wrong number, so columns are left out instead; the one that
    /// is sorted by stays.
    pub fn fitting(
        columns: &[Column],
        sort: Sort,
        width: u16,
        rows: &[Pace<'_>],
        now: &Snapshot,
        past: &Past,
    ) -> Vec<Self> {
        let filled = |column: &Column| Self {
            column: *column,
            texts: rows.iter().map(|pace| column.text(pace, now, past)).collect(),
        };
        let mut shown: Vec<Self> = columns.iter().filter(|column| column.is_counted(now.kinds)).map(filled).collect();
        let needed = |shown: &[Self]| shown.iter().map(|shown| shown.least() + 1).sum::<u16>();
        while needed(&shown) > width.saturating_add(1) {
            let dispensable = |column: &Column| column.order() > 0 && column.sort() != Some(sort);
            let columns = shown.iter().map(|shown| shown.column);
            let Some(last) = columns.filter(dispensable).max_by_key(|column| column.order()) else { break };
            shown.retain(|shown| shown.column != last);
        }
        shown
    }

    /// Returns the width of its texts, but not less than usual, so that columns do not move with every number.
    fn longest(&self) -> u16 {
        let usual = match self.column {
            Column::Pid | Column::Errors => 7,
            Column::Live | Column::Peak | Column::Used => 9,
            Column::User => 10,
            // Room for the mark of the sorted column.
            Column::Launches | Column::ToDevice | Column::ToHost => 11,
            column => column.title().len(),
        };
        let texts = self.texts.iter().map(|text| text.chars().count());
        texts.chain([usual]).max().unwrap_or(0).min(64) as u16
    }

    /// Returns the columns that it needs.
    fn least(&self) -> u16 {
        match self.column {
            Column::Name => LEAST_NAME,
            Column::User => self.longest().min(LEAST_NAME),
            _ => self.longest(),
        }
    }

    /// Returns its width for the layout.
    pub fn constraint(&self) -> Constraint {
        if self.column == Column::Name { Constraint::Min(LEAST_NAME) } else { Constraint::Length(self.least()) }
    }

    /// Returns a cell.
    pub fn cell(&self, text: String) -> Cell<'static> {
        let is_text =
            matches!(self.column, Column::User | Column::MemoryHistory | Column::LaunchHistory | Column::Name);
        let alignment = if is_text { Alignment::Left } else { Alignment::Right };
        Cell::from(Line::from(text).alignment(alignment))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that columns are found by name, that an unknown name is answered with all names, and that no two columns are
    /// left out at the same time.
    #[test]
    fn columns_have_names() {
        for column in Column::ALL {
            assert_eq!(Column::parse(&format!(" {} ", column.name().to_uppercase())), Ok(column));
        }
        assert!(Column::parse("memory").is_err_and(|error| error.contains("live, peak, used")));
        let mut orders: Vec<u8> = Column::ALL.iter().map(|column| column.order()).filter(|order| *order > 0).collect();
        orders.sort_unstable();
        orders.dedup();
        assert_eq!(orders.len() + 2, Column::ALL.len());
    }
}
