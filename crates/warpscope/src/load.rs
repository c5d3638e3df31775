//! Reading recordings back into a profile.

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use analysis::{
    phases::{Phases, Rules},
    steps::Sequence,
};
use anyhow::{Context, anyhow, bail};
use model::{
    communication::clocks::estimate,
    event::{Event, Loss, LossCause},
    filter::{Filter, Filters},
    fold::Fold,
    profile::Profile,
};
use symbols::Kept;

use crate::{
    args,
    progress::Progress,
    recordings::Recordings,
    steps::{self, Wanted},
};

/// Recordings, and their profile.
pub struct Loaded {
    /// The files.
    pub source: Recordings,
    /// The profile.
    pub profile: Profile,
    /// The events that the profile is made of, if not all.
    pub filter: Option<Arc<Filter>>,
    /// Some events are missing, because a file was damaged after it was written.
    pub damaged: bool,
}

impl Loaded {
    /// Returns the exit status of a command that succeeded with what could be read.
    pub fn status(&self) -> ExitCode {
        ExitCode::from(u8::from(self.damaged))
    }
}

/// What to find out while reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Find {
    /// Only what needs no further pass.
    Profile,
    /// The steps as well.
    Steps,
    /// The same, and why some took longer than others.
    Outliers,
}

/// Reads recordings as one, or a part of them. A damaged end is reported but does not fail the load; addresses without a name
/// are resolved now.
pub fn load(paths: &[PathBuf], options: &args::Filters, find: Find) -> anyhow::Result<Loaded> {
    load_open(Recordings::open(paths)?, options, find)
}

/// The same for recordings that are open.
pub fn load_open(source: Recordings, options: &args::Filters, find: Find) -> anyhow::Result<Loaded> {
    let wanted = Wanted::parse(options)?;
    let finds_steps = find != Find::Profile || wanted.selects();
    let _progress = Progress::begin(format!("reading {}", source.name()), Some(source.reading()));
    find_clocks(&source)?;
    let mut sequence = finds_steps.then(Sequence::default);
    let (mut profile, damaged) = fold(&source, None, sequence.as_mut())?;
    if let Some(path) = &options.phase_rules {
        let rules = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Rules::new(&rules).with_context(|| format!("cannot use {}", path.display()))?;
        profile.phase_rules = rules;
    }
    let mut step_time = None;
    if let Some(sequence) = sequence.filter(|_| !profile.is_trace()) {
        let mut steps = wanted.find(&profile, sequence, &mut || source.events(None))?;
        // A part has no summary of its steps.
        if find == Find::Outliers && !wanted.selects() && !options.wanted(None).is_used() {
            analysis::steps::explain(&profile, &mut steps, &mut || source.events(None))?;
        }
        step_time = wanted.time(&steps, options, &profile)?;
        profile.steps = Some(steps);
    } else if wanted.selects() {
        bail!("a trace has no steps: --step needs a recording of `warpscope record`");
    }
    let reasons = |profile: &mut Profile| -> std::io::Result<()> {
        if find != Find::Profile && !profile.communication.operations.is_empty() {
            profile.communication.reasons = analysis::collectives::reasons(profile, &mut || source.events(None))?;
        }
        Ok(())
    };
    let mut filter = None;
    let mut filters = options.wanted(step_time);
    if !filters.phase.is_empty() {
        let of_phase = Phases::new(&profile)?.select(&filters.phase);
        filters.of_phase = Some(of_phase.map_err(|known| match &known[..] {
            [] => anyhow!("the recording has no GPU work, so it has no phases"),
            known => anyhow!("the recording has no such phase; it has: {}", known.join(", ")),
        })?);
    }
    if filters.is_used() {
        filter = Filter::new(&filters, &profile, || source.read())?.map(Arc::new);
        let range = filters.range();
        let is_range = range.is_used();
        let missing = [
            (!profile.energy.is_empty(), "energy is not shown for a part of a recording: it is that of whole GPUs"),
            (
                !profile.gpu_counters.is_empty(),
                "counters are not shown for a part of a recording: the values are those of whole GPUs",
            ),
            (
                is_range && !profile.memory.is_empty(),
                "GPU memory is not shown for a time range: it would lack what was allocated before",
            ),
        ];
        if is_range {
            profile = range_of(&source, profile, &range)?;
        }
        reasons(&mut profile)?;
        if range != filters {
            let (part, _) = fold(&source, filter.as_deref(), None)?;
            profile = part.part_of(profile, filters.given());
        }
        profile.steps = profile.recording().steps.clone();
        if let (Some(steps), Some(filter)) = (&mut profile.steps, &filter) {
            steps::select(steps, &filters, filter);
        }
        profile.notes.extend(missing.into_iter().filter(|(is, _)| *is).map(|(_, note)| note.to_owned()));
    } else {
        reasons(&mut profile)?;
    }
    Ok(Loaded { source, profile, filter, damaged })
}

/// Finds out how the clocks of several hosts differ, which takes a pass of its own.
fn find_clocks(source: &Recordings) -> anyhow::Result<()> {
    let mut events = source.read()?;
    let clocks = events.clocks().clone();
    if clocks.are_several() {
        let mut fold = Fold::new();
        fold.keep_communication();
        events.by_ref().for_each(|event| fold.push(&event));
        source.set_clocks(estimate(clocks, &fold.finish().communication));
    }
    Ok(())
}

/// Returns a time range of a whole recording.
fn range_of(source: &Recordings, whole: Profile, range: &Filters) -> anyhow::Result<Profile> {
    let Some(filter) = Filter::new(range, &whole, || source.read())? else { return Ok(whole) };
    let (part, _) = fold(source, Some(&filter), None)?;
    let mut of_gpus = Fold::within(filter.times());
    source.read()?.for_each(|event| of_gpus.push(&event));
    Ok(part.range_of(whole, range.given(), of_gpus.finish().devices))
}

fn fold(
    source: &Recordings,
    filter: Option<&Filter>,
    mut sequence: Option<&mut Sequence>,
) -> anyhow::Result<(Profile, bool)> {
    let mut events = source.read()?;
    let mut fold = Fold::new();
    fold.keep_communication();
    fold.set_clocks(source.clocks().cloned().unwrap_or_default());
    for event in events.by_ref() {
        if let (Some(sequence), Event::Launch(launch)) = (&mut sequence, &event) {
            sequence.push(launch);
        }
        match filter {
            None => fold.push(&event),
            Some(filter) => filter.apply(event).iter().for_each(|event| fold.push(event)),
        }
    }
    let skipped: u64 = events.recordings().map(|reader| reader.skipped()).sum();
    if skipped > 0 {
        fold.push(&Event::Loss(Loss { cause: LossCause::RecordsSkipped, count: skipped }));
    }
    let mut profile = fold.finish();
    let mut damaged = false;
    for (index, reader) in events.recordings().enumerate() {
        let Some(damage) = reader.damage() else { continue };
        // Bytes after the end do no harm.
        damaged |= damage.is_error() && (damage.skipped > 0 || profile.end.is_none());
        profile.notes.push(source.about(index, damage));
    }
    if profile.end.is_none() {
        profile.notes.push("the recording is incomplete: warpscope was stopped while it recorded".into());
        let naming = symbols::Options { injector: collect::INJECTOR, ..symbols::Options::default() };
        for symbol in symbols::resolve(&profile, &mut Kept::default(), &naming).symbols {
            profile.symbols.add(symbol);
        }
    }
    symbols::name_kernels(&mut profile);
    Ok((profile, damaged))
}
