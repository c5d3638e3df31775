//! Reading a recording back into a profile.

use std::{
    fs::File,
    io::{BufReader, Seek},
    path::Path,
    process::ExitCode,
    sync::Arc,
};

use anyhow::Context;
use model::{
    event::{Event, Loss, LossCause},
    fold::Fold,
    profile::Profile,
    recording::Reader,
};
use symbols::Kept;

use crate::{args::Filters, filter, filter::Filter};

/// A recording: its file, positioned at the start, and its profile.
pub struct Loaded {
    /// The file.
    pub file: File,
    /// The profile.
    pub profile: Profile,
    /// The events that the profile is made of, if not all.
    pub filter: Option<Arc<Filter>>,
    /// Some events are missing, because the file was damaged after it was written.
    pub damaged: bool,
}

impl Loaded {
    /// Returns the exit status of a command that succeeded with what could be read.
    pub fn status(&self) -> ExitCode {
        ExitCode::from(u8::from(self.damaged))
    }
}

/// Reads a recording, or a part of it. A damaged end is reported but does not fail the load; addresses without a name are
/// resolved now.
pub fn load(path: &Path, filters: &Filters) -> anyhow::Result<Loaded> {
    let name = || path.display().to_string();
    let mut file = File::open(path).with_context(|| format!("cannot open {}", name()))?;
    if file.metadata().is_ok_and(|info| info.is_dir()) {
        anyhow::bail!("cannot read {}: it is a directory", name());
    }
    let (mut profile, damaged) = fold(path, &mut file, None)?;
    let mut filter = None;
    if filter::is_used(filters) {
        let open = || {
            (&file).rewind()?;
            Reader::new(BufReader::with_capacity(1 << 20, &file)).with_context(name)
        };
        filter = Filter::new(filters, &profile, open)?.map(Arc::new);
        (profile, _) = fold(path, &mut file, filter.as_deref())?;
    }
    file.rewind()?;
    Ok(Loaded { file, profile, filter, damaged })
}

fn fold(path: &Path, file: &mut File, filter: Option<&Filter>) -> anyhow::Result<(Profile, bool)> {
    file.rewind()?;
    let mut reader =
        Reader::new(BufReader::with_capacity(1 << 20, &*file)).with_context(|| path.display().to_string())?;
    let mut fold = Fold::new();
    for event in reader.by_ref() {
        match filter {
            None => fold.push(&event),
            Some(filter) => filter.apply(event).iter().for_each(|event| fold.push(event)),
        }
    }
    if reader.skipped() > 0 {
        fold.push(&Event::Loss(Loss { cause: LossCause::RecordsSkipped, count: reader.skipped() }));
    }
    let mut profile = fold.finish();
    // Bytes after the end do no harm.
    let damaged =
        reader.damage().is_some_and(|damage| damage.is_error() && (damage.skipped > 0 || profile.end.is_none()));
    if let Some(damage) = reader.damage() {
        profile.notes.push(damage.to_string());
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
