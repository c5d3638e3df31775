//! The title and the subtitle: what was recorded, and the sums that matter for the view.

use analysis::{
    flame_tree::{Flame, Line, Weight},
    losses, names, waits,
};
use model::{
    event::Counter,
    idle::Phase,
    memory::Use,
    profile::{DeviceInfo, Profile},
};
use text::{
    short::cut,
    units::{bytes, count, counted, percent, time},
};

/// Maximum length of the title and the subtitle that fit at 1200 pixels.
pub(super) const TITLE_LENGTH: usize = 84;

/// The command, or the names of the processes.
pub(super) fn title(profile: &Profile) -> String {
    let command = profile.start.as_ref().map(|start| start.command.join(" ")).unwrap_or_default();
    let name = if command.is_empty() {
        let mut processes: Vec<String> = profile.processes.keys().map(|id| names::process(profile, *id)).collect();
        processes.sort_unstable();
        processes.dedup();
        processes.join(", ")
    } else {
        names::printable(&command).into_owned()
    };
    if name.is_empty() { "warpscope".to_owned() } else { cut(&name, TITLE_LENGTH) }
}

/// `1.21 GiB: tensors 1.00 GiB · cached 215 MiB`
pub(super) fn memory_subtitle(flame: &Flame) -> String {
    let sum = |name: Option<&str>| -> u64 {
        let is_meant = |line: &&Line| name.is_none_or(|name| line.frames.last().is_some_and(|frame| **frame == *name));
        flame.lines.iter().filter(is_meant).fold(0, |sum, line| sum.saturating_add(line.weight.amount))
    };
    let parts = Use::ALL.map(|what| (what.name(), sum(Some(names::memory(what)))));
    let parts = parts.iter().filter(|(_, amount)| *amount > 0);
    let parts: Vec<String> = parts.map(|(name, amount)| format!("{name} {}", bytes(*amount))).collect();
    cut(&format!("{}: {}", bytes(sum(None)), parts.join(" · ")), TITLE_LENGTH)
}

/// `GPU 0 idle 4.21 s of 10.2 s (41.3 %)`
pub(super) fn idle_subtitle(profile: &Profile) -> String {
    let idle = |device: &DeviceInfo| {
        let idle = device.idle.of(Phase::Between);
        let span = device.busy_ns.saturating_add(idle);
        format!("GPU {} idle {} of {} ({})", device.label, time(idle), time(span), percent(idle, span))
    };
    let working = profile.devices.values().filter(|device| device.busy_ns > 0);
    cut(&selected(profile).into_iter().chain(working.map(idle)).collect::<Vec<_>>().join(" · "), TITLE_LENGTH)
}

/// What is selected, if not everything.
fn selected(profile: &Profile) -> Vec<String> {
    Some(profile.filters().join(" ")).filter(|filters| !filters.is_empty()).into_iter().collect()
}

/// `10.0 s recorded · GPU busy 3.27 s · 92,732 launches · matched 100 % · nothing lost`
pub(super) fn subtitle(profile: &Profile) -> String {
    let ledger = &profile.ledger;
    let mut parts = selected(profile);
    parts.push(format!("{} recorded", time(profile.wall_ns())));
    let busy: u64 = profile.devices.values().map(|device| device.busy_ns).sum();
    if busy > 0 {
        parts.push(format!("GPU busy {}", time(busy)));
    }
    if let Some(counter) = waits::counter(profile) {
        let all = profile.counters.of(counter).filter(|(_, _, stack, _)| !profile.is_injected(*stack));
        let waited = all.fold(0, |sum: u64, (.., hits)| sum.saturating_add(hits.weight));
        parts.push(format!("off the CPU {}", time(waited)));
    }
    if ledger.launches > 0 {
        parts.push(counted(ledger.launches, "launch", "launches"));
    }
    if ledger.samples > 0 {
        parts.push(counted(ledger.samples, "CPU sample", "CPU samples"));
    }
    if let Some(matched) = losses::matched(ledger) {
        parts.push(matched.split("  (").next().unwrap_or_default().to_owned());
    }
    if ledger.launches_pending > 0 {
        parts.push(format!("{} pending", count(ledger.launches_pending)));
    }
    parts.push(lost(profile));
    parts.join("  ·  ")
}

/// `malloc, by arg1: ./program 5`
pub(super) fn event_title(counter: &Counter, profile: &Profile) -> String {
    let by = if counter.weight.is_empty() { String::new() } else { format!(", by {}", counter.weight) };
    cut(&format!("{}{by}: {}", names::printable(&counter.name), title(profile)), TITLE_LENGTH)
}

/// `10.0 s recorded · 1,234 hits · 12.3 MiB · nothing lost`
pub(super) fn event_subtitle(counter: &Counter, profile: &Profile, flame: &Flame) -> String {
    let mut sum = Weight::default();
    flame.lines.iter().for_each(|line| sum.add(line.weight));
    let mut parts = selected(profile);
    parts.extend([format!("{} recorded", time(profile.wall_ns())), counted(sum.hits, "hit", "hits")]);
    if !counter.weight.is_empty() {
        parts.push(flame.measure.text(sum.amount));
    }
    parts.push(lost(profile));
    parts.join("  ·  ")
}

fn lost(profile: &Profile) -> String {
    match profile.ledger.lost.total() {
        0 => "nothing lost".to_owned(),
        lost => format!("{} lost", count(lost)),
    }
}
