//! `.svg`: an interactive flame graph of CPU and GPU time, root on top. Click to zoom, Ctrl-F to search. Tool tips have the
//! time and counts of each frame; the ledger is JSON in the file's metadata.

mod drawing;
mod helper_programs;
mod recursion;
mod tips;
mod titles;

use std::{
    io::{self, Write},
    rc::Rc,
};

use analysis::{
    Flames,
    flame_tree::{Line, MemoryView, View},
    waits,
};
use model::event::OFF_CPU;
use text::short::cut;

use self::{
    drawing::{Page, draw, write_empty},
    titles::{TITLE_LENGTH, event_subtitle, event_title, idle_subtitle, memory_subtitle, subtitle, title},
};

const NO_TIME: &str = "no CPU sample and no finished GPU work";
const NO_MEMORY: &str = "no GPU memory was allocated";
const NO_IDLE: &str = "no GPU worked, or none was idle";
const NO_HITS: &str = "the event did not occur, or all its weights are 0";
/// Draws the stacks of a profile. A profile without any time still gives a valid picture, which says so.
pub fn write(flames: &Flames<'_>, view: View, out: &mut dyn Write) -> io::Result<()> {
    let (profile, mut flame) = (flames.profile, flames.of(view));
    if let Some(folded) = helper_programs::folded(&flame) {
        flame = Rc::new(folded);
    }
    if !view.unfold_recursion {
        flame = Rc::new(recursion::folded(&flame));
    }
    let shift = shift(&flame.lines);
    let is_drawn = |line: &Line| line.weight.amount >> shift > 0;
    if !flame.lines.iter().all(is_drawn) {
        Rc::make_mut(&mut flame).lines.retain(is_drawn);
    }
    let counter = view.event.and_then(|event| profile.counters.all.get(&event.counter));
    let (title, subtitle) = match counter {
        None if view.idle => (cut(&format!("GPU idle: {}", title(profile)), TITLE_LENGTH), idle_subtitle(profile)),
        None if view.memory.is_some() => {
            let when = if view.memory == Some(MemoryView::End) { "at the end" } else { "at its peak" };
            let title = cut(&format!("GPU memory {when}: {}", title(profile)), TITLE_LENGTH);
            (title, memory_subtitle(&flame))
        }
        None => (title(profile), subtitle(profile)),
        Some(counter) => (event_title(counter, profile), event_subtitle(counter, profile, &flame)),
    };
    let page = Page { profile, title, subtitle };
    if flame.lines.is_empty() {
        let nothing = match counter {
            Some(_) => NO_HITS,
            None if view.idle => NO_IDLE,
            None if view.memory.is_some() => NO_MEMORY,
            None => NO_TIME,
        };
        write_empty(&page, nothing, out)?;
        return out.flush();
    }
    // Of the events, only waits are drawn together with other time.
    let hits = waits::hits(counter.map_or(OFF_CPU, |counter| &counter.source));
    draw(&page, &flame, shift, hits, out)?;
    out.flush()
}

/// Returns how far to shift weights so that their sum is exact in the script's numbers: 0 up to 104 days of time, more
/// only for a recording with nonsensical values.
fn shift(lines: &[Line]) -> u32 {
    let total: u128 = lines.iter().map(|line| u128::from(line.weight.amount)).sum();
    (u128::BITS - total.leading_zeros()).saturating_sub(53)
}
