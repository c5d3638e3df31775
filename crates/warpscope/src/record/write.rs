//! Writes the outputs of a recording.

use std::path::PathBuf;

use analysis::{Flames, View};
use collect::{INJECTOR, command::user::User, sink::Recording};
use model::{event::End, profile::Profile};
use symbols::{DebugFiles, Kept};

use crate::{
    args,
    outputs::{Outputs, view},
    progress::Progress,
    say::say,
};

/// How outputs are written.
#[derive(Clone)]
pub struct Style {
    naming: symbols::Options,
    graph_stacks: args::GraphStacks,
    unfold_recursion: bool,
    /// The terminal shows what is being done.
    pub shows_progress: bool,
}

impl Style {
    /// Returns what the options select.
    pub fn new(options: &args::Record) -> Self {
        let homes =
            [std::env::var_os("HOME").map(PathBuf::from), User::behind_sudo().and_then(|u| u.home).map(PathBuf::from)];
        let debug_files = DebugFiles::new(&options.debug_dir, &homes.into_iter().flatten().collect::<Vec<_>>());
        let naming =
            symbols::Options { injector: INJECTOR, lines: options.lines, debug_files, ..symbols::Options::default() };
        Self {
            naming,
            graph_stacks: options.graph_stacks,
            unfold_recursion: options.unfold_recursion,
            shows_progress: !options.quiet,
        }
    }

    /// Ends a recording: resolves its addresses. Returns the profile, and whether the recording is whole.
    pub fn finish(&self, sink: Recording, end: End, kept: &mut Kept) -> (Profile, bool) {
        let progress = self.shows_progress.then(|| Progress::begin("resolving names".to_owned(), None));
        let (mut profile, failure) = sink.finish(end, kept, &self.naming);
        drop(progress);
        self.graph_stacks.apply(&mut profile);
        let recorded = failure.is_none();
        if let Some(failure) = failure {
            say(failure);
        }
        (profile, recorded)
    }

    /// Returns the view of flame graphs.
    pub fn view(&self, profile: &Profile) -> View {
        View { unfold_recursion: self.unfold_recursion, ..view::default(profile) }
    }

    /// Writes all outputs. Returns `false` if one is missing or incomplete.
    pub fn write(&self, flames: &Flames<'_>, outputs: &mut Outputs, recorded: bool) -> bool {
        if !self.shows_progress {
            outputs.hide_progress();
        }
        outputs.write(flames, self.view(flames.profile), recorded) && recorded
    }
}
