//! Reading recordings back into a profile.

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use model::{
    event::{Event, Loss, LossCause},
    filter::Filter,
    fold::Fold,
    profile::Profile,
};
use symbols::Kept;

use crate::{args, progress::Progress, recordings::Recordings};

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

/// Reads recordings as one, or a part of them. A damaged end is reported but does not fail the load; addresses without a name
/// are resolved now.
pub fn load(paths: &[PathBuf], filters: &args::Filters) -> anyhow::Result<Loaded> {
    let source = Recordings::open(paths)?;
    let _progress = Progress::begin(format!("reading {}", source.name()), Some(source.reading()));
    let (mut profile, damaged) = fold(&source, None)?;
    let mut filter = None;
    let filters = filters.wanted();
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
        if is_range && let Some(of_range) = Filter::new(&range, &profile, || source.read())? {
            let (part, _) = fold(&source, Some(&of_range))?;
            let mut of_gpus = Fold::within(of_range.times());
            source.read()?.for_each(|event| of_gpus.push(&event));
            profile = part.range_of(profile, range.given(), of_gpus.finish().devices);
        }
        if range != filters {
            let (part, _) = fold(&source, filter.as_deref())?;
            profile = part.part_of(profile, filters.given());
        }
        profile.notes.extend(missing.into_iter().filter(|(is, _)| *is).map(|(_, note)| note.to_owned()));
    }
    Ok(Loaded { source, profile, filter, damaged })
}

fn fold(source: &Recordings, filter: Option<&Filter>) -> anyhow::Result<(Profile, bool)> {
    let mut events = source.read()?;
    let mut fold = Fold::new();
    for event in events.by_ref() {
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
