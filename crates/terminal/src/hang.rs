//! What the ranks of a stuck job do.

use analysis::hang::{Doing, Hang, Job, Rank, Verdict, state};
use text::{names::printable, units::time};

use crate::page::{Page, TextStyle, wrapped};

/// The most ranks of a job that are listed.
const MOST_RANKS: usize = 512;
/// The most stacks of a job that are printed.
const MOST_STACKS: usize = 16;
/// The least width of a text.
const NARROW: usize = 40;

/// Returns the verdict on each job, what each rank does, and the stacks of the ranks that have not arrived, or of all.
pub fn hang(hang: &Hang<'_>, all_stacks: bool, colour: bool, width: usize) -> String {
    let mut page = Page::new(colour, width);
    for (number, job) in hang.jobs.iter().enumerate() {
        if number > 0 {
            page.line("");
        }
        describe(&mut page, job, all_stacks);
    }
    page.text
}

fn describe(page: &mut Page, job: &Job<'_>, all_stacks: bool) {
    let ink = match job.verdict {
        Verdict::NotArrived | Verdict::Apart => TextStyle::Red,
        Verdict::Together => TextStyle::Yellow,
        Verdict::NoneWaits => TextStyle::Green,
    };
    for line in wrapped(&printable(&job.text), page.width.max(NARROW)) {
        let line = page.ink(ink, &line);
        page.line(&line);
    }
    let name = if job.job.is_empty() { "processes".to_owned() } else { format!("job {}", printable(job.job)) };
    let line = page.ink(TextStyle::Dim, &format!("{name}, watched for {}", time(job.watched_ns)));
    page.line(&line);
    page.line("");
    let host = job.ranks.iter().map(|rank| printable(rank.host).chars().count()).max().unwrap_or(0).max(4);
    let heading = page.ink(TextStyle::Dim, &format!("{:>5}  {:>8}  {:<host$}  ", "rank", "pid", "host"));
    page.line(&heading);
    for rank in job.ranks.iter().take(MOST_RANKS) {
        let number = rank.rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string());
        let text = printable(&rank.text()).into_owned();
        let text = if rank.waits() { text } else { page.ink(TextStyle::Bold, &text) };
        page.line(&format!("{number:>5}  {:>8}  {:<host$}  {text}", rank.pid, printable(rank.host)));
    }
    if let Some(more) = job.ranks.len().checked_sub(MOST_RANKS).filter(|more| *more > 0) {
        page.line(&format!("       {more} more"));
    }
    let missing = |rank: &&Rank<'_>| all_stacks || (job.verdict == Verdict::NotArrived && !rank.waits());
    for rank in job.ranks.iter().filter(missing).take(if all_stacks { MOST_RANKS } else { MOST_STACKS }) {
        stack(page, rank);
    }
}

/// Prints the stack of the thread that shows what a rank does.
fn stack(page: &mut Page, rank: &Rank<'_>) {
    let Some(thread) = rank.thread else { return };
    page.line("");
    let title = format!("{}, thread {} ({}), {}:", rank.name(), thread.tid, thread.name, state(thread.state));
    let title = page.ink(TextStyle::Bold, &printable(&title));
    page.line(&title);
    for frame in &thread.frames {
        let module = if frame.python { "" } else { frame.file.as_str() };
        let name = printable(&frame.name).into_owned();
        let name = if frame.python { page.ink(TextStyle::Green, &name) } else { name };
        let module = page.ink(TextStyle::Dim, &printable(module));
        page.line(&format!("    {name}  {module}"));
    }
    if !thread.whole {
        page.line("    (the native frames beyond could not be read)");
    }
    if rank.doing == Doing::Elsewhere && rank.throughout {
        page.line("    it stayed there all the time");
    }
}
