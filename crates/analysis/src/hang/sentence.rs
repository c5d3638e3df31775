//! Verdicts as sentences.

use model::hang::State;
use text::units::{counted, time};

use super::job::{Doing, Job, Rank, Verdict};

/// The most ranks that a sentence describes one by one.
const MOST: usize = 4;

/// Returns the verdict on a job.
pub(super) fn of(job: &Job<'_>) -> String {
    let known = job.ranks.len() + job.gone.len();
    let all = job.world_size.map_or(known, |size| (size as usize).max(known));
    let waiting: Vec<&Rank<'_>> = job.ranks.iter().filter(|rank| rank.waits()).collect();
    let mut text = match job.verdict {
        Verdict::NoneWaits => format!("no rank stayed in a wait for {}", time(job.watched_ns)),
        Verdict::NotArrived => {
            let is_one = waiting.len() == 1;
            let verb = if is_one { "waits" } else { "wait" };
            format!(
                "{} of {} {verb}{}; {}",
                waiting.len(),
                counted(all as u64, "rank", "ranks"),
                common(&waiting),
                absent(job)
            )
        }
        Verdict::Apart => format!("all {all} ranks wait, in different places: {}", apart(&waiting)),
        Verdict::Together => {
            let place = waiting.first().map_or_else(String::new, |rank| at(rank));
            let found = if job.not_found.is_empty() { "" } else { " that were found" };
            format!("all {}{found} wait{}{place}", counted(waiting.len() as u64, "rank", "ranks"), common(&waiting))
        }
    };
    if !job.not_found.is_empty() {
        let (verb, their) = if job.not_found.len() == 1 { ("was", "its host") } else { ("were", "their hosts") };
        text += &format!("; {} {verb} not found: look at {their}, too", ranks(&job.not_found));
    }
    text
}

/// Returns the numbers of ranks: `rank 2`, `ranks 0-2, 5`.
pub fn ranks(numbers: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*number) => *last = *number,
            _ => runs.push((*number, *number)),
        }
    }
    let shown: Vec<String> = runs
        .iter()
        .take(2 * MOST)
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") })
        .collect();
    let more = if runs.len() > shown.len() { ", ..." } else { "" };
    format!("{} {}{more}", if numbers.len() == 1 { "rank" } else { "ranks" }, shown.join(", "))
}

impl Rank<'_> {
    /// Returns its name: number, pid and host.
    pub fn name(&self) -> String {
        match self.rank {
            Some(rank) => format!("rank {rank} (pid {} on {})", self.pid, self.host),
            None => format!("process {} on {}", self.pid, self.host),
        }
    }

    /// Returns what it does: `in all_reduce at step (train.py:40)`, `load (train.py:31), sleeping`.
    pub fn text(&self) -> String {
        if self.ended {
            return "ended meanwhile".to_owned();
        }
        let place = self.place.as_ref().map_or_else(|| "unknown code".to_owned(), |place| place.short());
        let text = match self.doing {
            Doing::Elsewhere => format!("{place}, {}", state(self.state)),
            _ => format!("{}{}", inside(self), at(self)),
        };
        match self.doing {
            _ if self.throughout => text,
            Doing::Elsewhere => format!("{text}, not always there"),
            _ => format!("{text} at first, then it returned"),
        }
    }
}

/// What the system says about a thread.
pub fn state(state: State) -> &'static str {
    match state {
        State::Running => "running",
        State::Lock => "waiting for a lock",
        State::Sleep => "sleeping",
        State::Events => "waiting for events",
        State::Io => "waiting for I/O",
        State::Process => "waiting for a process",
        State::Driver => "waiting for a driver",
        State::Memory => "waiting for memory",
        State::Other => "waiting",
    }
}

fn inside(rank: &Rank<'_>) -> String {
    let call = rank.call.as_deref().unwrap_or_default();
    match rank.doing {
        Doing::WaitsForGpu => format!("waiting for the GPU in {call}"),
        _ => format!("in {call}"),
    }
}

fn at(rank: &Rank<'_>) -> String {
    rank.place.as_ref().map_or_else(String::new, |place| format!(" at {}", place.short()))
}

/// Returns what ranks that wait have in common.
fn common(waiting: &[&Rank<'_>]) -> String {
    let same = |of: &dyn Fn(&Rank<'_>) -> String| {
        let first = waiting.first().map(|rank| of(rank))?;
        waiting.iter().all(|rank| of(rank) == first).then_some(first)
    };
    let doing = same(&|rank| if rank.doing == Doing::WaitsForGpu { " for the GPU".to_owned() } else { String::new() });
    let call = same(&|rank| format!(" in {}", rank.call.as_deref().unwrap_or_default()));
    format!("{}{}", doing.unwrap_or_default(), call.unwrap_or_default())
}

/// Describes the ranks for which others wait.
fn absent(job: &Job<'_>) -> String {
    let elsewhere = job.ranks.iter().filter(|rank| !rank.waits());
    let mut parts: Vec<String> =
        elsewhere.map(|rank| format!("{} has not arrived: {}", rank.name(), rank.text())).collect();
    let more = parts.len().saturating_sub(MOST);
    parts.truncate(MOST);
    if more > 0 {
        parts.push(format!("nor have {more} more"));
    }
    if !job.gone.is_empty() {
        let (verb, their) = if job.gone.len() == 1 { ("has", "its") } else { ("have", "their") };
        parts.push(format!("{} {verb} no process on {their} host", ranks(&job.gone)));
    }
    parts.join("; ")
}

/// Describes ranks that wait in different places.
fn apart(waiting: &[&Rank<'_>]) -> String {
    let mut groups: Vec<(String, Vec<&Rank<'_>>)> = Vec::new();
    for rank in waiting {
        let text = rank.text();
        match groups.iter_mut().find(|(known, _)| *known == text) {
            Some((_, members)) => members.push(rank),
            None => groups.push((text, vec![rank])),
        }
    }
    let more = groups.len().saturating_sub(MOST);
    let who = |members: &[&Rank<'_>]| {
        let numbers: Option<Vec<u32>> = members.iter().map(|rank| rank.rank).collect();
        numbers.map_or_else(|| members[0].name(), |numbers| ranks(&numbers))
    };
    let mut parts: Vec<String> =
        groups.iter().take(MOST).map(|(text, members)| format!("{} {text}", who(members))).collect();
    if more > 0 {
        parts.push(format!("{more} more places"));
    }
    parts.join("; ")
}
