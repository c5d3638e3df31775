//! The script: the properties and the faults of the simulated GPU.
//!
//! `WARPSCOPE_SIM` is `key=value,key=value`, or `@FILE` with one `key=value` per line (`#` starts a comment; values in
//! a file may contain commas). An invalid script ends the program with status 2 and one line on stderr.
//!
//! | key | value | meaning (default) |
//! | --- | --- | --- |
//! | `release` | `11.8` to `13.4` | the simulated CUDA release: versions and record lengths (13.0) |
//! | `devices` | 1 to 16 | number of GPUs (1); `CUDA_VISIBLE_DEVICES` chooses among them as with the real driver |
//! | `mig` | 0 to 7 | partition each GPU into this many instances (0: not partitioned) |
//! | `memory` | bytes | memory of each GPU (80 GiB) |
//! | `kernel_ns` | duration | every kernel takes this long (a model: 2 us and 1 ns per 50 threads) |
//! | `kernel[GLOB]` | duration | kernels whose (mangled) name matches; the first match in the script counts |
//! | `copy_gbps` | number | speed of copies and memsets in GB/s (25) |
//! | `order` | `shuffle` | records arrive out of order, within buffers and across them |
//! | `drop` | `1/N` | every Nth record is dropped and counted as in CUPTI |
//! | `zero_time` | `1/N` | every Nth kernel, copy or memset has start = end = 0 |
//! | `unfinished` | `1/N` | every Nth kernel, copy or memset never finishes: only a forced flush delivers it, end = 0 |
//! | `subscriber` | `other` | another client is subscribed: subscribing gives error 39 |
//! | `fail` | `FUNC:1/N` | every Nth call of that API function fails without effect |
//! | `slow` | `FUNC:DURATION` | each call of that API function takes that much longer |
//! | `correlation` | id | the first correlation id (1); ids wrap past 2^32-1 and skip 0 |
//! | `truth` | path | one JSON line is appended there when the process exits normally: see [`crate::truth`] |
//! | `clock` | `refuse`, `spoils` | `cuptiActivityRegisterTimestampCallback` fails; or the first kernels after it have CUPTI's default clock: one for each time that it was called before |
//! | `buffer` | `refuse` | `cuptiActivityRegisterCallbacks` fails |
//! | `record_cost` | duration | CUPTI takes this much CPU time for each record, on the thread that launches (0) |
//! | `per_thread` | `0`, `1` | a record buffer for each thread (1 from release 13.0 on) |
//! | `unseen_nodes` | number | the first nodes of graphs are not reported, as if created before CUPTI was attached (0) |
//! | `instantiation` | `creates` | instantiating a graph also reports its nodes as created |
//! | `cubin` | path | the cubin of every module (none) |
//! | `stall[KERNEL]` | `OFFSET:REASON:SAMPLES[:RUNS]` | PC sampling: samples that each run of the kernel adds at an offset, or only some runs (`2`, or `1-3`); may be repeated |
//! | `stalls` | `permission`, `unsupported`, `busy` | PC sampling cannot be enabled, for this reason |
//! | `stall_drop` | `1/N` | the samples of every Nth kernel are dropped and counted |
//! | `stall_full` | number | at this collection of samples the hardware buffer is full, until sampling is enabled again |
//! | `watts` | `IDLE:KERNEL` | NVML: power in watts, and how much more each kernel takes while it runs (100:300) |
//! | `meter` | path | the kernels that ran, for NVML and PM sampling in another process; without it, they know none (none) |
//! | `energy_step` | duration | NVML updates its energy counter this often (20 ms) |
//! | `nvml` | `missing`, `refuse`, `no-gpm` | NVML cannot be initialised, has no energy counter, or no performance monitor |
//! | `function_name` | `AT` or `AT:THEN` | where the object of a `CUfunction` has the pointer to its kernel's name: at this offset, or at the second one of what the first points to; in bytes (0x48) |
//! | `kernel_name` | the same | the same for a `CUkernel` (0x28:0x60) |
//! | `pm[GLOB]` | `SM:TENSOR:ISSUED:READ:WRITE` | PM sampling: what kernels whose (mangled) name matches use, in percent of the peak (0) |
//! | `pm` | `permission`, `unsupported`, `busy`, `crash` | PM sampling cannot be enabled, for this reason; or it crashes when samples are decoded for the third time |
//! | `limits[GLOB]` | `METRIC=VALUE:...` | the range profiler: what one run of such a kernel counts, by the numbers of `cupti::limits::METRICS`; shares of the peak are those while the kernel runs (0) |
//! | `pm_owner` | path | the user and the effective capabilities of the process that enables PM sampling are written there |
//! | `pm_overflow` | number | at this decoding of samples the hardware buffer was full, until sampling is enabled again |
//! | `nccl_names` | `numbered` | NCCL's kernels are named after the communicator and the number of their operation |
//! | `nccl_late` | `RANK:NUMBER:DURATION` | NCCL: this rank sleeps in its call with this number before it launches the kernel; may be repeated |
//! | `nccl_stuck` | `RANK:NUMBER` | NCCL: the kernel of this call never starts |
//! | `nccl_mismatch` | `RANK:NUMBER` | NCCL: this rank says that it gathers in this call |
//! | `deliver` | `worker`, `launcher` | the thread that returns full buffers: CUPTI's or the launching one (worker) |
//!
//! Durations are nanoseconds, or have a unit: `100ns`, `50us`, `2ms`, `1s`. All `1/N` faults use one counter for the
//! whole process.

mod values;

use std::ops::RangeInclusive;
use std::sync::OnceLock;

use cupti::release::{RELEASES, Release};

use self::values::{duration, matches, number, offset as offset_of, one_of};

pub use self::values::{Every, OBJECT, Place};

/// The maximum number of GPUs.
pub const MAX_DEVICES: u32 = 16;

/// The `fail` or `slow` fault of one API function.
#[derive(Debug)]
pub enum Fault {
    /// Fail every Nth call.
    Fail(Every),
    /// Take this many nanoseconds longer.
    Slow(u64),
}

/// Samples that each run of a kernel adds.
#[derive(Debug, PartialEq, Eq)]
pub struct Stall {
    /// The kernel's (mangled) name.
    pub function: String,
    /// The offset of an instruction in it.
    pub offset: u64,
    /// The stall reason, without CUPTI's prefix.
    pub reason: String,
    /// The number of samples.
    pub samples: u32,
    /// The runs that add them, from 1.
    pub runs: RangeInclusive<u64>,
}

impl Stall {
    fn parse(function: &str, value: &str) -> Result<Self, String> {
        let mut parts = value.split(':');
        let (Some(offset), Some(reason), Some(samples), runs, None) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(format!("`{value}` is not of the form OFFSET:REASON:SAMPLES[:RUNS]"));
        };
        let runs = match runs.map(|runs| runs.split_once('-').unwrap_or((runs, runs))) {
            Some((first, last)) => number(first)?..=number(last)?,
            None => 1..=u64::MAX,
        };
        let offset = offset_of(offset)?;
        Ok(Self { function: function.into(), offset, reason: reason.into(), samples: number(samples)?, runs })
    }
}

/// Why PC sampling cannot be enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallFault {
    /// The user may not use the GPU's counters.
    Permission,
    /// The GPU does not support it.
    Unsupported,
    /// Another tool uses the counters.
    Busy,
}

/// What goes wrong with PM sampling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PmFault {
    /// The user may not use the GPU's counters.
    Permission,
    /// The GPU does not support it.
    Unsupported,
    /// Another tool uses the counters. Kernels cannot be sampled either.
    Busy,
    /// The library crashes.
    Crash,
}

/// What NVML cannot do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NvmlFault {
    /// It cannot be initialised.
    Missing,
    /// It has no energy counter.
    Refuse,
    /// It has no performance monitor.
    Gpm,
}

/// A parsed script.
#[derive(Debug)]
pub struct Script {
    /// The simulated release.
    pub release: &'static Release,
    /// Number of GPUs.
    pub devices: u32,
    /// Instances of each GPU; 0 if the GPUs are not partitioned.
    pub mig: u32,
    /// Bytes of memory of each GPU.
    pub memory: u64,
    /// Nanoseconds of every kernel, if fixed.
    pub kernel_ns: Option<u64>,
    /// Nanoseconds of kernels by name.
    pub kernels: Vec<(String, u64)>,
    /// Copy speed in GB/s.
    pub copy_gbps: f64,
    /// Whether records arrive out of order.
    pub shuffle: bool,
    /// Records to drop.
    pub drop: Every,
    /// Records to deliver without times.
    pub zero_time: Every,
    /// Records that never finish.
    pub unfinished: Every,
    /// Whether another client is subscribed.
    pub other_subscriber: bool,
    /// Faults of API functions by name.
    pub faults: Vec<(String, Fault)>,
    /// The first correlation id.
    pub correlation: u32,
    /// The file for the ground truth.
    pub truth: Option<String>,
    /// Whether CUPTI rejects another clock.
    pub refuse_clock: bool,
    /// Whether kernels have the default clock after another clock was set again.
    pub clock_spoils: bool,
    /// Whether CUPTI rejects buffer callbacks.
    pub refuse_buffer: bool,
    /// CPU time of CUPTI for each record.
    pub record_cost: u64,
    /// Whether each thread has its own record buffer.
    pub per_thread: bool,
    /// Whether the launching thread returns full buffers.
    pub deliver_on_launcher: bool,
    /// The number of graph nodes whose creation is not reported.
    pub unseen_nodes: u64,
    /// The file with the cubin of every module.
    pub cubin: Option<String>,
    /// Samples by kernel.
    pub stalls: Vec<Stall>,
    /// Why PC sampling cannot be enabled.
    pub stall_fault: Option<StallFault>,
    /// Kernels whose samples are dropped.
    pub stall_drop: Every,
    /// The collection at which the hardware buffer is full.
    pub stall_full: Option<u64>,
    /// Watts of idle power, and of each kernel.
    pub watts: (u64, u64),
    /// The file of the kernels that ran.
    pub meter: Option<String>,
    /// Nanoseconds between updates of the energy counter.
    pub energy_step: u64,
    /// What NVML cannot do.
    pub nvml_fault: Option<NvmlFault>,
    /// Where a `CUfunction` has its name.
    pub function_name: Place,
    /// Where a `CUkernel` has its name.
    pub kernel_name: Place,
    /// What kernels use, by name: SMs, tensor pipe, instructions, DRAM read and write, in percent.
    pub pm: Vec<(String, [u32; 5])>,
    /// What the counters of single runs count, by name: metrics and their values.
    pub limits: Vec<(String, Vec<(usize, f64)>)>,
    /// What goes wrong with PM sampling.
    pub pm_fault: Option<PmFault>,
    /// Where the user that enables PM sampling is written.
    pub pm_owner: Option<String>,
    /// The decoding at which the hardware buffer was full.
    pub pm_overflow: Option<u64>,
    /// Whether NCCL's kernels are named after their operations.
    pub nccl_numbered: bool,
    /// Nanoseconds that a rank sleeps in a call of NCCL.
    pub nccl_late: Vec<((u32, u64), u64)>,
    /// The rank and the number of a call of NCCL whose kernel never starts.
    pub nccl_stuck: Option<(u32, u64)>,
    /// The same of a call that says that it gathers.
    pub nccl_mismatch: Option<(u32, u64)>,
}

impl Script {
    /// Creates the default script.
    pub fn new() -> Self {
        Self {
            release: Release::named("13.0").unwrap_or(&RELEASES[0]),
            devices: 1,
            mig: 0,
            memory: 80 << 30,
            kernel_ns: None,
            kernels: Vec::new(),
            copy_gbps: 25.0,
            shuffle: false,
            drop: Every::default(),
            zero_time: Every::default(),
            unfinished: Every::default(),
            other_subscriber: false,
            faults: Vec::new(),
            correlation: 1,
            truth: None,
            refuse_clock: false,
            clock_spoils: false,
            refuse_buffer: false,
            record_cost: 0,
            per_thread: true,
            deliver_on_launcher: false,
            unseen_nodes: 0,
            cubin: None,
            stalls: Vec::new(),
            stall_fault: None,
            stall_drop: Every::default(),
            stall_full: None,
            watts: (100, 300),
            meter: None,
            energy_step: 20_000_000,
            nvml_fault: None,
            function_name: Place { at: 0x48, then: None },
            kernel_name: Place { at: 0x28, then: Some(0x60) },
            pm: Vec::new(),
            limits: Vec::new(),
            pm_fault: None,
            pm_owner: None,
            pm_overflow: None,
            nccl_numbered: false,
            nccl_late: Vec::new(),
            nccl_stuck: None,
            nccl_mismatch: None,
        }
    }

    /// Parses `key=value` entries.
    pub fn parse<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut script = Self::new();
        let mut per_thread = None;
        for entry in entries {
            let entry = entry.trim();
            if entry.is_empty() || entry.starts_with('#') {
                continue;
            }
            // A glob may contain `=`; the key then ends at the bracket.
            let split = entry.find("]=").map(|at| at + 1).or_else(|| entry.find('='));
            let (key, value) = split.map(|at| (&entry[..at], &entry[at + 1..])).ok_or(format!("`{entry}` has no ="))?;
            if key == "per_thread" {
                per_thread = Some(one_of(value, &["0", "1"])? == 1);
            } else {
                script.set(key, value)?;
            }
        }
        script.per_thread = per_thread.unwrap_or(script.release.driver >= 13000);
        Ok(script)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "release" => {
                self.release = Release::named(value).ok_or_else(|| format!("unknown release `{value}`"))?;
            }
            "devices" => {
                self.devices = number(value)?;
                if !(1..=MAX_DEVICES).contains(&self.devices) {
                    return Err(format!("devices must be 1 to {MAX_DEVICES}"));
                }
            }
            "mig" => {
                self.mig = number(value)?;
                if self.mig > 7 {
                    return Err("mig must be 0 to 7".into());
                }
            }
            "memory" => self.memory = number(value)?,
            "kernel_ns" => self.kernel_ns = Some(duration(value)?),
            "copy_gbps" => {
                self.copy_gbps = number(value)?;
                if self.copy_gbps.is_nan() || self.copy_gbps <= 0.0 {
                    return Err("copy_gbps must be above 0".into());
                }
            }
            "order" => {
                one_of(value, &["shuffle"])?;
                self.shuffle = true;
            }
            "drop" => self.drop = Every::parse(value)?,
            "zero_time" => self.zero_time = Every::parse(value)?,
            "unfinished" => self.unfinished = Every::parse(value)?,
            "subscriber" => {
                one_of(value, &["other"])?;
                self.other_subscriber = true;
            }
            "fail" => {
                let (function, every) = value.split_once(':').ok_or("fail must be FUNC:1/N")?;
                self.faults.push((function.into(), Fault::Fail(Every::parse(every)?)));
            }
            "slow" => {
                let (function, time) = value.split_once(':').ok_or("slow must be FUNC:DURATION")?;
                self.faults.push((function.into(), Fault::Slow(duration(time)?)));
            }
            "correlation" => {
                self.correlation = number(value)?;
                if self.correlation == 0 {
                    return Err("0 is not a correlation id".into());
                }
            }
            "record_cost" => self.record_cost = duration(value)?,
            "truth" => self.truth = Some(value.into()),
            "clock" => {
                one_of(value, &["refuse", "spoils"])?;
                (self.refuse_clock, self.clock_spoils) = (value == "refuse", value == "spoils");
            }
            "buffer" => {
                one_of(value, &["refuse"])?;
                self.refuse_buffer = true;
            }
            "unseen_nodes" => self.unseen_nodes = number(value)?,
            "cubin" => self.cubin = Some(value.into()),
            "stalls" => {
                let faults = [StallFault::Permission, StallFault::Unsupported, StallFault::Busy];
                self.stall_fault = Some(faults[one_of(value, &["permission", "unsupported", "busy"])?]);
            }
            "stall_drop" => self.stall_drop = Every::parse(value)?,
            "stall_full" => self.stall_full = Some(number(value)?),
            "watts" => {
                let (idle, kernel) = value.split_once(':').ok_or("watts must be IDLE:KERNEL")?;
                self.watts = (number(idle)?, number(kernel)?);
            }
            "meter" => self.meter = Some(value.into()),
            "energy_step" => self.energy_step = duration(value)?.max(1),
            "nvml" => {
                let faults = [NvmlFault::Missing, NvmlFault::Refuse, NvmlFault::Gpm];
                self.nvml_fault = Some(faults[one_of(value, &["missing", "refuse", "no-gpm"])?]);
            }
            "function_name" => self.function_name = Place::parse(value)?,
            "kernel_name" => self.kernel_name = Place::parse(value)?,
            "pm" => {
                let faults = [PmFault::Permission, PmFault::Unsupported, PmFault::Busy, PmFault::Crash];
                self.pm_fault = Some(faults[one_of(value, &["permission", "unsupported", "busy", "crash"])?]);
            }
            "pm_owner" => self.pm_owner = Some(value.into()),
            "pm_overflow" => self.pm_overflow = Some(number(value)?),
            "nccl_names" => self.nccl_numbered = one_of(value, &["numbered"])? == 0,
            "nccl_late" => {
                let (call, time) = value.rsplit_once(':').ok_or("nccl_late must be RANK:NUMBER:DURATION")?;
                self.nccl_late.push((rank_call(call)?, duration(time)?));
            }
            "nccl_stuck" => self.nccl_stuck = Some(rank_call(value)?),
            "nccl_mismatch" => self.nccl_mismatch = Some(rank_call(value)?),
            "deliver" => self.deliver_on_launcher = one_of(value, &["worker", "launcher"])? == 1,
            _ if key.starts_with("pm[") && key.ends_with(']') => {
                let values = value.split(':').map(number).collect::<Result<Vec<u32>, _>>()?;
                let values = values.try_into().map_err(|_| "pm[GLOB] must be SM:TENSOR:ISSUED:READ:WRITE")?;
                self.pm.push((key["pm[".len()..key.len() - 1].into(), values));
            }
            _ if key.starts_with("limits[") && key.ends_with(']') => {
                let pairs = value.split(':').map(|pair| {
                    let (metric, value) = pair.split_once('=').ok_or("limits[GLOB] must be METRIC=VALUE:...")?;
                    let value = value.parse::<f64>().map_err(|_| format!("`{value}` is no number"))?;
                    Ok::<_, String>((number(metric)?, value))
                });
                let pairs = pairs.collect::<Result<Vec<_>, _>>()?;
                self.limits.push((key["limits[".len()..key.len() - 1].into(), pairs));
            }
            _ if key.starts_with("stall[") && key.ends_with(']') => {
                self.stalls.push(Stall::parse(&key["stall[".len()..key.len() - 1], value)?);
            }
            _ => {
                let glob = key.strip_prefix("kernel[").and_then(|rest| rest.strip_suffix(']'));
                let glob = glob.ok_or_else(|| format!("unknown key `{key}`"))?;
                self.kernels.push((glob.into(), duration(value)?));
            }
        }
        Ok(())
    }

    /// Reads the script of the environment.
    pub fn load() -> Result<Self, String> {
        let Some(text) = std::env::var_os("WARPSCOPE_SIM") else { return Ok(Self::new()) };
        let text = text.into_string().map_err(|_| "not UTF-8")?;
        match text.strip_prefix('@') {
            Some(path) => {
                let file = std::fs::read_to_string(path).map_err(|e| format!("cannot read {path}: {e}"))?;
                Self::parse(file.lines())
            }
            None => Self::parse(text.split(',')),
        }
    }

    /// Returns the index of the entry that says what the kernel called `name` uses.
    pub fn counters_of(&self, name: &[u8]) -> Option<usize> {
        self.pm.iter().position(|(glob, _)| matches(glob.as_bytes(), name))
    }

    /// Returns what the counters of a single run of the kernel called `name` count: metrics and their values.
    pub fn counters_of_run(&self, name: &[u8]) -> impl Iterator<Item = (usize, f64)> {
        let entry = self.limits.iter().find(|(glob, _)| matches(glob.as_bytes(), name));
        entry.into_iter().flat_map(|(_, values)| values.iter().copied())
    }

    /// Returns the fixed duration of the kernel called `name`, if the script sets one.
    pub fn kernel_duration(&self, name: &str) -> Option<u64> {
        let by_name = self.kernels.iter().find(|(glob, _)| matches(glob.as_bytes(), name.as_bytes()));
        by_name.map(|&(_, time)| time).or(self.kernel_ns)
    }
}

/// Parses `RANK:NUMBER`: a call of a rank.
fn rank_call(value: &str) -> Result<(u32, u64), String> {
    let (rank, call) = value.split_once(':').ok_or_else(|| format!("`{value}` is not of the form RANK:NUMBER"))?;
    Ok((number(rank)?, number(call)?))
}

impl Default for Script {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the process's script. Ends the process if it is invalid: a test must not run without some of its faults.
pub fn script() -> &'static Script {
    static SCRIPT: OnceLock<Script> = OnceLock::new();
    SCRIPT.get_or_init(|| {
        Script::load().unwrap_or_else(|error| {
            eprintln!("simulated GPU: WARPSCOPE_SIM: {error}");
            std::process::exit(2);
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every key is parsed into its field.
    #[test]
    fn every_key_is_parsed() {
        let text = "release=12.8,devices=4,memory=1000,kernel_ns=3us,kernel[mat*,x]=50us,copy_gbps=12.5,order=shuffle,\
                    drop=1/7,zero_time=1/5,unfinished=1/3,subscriber=other,fail=cudaMalloc:1/2,slow=cuInit:2ms,\
                    correlation=4294967290,truth=/tmp/t,clock=refuse,buffer=refuse,per_thread=1,deliver=launcher,unseen_nodes=5,\
                    cubin=/tmp/c,stall[mat]=0x5b0:long_scoreboard:3,stalls=busy,stall_drop=1/4,stall_full=2,\
                    watts=70:500,meter=/tmp/m,energy_step=100ms,nvml=refuse,function_name=16,kernel_name=0x80:0,pm[mat*]=90:80:70:60:50,limits[mat*]=1=99:5=8.5,pm=busy,pm_owner=/tmp/o,pm_overflow=3,\
                    nccl_names=numbered,nccl_late=1:3:20ms,nccl_stuck=2:0,nccl_mismatch=0:7";
        let entries = text.replace("*,x", "*").replace(',', "\n");
        let script = Script::parse(entries.lines()).expect("a good script");
        assert_eq!((script.release.name, script.devices, script.memory), ("12.8", 4, 1000));
        assert_eq!(script.kernel_duration("matmul"), Some(50_000));
        assert_eq!(script.kernel_duration("softmax"), Some(3_000));
        assert_eq!((script.drop.period, script.zero_time.period, script.unfinished.period), (7, 5, 3));
        assert!(script.shuffle && script.other_subscriber && script.refuse_clock && script.refuse_buffer);
        assert!(script.per_thread && script.deliver_on_launcher);
        assert_eq!(script.unseen_nodes, 5);
        let (function, reason) = ("mat".to_owned(), "long_scoreboard".to_owned());
        assert_eq!(script.stalls, [Stall { function, offset: 0x5b0, reason, samples: 3, runs: 1..=u64::MAX }]);
        let runs = |text: &str| Stall::parse("mat", text).map(|stall| stall.runs);
        assert_eq!((runs("1:wait:2:3"), runs("1:wait:2:1-4")), (Ok(3..=3), Ok(1..=4)));
        assert_eq!((script.cubin.as_deref(), script.stall_drop.period), (Some("/tmp/c"), 4));
        assert_eq!((script.stall_fault, script.stall_full), (Some(StallFault::Busy), Some(2)));
        assert_eq!((script.watts, script.meter.as_deref()), ((70, 500), Some("/tmp/m")));
        assert_eq!((script.energy_step, script.nvml_fault), (100_000_000, Some(NvmlFault::Refuse)));
        assert!(script.nccl_numbered && script.nccl_late == [((1, 3), 20_000_000)]);
        assert_eq!((script.nccl_stuck, script.nccl_mismatch), (Some((2, 0)), Some((0, 7))));
        assert_eq!(script.function_name, Place { at: 16, then: None });
        assert_eq!(script.kernel_name, Place { at: 0x80, then: Some(0) });
        assert_eq!((script.counters_of(b"matmul"), script.counters_of(b"x")), (Some(0), None));
        assert_eq!((script.pm[0].1, script.pm_overflow), ([90, 80, 70, 60, 50], Some(3)));
        assert_eq!(script.counters_of_run(b"matmul").collect::<Vec<_>>(), [(1, 99.0), (5, 8.5)]);
        assert_eq!(script.counters_of_run(b"other").count(), 0);
        assert_eq!((script.pm_fault, script.pm_owner.as_deref()), (Some(PmFault::Busy), Some("/tmp/o")));
        assert_eq!((script.correlation, script.truth.as_deref()), (4294967290, Some("/tmp/t")));
        assert!(matches!(script.faults[0], (ref f, Fault::Fail(_)) if f == "cudaMalloc"));
        assert!(matches!(script.faults[1], (ref f, Fault::Slow(2_000_000)) if f == "cuInit"));
    }

    /// A typo is an error, never a silent default.
    #[test]
    fn typos_are_rejected() {
        for bad in [
            "drops=1/7",
            "drop=7",
            "drop=1/0",
            "release=9.0",
            "devices=0",
            "mig=8",
            "kernel_ns=5hours",
            "order",
            "clock=no",
            "stalls=no",
            "stall[x]=1:wait",
            "function_name=0",
            "function_name=20",
            "kernel_name=16:1024",
            "pm[x]=1:2:3:4",
            "limits[x]=1:2",
            "limits[x]=1=high",
            "stall[x]=1:wait:2:x",
            "nccl_late=1:20ms",
        ] {
            assert!(Script::parse([bad]).is_err(), "{bad}");
        }
        assert!(Script::parse(["# a comment", "", " drop=1/2 "]).is_ok());
    }

    /// The default buffer mode depends on the release.
    #[test]
    fn the_buffer_mode_depends_on_the_release() {
        assert!(!Script::parse(["release=12.8"]).expect("good").per_thread);
        assert!(Script::parse(["release=13.0"]).expect("good").per_thread);
    }
}
