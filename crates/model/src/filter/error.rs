//! Why nothing can be selected.

/// Why nothing can be selected.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A pattern is invalid.
    #[error(transparent)]
    Pattern(#[from] text::pattern::Error),
    /// A time is invalid.
    #[error("--{option} {text}: expected a time such as 1.5s or 200ms")]
    Time {
        /// The option.
        option: &'static str,
        /// Its value.
        text: String,
    },
    /// The time range is empty.
    #[error("--from must be before --to")]
    Range,
    /// There are no ranks.
    #[error("the recording has no ranks: none of its CUDA processes had RANK or a similar variable")]
    NoRanks,
    /// There are no NVTX ranges.
    #[error("the recording has no NVTX ranges: record with --nvtx")]
    NoRanges,
    /// There is no such thing; others are known.
    #[error("the recording has no {what}; it has: {known}")]
    Unknown {
        /// What was to be selected.
        what: String,
        /// What could be.
        known: String,
    },
    /// No name matches.
    #[error("the recording has no {what} that matches {}", patterns.join(" or "))]
    NoMatch {
        /// What the names are of.
        what: &'static str,
        /// The patterns.
        patterns: Vec<String>,
    },
}
