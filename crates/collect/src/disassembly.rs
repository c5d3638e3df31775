//! The text of sampled instructions (SASS), read when the recording ends: `record --stalls`.
//!
//! `nvdisasm` prints it; NVIDIA documents no other way. The cubins come from the recorded program and are untrusted, so the
//! disassembler runs with the rights of the user who called sudo, with limits on its time, its memory and its output, and
//! only for cubins with samples. Only the text of sampled instructions is kept.

mod run;
mod tools;

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use model::{
    event::{Instruction, InstructionText},
    profile::Profile,
};
use symbols::{Kept, cubin::Listing};

use self::tools::{Tool, VARIABLE};
use crate::command::user::User;

/// The most cubins, those with the most samples first, and the most that are read at the same time.
const MOST_CUBINS: usize = 256;
const MOST_WORKERS: usize = 8;
/// The time for all of them.
const TIME: Duration = Duration::from_secs(60);

/// What was found.
#[derive(Default)]
pub struct Disassembly {
    /// The text of sampled instructions.
    pub texts: Vec<InstructionText>,
    /// What is missing, and what to do about it.
    pub note: Option<String>,
}

/// The sampled instructions of a cubin, with the names of their functions.
#[derive(Default)]
struct Sampled<'a> {
    samples: u64,
    instructions: BTreeMap<Instruction, &'a str>,
}

/// Disassembles what was sampled.
pub fn read(profile: &Profile, kept: &Kept) -> Disassembly {
    let mut cubins: Vec<(&[u8], Sampled<'_>)> = sampled(profile, kept).into_iter().collect();
    if cubins.is_empty() {
        return Disassembly::default();
    }
    let user = User::behind_sudo();
    let tools = match tools::find(profile, user.as_ref()) {
        Ok(tools) => tools,
        Err(note) => return Disassembly { texts: Vec::new(), note },
    };
    let all = cubins.len();
    cubins.sort_by_key(|(_, sampled)| std::cmp::Reverse(sampled.samples));
    cubins.truncate(MOST_CUBINS);
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_WORKERS).min(cubins.len());
    let (end, next) = (Instant::now() + TIME, AtomicUsize::new(0));
    let work = || {
        let mut found = Vec::new();
        while let Some((cubin, sampled)) = cubins.get(next.fetch_add(1, Ordering::Relaxed)) {
            found.push(texts(&tools, user.as_ref(), cubin, sampled, end));
        }
        found
    };
    let found: Vec<Vec<InstructionText>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    });
    let read = found.iter().filter(|texts| !texts.is_empty()).count();
    let mut texts: Vec<InstructionText> = found.into_iter().flatten().collect();
    texts.sort_unstable_by_key(|text| text.at);
    Disassembly { texts, note: (read < all).then(|| failed(all - read, all, &tools)) }
}

/// Returns the sampled instructions by cubin. Equal cubins of several processes are one.
fn sampled<'a>(profile: &'a Profile, kept: &'a Kept) -> BTreeMap<&'a [u8], Sampled<'a>> {
    let mut cubins: BTreeMap<&[u8], Sampled<'_>> = BTreeMap::new();
    for ((at, _), count) in &profile.stalls.samples {
        let Some(cubin) = kept.cubins.get(&(at.session, at.cubin)) else { continue };
        let index = profile.stalls.functions.get(&(at.session, at.function));
        let Some(name) = index.and_then(|index| profile.kernel_names.get(*index as usize)) else { continue };
        let sampled = cubins.entry(cubin).or_default();
        sampled.samples = sampled.samples.saturating_add(*count);
        sampled.instructions.insert(*at, &name.mangled);
    }
    cubins
}

/// Disassembles one cubin with the first disassembler that can: an old one does not know new GPUs.
fn texts(
    tools: &[Tool],
    user: Option<&User>,
    cubin: &[u8],
    sampled: &Sampled<'_>,
    end: Instant,
) -> Vec<InstructionText> {
    let wanted: Vec<(&str, u64)> = sampled.instructions.iter().map(|(at, name)| (*name, at.offset)).collect();
    for tool in tools {
        let mut listing = Listing::new(cubin, &wanted);
        run::run(tool, user, cubin, &run::until(end), &mut |line| listing.line(line));
        let found = sampled.instructions.keys().zip(listing.finish());
        let texts: Vec<_> = found.filter_map(|(at, text)| Some(InstructionText { at: *at, text: text? })).collect();
        if !texts.is_empty() {
            return texts;
        }
    }
    Vec::new()
}

fn failed(missing: usize, all: usize, tools: &[Tool]) -> String {
    let tool = tools.first().map(|tool| tool.path.display().to_string()).unwrap_or_default();
    format!(
        "the instructions of {missing} of {all} cubins are missing: {tool} failed or took too long; a newer nvdisasm may \
         help (set {VARIABLE} to its path)"
    )
}
