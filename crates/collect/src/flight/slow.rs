//! `--on-slow 'FUNCTION > 200ms'`: functions and NVTX ranges with a limit on their duration.

use anyhow::{Context, bail};
use bpf::calls::Gather;
use text::{pattern::Selection, units};

use crate::calls::{libraries::Libraries, named::Named, tracer::Tracer, wanted::Wanted};

/// What selects an NVTX range instead of a function.
const NVTX: &str = "nvtx:";

/// A function or an NVTX range, and how long it may take.
#[derive(Clone, Debug, PartialEq)]
pub struct Slow {
    /// What is measured.
    pub what: Measured,
    /// The limit.
    pub limit: Limit,
}

/// How long something may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Nanoseconds.
    Ns(u64),
    /// A multiple of the median of recent ones.
    Median(f64),
}

/// How many recent durations the median is of, and how many it needs at least.
const RECENT: (usize, usize) = (64, 20);
/// The median is computed again after this many.
const EACH: u64 = 8;

/// What something usually takes.
#[derive(Debug, Default)]
pub struct Usual {
    recent: Vec<u64>,
    seen: u64,
    median: Option<u64>,
}

impl Usual {
    /// Adds a duration. Returns the median of those before it, if there are enough.
    pub fn add(&mut self, ns: u64) -> Option<u64> {
        let is_due = self.median.is_none() || self.seen.is_multiple_of(EACH);
        if is_due && self.recent.len() >= RECENT.1 {
            let mut sorted = self.recent.clone();
            let middle = sorted.len() / 2;
            self.median = Some(*sorted.select_nth_unstable(middle).1);
        }
        if self.recent.len() < RECENT.0 {
            self.recent.push(ns);
        } else {
            self.recent[self.seen as usize % RECENT.0] = ns;
        }
        self.seen += 1;
        self.median
    }
}

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measured {
    /// A function of a library or program.
    Function(Named),
    /// A function of CUDA, in any library.
    Cuda(String),
    /// NVTX ranges with this name.
    Range(String),
}

impl Slow {
    /// Parses `LIBRARY:FUNCTION > TIME`, `FUNCTION > TIME` for a function of `program` or of CUDA, or `nvtx:NAME > TIME`. The time may
    /// be a multiple of the median: `1.5x median`.
    pub fn parse(text: &str, program: &str) -> anyhow::Result<Self> {
        let expected =
            || format!("--on-slow expects 'FUNCTION > TIME', such as 'cudaDeviceSynchronize > 200ms', not '{text}'");
        // C++ names contain this sign too.
        let (what, limit) = text.rsplit_once('>').with_context(expected)?;
        let (what, limit) = (what.trim(), limit.trim());
        let times = limit.strip_suffix("median").and_then(|rest| rest.trim().strip_suffix('x')).map(str::trim);
        let times = times.and_then(|times| times.parse().ok()).filter(|times: &f64| times.is_finite() && *times > 1.0);
        let ns = units::parse_time(limit).filter(|ns| ns.is_finite() && *ns > 0.0);
        let limit = times.map(Limit::Median).or(ns.map(|ns| Limit::Ns(ns as u64))).with_context(|| {
            format!("--on-slow: '{limit}' is not a time such as 200ms or 2s, nor a multiple such as '1.5x median'")
        })?;
        if what.is_empty() {
            bail!(expected());
        }
        let what = match what.strip_prefix(NVTX) {
            Some(name) => Measured::Range(name.to_owned()),
            None if what.replace("::", "").contains(':') => {
                Measured::Function(Named::parse(what).map_err(|_| anyhow::anyhow!(expected()))?)
            }
            None if cuda::call(what).is_some() => Measured::Cuda(what.to_owned()),
            None => Measured::Function(Named::of(program, what)?),
        };
        Ok(Self { what, limit })
    }

    /// Returns the function as the user wrote it.
    pub fn function(&self) -> Option<&str> {
        match &self.what {
            Measured::Function(named) => Some(named.pattern()),
            Measured::Cuda(name) => Some(name),
            Measured::Range(_) => None,
        }
    }

    /// Returns the function of a library or program.
    pub fn named(&self) -> Option<&Named> {
        match &self.what {
            Measured::Function(named) => Some(named),
            Measured::Cuda(_) | Measured::Range(_) => None,
        }
    }

    /// Whether this measures a function of this program.
    pub fn is_of(&self, program: &str) -> bool {
        self.named().is_some_and(|named| named.library.as_os_str() == program)
    }

    /// Whether this measures the function with this name.
    pub fn is_function(&self, name: &str) -> bool {
        match &self.what {
            Measured::Function(named) => named.matches(name),
            Measured::Cuda(wanted) => wanted == name,
            Measured::Range(_) => false,
        }
    }

    /// Whether this measures the NVTX range with this name, which may follow that of its domain and a colon.
    pub fn is_range(&self, name: &str) -> bool {
        match &self.what {
            Measured::Range(wanted) => {
                name.strip_suffix(wanted).is_some_and(|rest| rest.is_empty() || rest.ends_with(':'))
            }
            Measured::Function(_) | Measured::Cuda(_) => false,
        }
    }
}

/// Creates a tracer of these functions; `None` if there are none.
pub fn tracer(slow: &[Slow]) -> Option<Tracer> {
    let functions: Vec<Slow> = slow.iter().filter(|slow| slow.function().is_some()).cloned().collect();
    if functions.is_empty() {
        return None;
    }
    let named = functions.iter().filter_map(Slow::named).cloned().collect();
    let wanted = Wanted::new(Selection::default(), Vec::new(), named);
    let choice =
        Box::new(move |name: &str, _: Gather| functions.iter().any(|f| f.is_function(name)).then(Gather::default));
    Some(Tracer::beside_a_profile(Libraries::new(wanted, choice)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that names may contain the sign that separates the limit, and that libraries and ranges are distinguished.
    #[test]
    fn limits_are_parsed() {
        let parse = |text| Slow::parse(text, "/bin/app").expect(text);
        let library = |slow: &Slow| match &slow.what {
            Measured::Function(named) => (named.library.display().to_string(), named.pattern().to_owned()),
            Measured::Cuda(name) => ("cuda".into(), name.clone()),
            Measured::Range(name) => ("nvtx".into(), name.clone()),
        };
        let ns = |ns| Limit::Ns(ns);
        for (text, expected, limit) in [
            ("step > 200ms", ("/bin/app", "step"), ns(200_000_000)),
            ("step>1.5s", ("/bin/app", "step"), ns(1_500_000_000)),
            ("libfoo:f<int> > 10us", ("libfoo", "f<int>"), ns(10_000)),
            ("cudaDeviceSynchronize > 1ms", ("cuda", "cudaDeviceSynchronize"), ns(1_000_000)),
            ("ns::f > 1ms", ("/bin/app", "ns::f"), ns(1_000_000)),
            ("nvtx:train step > 1ms", ("nvtx", "train step"), ns(1_000_000)),
            ("nvtx:step > 1.5x median", ("nvtx", "step"), Limit::Median(1.5)),
            ("step > 2 x median", ("/bin/app", "step"), Limit::Median(2.0)),
        ] {
            let slow = parse(text);
            assert_eq!(library(&slow), (expected.0.to_owned(), expected.1.to_owned()), "{text}");
            assert_eq!(slow.limit, limit, "{text}");
        }
        for text in
            ["step", "step > fast", "> 3s", "step > -1s", "step > 0ms", "lib: > 1s", "f > 1x median", "f > median"]
        {
            assert!(Slow::parse(text, "/bin/app").is_err(), "{text}");
        }
    }

    /// Check that what is usual is the median of recent durations, once there are enough, and that it follows changes.
    #[test]
    fn the_median_is_of_recent_ones() {
        let mut usual = Usual::default();
        let medians: Vec<Option<u64>> = (0..40).map(|n| usual.add(if n % 4 == 0 { 90 } else { 10 })).collect();
        assert!(
            medians[..20].iter().all(Option::is_none) && medians[20..].iter().all(|m| *m == Some(10)),
            "{medians:?}"
        );
        for _ in 0..80 {
            usual.add(30);
        }
        assert_eq!(usual.add(500), Some(30));
    }
}
