//! `--graph-stacks`.

use model::profile::Profile;

/// Where the work of CUDA graphs is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum GraphStacks {
    /// Under the code that captured or created each node.
    #[default]
    Capture,
    /// Under the code that launched the graph.
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
