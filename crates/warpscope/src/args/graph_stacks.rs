//! `--graph-stacks`.

use model::profile::Profile;

/// Where the work of CUDA graphs is shown: under the code that captured or created each node, or under the code that
/// launched the graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum GraphStacks {
    // Not doc comments: clap would print each option of the command in two lines.
    #[default]
    Capture,
    Launch,
}

impl GraphStacks {
    /// Arranges a profile accordingly.
    pub fn apply(self, profile: &mut Profile) {
        if self == Self::Launch {
            profile.show_graphs_by_launch();
        }
    }
}
