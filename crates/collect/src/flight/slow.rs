//! `--on-slow 'FUNCTION > 200ms'`: functions and NVTX ranges with a limit on their duration.

use anyhow::{Context, bail};
use bpf::calls::Gather;
use text::{pattern::Selection, units};

use crate::calls::{libraries::Libraries, named::Named, tracer::Tracer, wanted::Wanted};

/// What selects an NVTX range instead of a function.
const NVTX: &str = "nvtx:";

/// A function or an NVTX range, and how long it may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slow {
    /// What is measured.
    pub what: Measured,
    /// The limit, in nanoseconds.
    pub limit_ns: u64,
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
    /// Parses `LIBRARY:FUNCTION > TIME`, `FUNCTION > TIME` for a function of `program` or of CUDA, or `nvtx:NAME > TIME`.
    pub fn parse(text: &str, program: &str) -> anyhow::Result<Self> {
        let expected =
            || format!("--on-slow expects 'FUNCTION > TIME', such as 'cudaDeviceSynchronize > 200ms', not '{text}'");
        // C++ names contain this sign too.
        let (what, limit) = text.rsplit_once('>').with_context(expected)?;
        let (what, limit) = (what.trim(), limit.trim());
        let limit_ns = units::parse_time(limit).filter(|ns| ns.is_finite() && *ns > 0.0);
        let limit_ns =
            limit_ns.with_context(|| format!("--on-slow: '{limit}' is not a time such as 200ms or 2s"))? as u64;
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
        Ok(Self { what, limit_ns })
    }

    /// Returns the function as the user wrote it.
    pub fn function(&self) -> Option<&str> {
        match &self.what {
            Measured::Function(named) => Some(named.pattern()),
            Measured::Cuda(name) => Some(name),
            Measured::Range(_) => None,
        }
    }

    /// Whether this measures a function of this program.
    pub fn is_of(&self, program: &str) -> bool {
        matches!(&self.what, Measured::Function(named) if named.library.as_os_str() == program)
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
    let named = |slow: &Slow| match &slow.what {
        Measured::Function(named) => Some(named.clone()),
        Measured::Cuda(_) | Measured::Range(_) => None,
    };
    let wanted = Wanted::new(Selection::default(), Vec::new(), functions.iter().filter_map(named).collect());
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
        for (text, expected, limit_ns) in [
            ("step > 200ms", ("/bin/app", "step"), 200_000_000),
            ("step>1.5s", ("/bin/app", "step"), 1_500_000_000),
            ("libfoo:f<int> > 10us", ("libfoo", "f<int>"), 10_000),
            ("cudaDeviceSynchronize > 1ms", ("cuda", "cudaDeviceSynchronize"), 1_000_000),
            ("ns::f > 1ms", ("/bin/app", "ns::f"), 1_000_000),
            ("nvtx:train step > 1ms", ("nvtx", "train step"), 1_000_000),
        ] {
            let slow = parse(text);
            assert_eq!(library(&slow), (expected.0.to_owned(), expected.1.to_owned()), "{text}");
            assert_eq!(slow.limit_ns, limit_ns, "{text}");
        }
        for text in ["step", "step > fast", "> 3s", "step > -1s", "step > 0ms", "lib: > 1s"] {
            assert!(Slow::parse(text, "/bin/app").is_err(), "{text}");
        }
    }
}
