//! How kernels are sampled.

use core::{fmt, str::FromStr};

/// How kernels are sampled; as text, `17`, `serialised` or `serialised,17`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StallSampling {
    /// The logarithm to base 2 of the cycles between two samples: 5 to 31.
    pub period: u32,
    /// Kernels run one at a time, so that a sample identifies its launch.
    pub serialised: bool,
}

impl Default for StallSampling {
    fn default() -> Self {
        Self { period: 17, serialised: false }
    }
}

/// The text does not say how to sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSampling;

impl fmt::Display for NoSampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a period from 5 to 31, `serialised`, or both such as `serialised,19`")
    }
}

impl core::error::Error for NoSampling {}

impl FromStr for StallSampling {
    type Err = NoSampling;

    fn from_str(text: &str) -> Result<Self, NoSampling> {
        let mut sampling = Self::default();
        for part in text.split(',') {
            match part {
                "serialised" | "serialized" => sampling.serialised = true,
                period => sampling.period = period.parse().map_err(|_| NoSampling)?,
            }
        }
        Some(sampling).filter(|sampling| (5..=31).contains(&sampling.period)).ok_or(NoSampling)
    }
}

impl fmt::Display for StallSampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = if self.serialised { "serialised," } else { "" };
        write!(f, "{mode}{}", self.period)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::ToString;

    use super::*;

    /// Check that the text and the value agree, and that other texts are refused.
    #[test]
    fn texts_are_read() {
        let read = |text: &str| text.parse::<StallSampling>();
        for (text, period, serialised) in [("5", 5, false), ("31", 31, false), ("serialised,19", 19, true)] {
            let sampling = StallSampling { period, serialised };
            assert_eq!((read(text), sampling.to_string().as_str()), (Ok(sampling), text));
        }
        assert_eq!(read("serialised"), Ok(StallSampling { period: 17, serialised: true }));
        assert_eq!(read("19,serialized"), Ok(StallSampling { period: 19, serialised: true }));
        for wrong in ["", "4", "32", "serial", "17,", "-5", "17 serialised"] {
            assert_eq!(read(wrong), Err(NoSampling), "{wrong}");
        }
    }
}
