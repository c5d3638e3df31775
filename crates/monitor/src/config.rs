//! Options of `warpscope monitor`: the command line overrides a file, which overrides the defaults.
//!
//! ```toml
//! # /etc/warpscope/monitor.toml: every long option of the command line, without its dashes.
//! metrics-addr = "127.0.0.1:9400"
//! display-interval = 0
//! memleak = true
//! max-series = 5000
//! ```

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;

use crate::openmetrics::Limits;

/// The longest interval between two blocks: a day.
const MAX_INTERVAL: f64 = 86_400.0;

/// Options as given; `None` if not given.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "kebab-case")]
pub struct Settings {
    /// Watch memory.
    pub memleak: Option<bool>,
    /// Watch launches.
    pub cudatrace: Option<bool>,
    /// Watch copies.
    #[serde(alias = "bandwidth-util")]
    pub bandwidth: Option<bool>,
    /// Watch failed calls.
    pub errors: Option<bool>,
    /// Address to serve metrics on; empty to disable.
    pub metrics_addr: Option<String>,
    /// Seconds between two blocks on the console; 0 for none.
    pub display_interval: Option<f64>,
    /// Only these processes.
    #[serde(alias = "pids")]
    pub pid: Option<Vec<u32>>,
    /// Only processes of this control group and its descendants.
    pub cgroup: Option<String>,
    /// Libraries to watch from their first call.
    pub lib: Option<Vec<PathBuf>>,
    /// The maximum number of time series for processes.
    pub max_series: Option<usize>,
    /// Kernels per process with their own time series.
    pub top_kernels: Option<usize>,
    /// How many seconds the last values of ended processes are served.
    pub keep_ended: Option<f64>,
    /// Query GPUs through NVML.
    pub nvml: Option<bool>,
    /// Record the call stacks of allocations.
    pub stacks: Option<bool>,
    /// Limit the cost to this share of the processes' CPU time, in percent.
    pub max_overhead: Option<f64>,
    /// Record processes on request; the file with the token.
    pub allow_record: Option<PathBuf>,
}

/// The names of all keys in a configuration file.
const KEYS: [&str; 18] = [
    "memleak",
    "cudatrace",
    "bandwidth",
    "bandwidth-util",
    "errors",
    "metrics-addr",
    "display-interval",
    "pid",
    "pids",
    "cgroup",
    "max-series",
    "top-kernels",
    "keep-ended",
    "lib",
    "nvml",
    "stacks",
    "max-overhead",
    "allow-record",
];

/// Validated options.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Watch memory.
    pub memleak: bool,
    /// Watch launches.
    pub cudatrace: bool,
    /// Watch copies.
    pub bandwidth: bool,
    /// Watch failed calls.
    pub errors: bool,
    /// Address to serve metrics on; `None` to disable.
    pub metrics_addr: Option<String>,
    /// The time between two blocks on the console; `None` for none.
    pub display_interval: Option<Duration>,
    /// Only these processes; empty for all.
    pub pids: Vec<u32>,
    /// Only processes of this control group.
    pub cgroup: Option<String>,
    /// Limits on the number of time series.
    pub limits: Limits,
    /// Libraries to watch in addition to those found.
    pub libraries: Vec<PathBuf>,
    /// Query GPUs through NVML.
    pub nvml: bool,
    /// Record the call stacks of allocations.
    pub stacks: bool,
    /// Limit the cost to this share of the processes' CPU time, in percent.
    pub max_overhead: Option<f64>,
    /// Record processes on request; the file with the token.
    pub allow_record: Option<PathBuf>,
}

impl Settings {
    /// Reads a file. The error is a message for the user.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        Self::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Parses the text of a file.
    pub fn parse(text: &str) -> Result<Self, String> {
        let error = |error: toml::de::Error| {
            let line = error.span().map(|span| 1 + text[..span.start.min(text.len())].matches('\n').count());
            let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
            format!("{place}{}", error.message().trim().replace('\n', " "))
        };
        let table: toml::Table = toml::from_str(text).map_err(error)?;
        if let Some(unknown) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
            let near = nearest(unknown);
            let hint = near.map(|key| format!("; did you mean {key}?")).unwrap_or_default();
            return Err(format!("unknown option {unknown:?}{hint}"));
        }
        toml::from_str(text).map_err(error)
    }

    /// Returns these options, falling back to `below` where not given. The kinds to watch are one setting: naming one
    /// kind here discards those named in `below`.
    pub fn over(self, below: Self) -> Self {
        let kinds = if self.kinds().iter().any(Option::is_some) { self.kinds() } else { below.kinds() };
        let [memleak, cudatrace, bandwidth, errors] = kinds;
        Self {
            memleak,
            cudatrace,
            bandwidth,
            errors,
            metrics_addr: self.metrics_addr.or(below.metrics_addr),
            display_interval: self.display_interval.or(below.display_interval),
            pid: self.pid.or(below.pid),
            cgroup: self.cgroup.or(below.cgroup),
            max_series: self.max_series.or(below.max_series),
            top_kernels: self.top_kernels.or(below.top_kernels),
            keep_ended: self.keep_ended.or(below.keep_ended),
            lib: self.lib.or(below.lib),
            nvml: self.nvml.or(below.nvml),
            stacks: self.stacks.or(below.stacks),
            max_overhead: self.max_overhead.or(below.max_overhead),
            allow_record: self.allow_record.or(below.allow_record),
        }
    }

    fn kinds(&self) -> [Option<bool>; 4] {
        [self.memleak, self.cudatrace, self.bandwidth, self.errors]
    }

    /// Validates the options. The error is a message for the user.
    pub fn options(self) -> Result<Options, String> {
        // If one kind is requested, the others are off; otherwise all are on except those disabled.
        let otherwise = !self.kinds().contains(&Some(true));
        let [memleak, cudatrace, bandwidth, errors] = self.kinds().map(|kind| kind.unwrap_or(otherwise));
        let limits = Limits::default();
        let interval = self.display_interval.unwrap_or(5.0);
        if !(0.0..=MAX_INTERVAL).contains(&interval) {
            return Err(format!("display-interval is {interval}: expected seconds, from 0 (no tables) to 86400"));
        }
        let max_series = self.max_series.unwrap_or(limits.max_series);
        if max_series < 100 {
            return Err(format!("max-series is {max_series}: expected at least 100"));
        }
        let keep_ended = self.keep_ended.unwrap_or(limits.keep_ended.as_secs_f64());
        if !(0.0..=MAX_INTERVAL).contains(&keep_ended) {
            return Err(format!("keep-ended is {keep_ended}: expected seconds, from 0 to 86400"));
        }
        if let Some(percent) = self.max_overhead.filter(|percent| !(percent.is_finite() && *percent > 0.0)) {
            return Err(format!("max-overhead is {percent}: expected a percentage greater than 0, such as 3"));
        }
        let metrics_addr = self.metrics_addr.unwrap_or_else(|| "127.0.0.1:9400".to_owned());
        if self.allow_record.is_some() && metrics_addr.is_empty() {
            return Err("allow-record needs an address to serve recordings on (metrics-addr)".to_owned());
        }
        if self.pid.as_ref().is_some_and(|pids| pids.contains(&0)) {
            return Err("pid 0 is not a process".to_owned());
        }
        if !(memleak || cudatrace || bandwidth || errors) {
            return Err("memleak, cudatrace, bandwidth and errors are all off: there is nothing to monitor".to_owned());
        }
        Ok(Options {
            memleak,
            cudatrace,
            bandwidth,
            errors,
            metrics_addr: Some(metrics_addr).filter(|address| !address.is_empty()),
            display_interval: (interval > 0.0).then(|| Duration::from_secs_f64(interval)),
            pids: self.pid.unwrap_or_default(),
            cgroup: self.cgroup.filter(|cgroup| !cgroup.is_empty()),
            limits: Limits {
                max_series,
                top_kernels: self.top_kernels.unwrap_or(limits.top_kernels),
                keep_ended: Duration::from_secs_f64(keep_ended),
            },
            libraries: self.lib.unwrap_or_default(),
            nvml: self.nvml.unwrap_or(true),
            stacks: self.stacks.unwrap_or(true),
            max_overhead: self.max_overhead,
            allow_record: self.allow_record,
        })
    }
}

fn nearest(unknown: &str) -> Option<String> {
    text::near(KEYS, &unknown.replace('_', "-")).into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every key of the list can be parsed and that the list is complete.
    #[test]
    fn every_key_is_parsed() {
        let all = "memleak = true\ncudatrace = false\nbandwidth = true\nerrors = true\nmetrics-addr = \"[::1]:1\"\n\
                   display-interval = 0.5\npid = [1, 2]\ncgroup = \"/a\"\nmax-series = 500\ntop-kernels = 0\nkeep-ended = 60\nlib = [\"/opt/libcuda.so.1\"]\nnvml = false\nstacks = false\nmax-overhead = 3\nallow-record = \"/run/token\"";
        let settings = Settings::parse(all).expect("good");
        assert!(!format!("{settings:?}").contains("None"), "{settings:?}");
        let options = settings.options().expect("good");
        assert_eq!(options.metrics_addr.as_deref(), Some("[::1]:1"));
        assert_eq!(options.display_interval, Some(Duration::from_millis(500)));
        assert_eq!(options.limits, Limits { max_series: 500, top_kernels: 0, keep_ended: Duration::from_secs(60) });
        assert_eq!(Settings::parse("bandwidth-util = true\npids = [7]").expect("good").bandwidth, Some(true));
        assert_eq!(Settings::parse("display-interval = 2").expect("good").display_interval, Some(2.0));
        for key in KEYS {
            assert!(Settings::parse(&format!("{key} = {{}}")).expect_err("no table").starts_with("line 1: "), "{key}");
        }
    }

    /// Check that the command line overrides the file, and that the kinds to watch are one setting.
    #[test]
    fn command_line_overrides_file() {
        let none = Settings::default().options().expect("good");
        assert!(none.memleak && none.cudatrace && none.bandwidth && none.errors && none.nvml);
        assert_eq!(
            (none.metrics_addr.as_deref(), none.display_interval),
            (Some("127.0.0.1:9400"), Some(Duration::from_secs(5)))
        );

        let file =
            Settings::parse("errors = true\nbandwidth = true\ndisplay-interval = 0\nmax-series = 300").expect("good");
        let line = Settings { memleak: Some(true), max_series: Some(900), ..Settings::default() };
        let both = line.over(file.clone()).options().expect("good");
        assert!(both.memleak && !both.errors && !both.bandwidth && !both.cudatrace);
        assert_eq!((both.limits.max_series, both.display_interval), (900, None));
        let file = file.options().expect("good");
        assert!(file.errors && file.bandwidth && !file.memleak);
        let all_but_one = Settings { errors: Some(false), ..Settings::default() }.options().expect("good");
        assert!(all_but_one.memleak && !all_but_one.errors);
    }

    /// Check that errors name the line and suggest the intended key.
    #[test]
    fn errors_name_the_mistake() {
        let error = |text: &str| Settings::parse(text).and_then(Settings::options).expect_err(text);
        assert_eq!(error("metrics-adr = \"x\""), "unknown option \"metrics-adr\"; did you mean metrics-addr?");
        assert_eq!(
            error("display_interval = 1"),
            "unknown option \"display_interval\"; did you mean display-interval?"
        );
        assert_eq!(error("zzzzzz = 1"), "unknown option \"zzzzzz\"");
        assert!(error("memleak = true\nmax-series = \"many\"").starts_with("line 2: "));
        assert!(error("memleak = true\n[").starts_with("line 2: "));
        assert!(error("max-series = -1").starts_with("line 1: "));
        assert!(error("display-interval = -1").contains("display-interval"));
        assert!(error("display-interval = nan").contains("display-interval"));
        assert!(error("max-series = 5").contains("max-series"));
        assert!(error("max-overhead = 0").contains("max-overhead is 0"));
        assert!(error("keep-ended = -1").contains("keep-ended"));
        assert!(error("allow-record = \"/run/token\"\nmetrics-addr = \"\"").contains("metrics-addr"));
        assert!(error("memleak=false\nerrors=false\nbandwidth=false\ncudatrace=false").contains("nothing to monitor"));
        let missing = Settings::read(Path::new("/nonexistent/monitor.toml")).expect_err("missing");
        assert!(missing.starts_with("cannot read /nonexistent/monitor.toml: "), "{missing}");
    }
}
