//! Counters of GPUs, as events: their energy from NVML, and how busy their parts are, from CUPTI's PM sampling or NVML's
//! performance monitors (GPM).

use std::{path::Path, time::Duration};

use model::event::{Energy, Event, Gpm, Note, Uuid};

use crate::{
    nvml::{GpmReading, Meter, Nvml, Reading},
    sampler::{self, Choice, Sampler},
    simulated,
};

/// How often NVML is read. Energy counters of real GPUs change every 20 to 100 ms, and GPM measures means over intervals of
/// this order.
const INTERVAL: Duration = Duration::from_millis(100);

/// What is read.
pub enum Readings {
    /// The energy counters or the performance monitors of NVML.
    Nvml(Meter<Event>),
    /// The counters of CUPTI.
    Pm(Sampler),
}

impl Readings {
    /// Starts to read energy, with the NVML of the simulated GPU if there is one. The error says what is missing.
    pub fn energy(simulator: Option<&Path>) -> Result<Self, String> {
        let nvml = open(simulator)?;
        let event = |Reading { uuid, time, millijoules }: Reading| {
            Some(Event::Energy(Energy { gpu: Uuid::parse(&uuid)?, time, millijoules }))
        };
        Meter::start(INTERVAL, move || Ok(nvml.energy()?.into_iter().filter_map(event).collect())).map(Self::Nvml)
    }

    /// Starts to sample counters, or to read performance monitors. Notes say why one or both are missing.
    pub fn counters(program: Option<&Path>, simulator: Option<&Path>, push: &mut dyn FnMut(Event)) -> Option<Self> {
        let choice = Choice::for_program(program, simulator);
        let why = match choice.and_then(|choice| Sampler::start(&choice, push)) {
            Ok(sampler) => return Some(Self::Pm(sampler)),
            Err(why) => why,
        };
        let monitors = Self::monitors(simulator);
        let text = match &monitors {
            Ok(_) => format!("counters come from NVML (GPM), and kernels get no verdict: {why}"),
            Err(missing) => format!("counters were not recorded: {why}; and {missing}"),
        };
        push(Event::Note(Note { text }));
        monitors.ok()
    }

    /// Starts to read performance monitors.
    fn monitors(simulator: Option<&Path>) -> Result<Self, String> {
        let mut nvml = open(simulator)?;
        let event = |GpmReading { uuid, start, end, values }: GpmReading| {
            let values = values.into_iter().map(|(metric, value)| (metric, (value * 1000.0) as u64)).collect();
            Some(Event::Gpm(Gpm { gpu: Uuid::parse(&uuid)?, start, end, values }))
        };
        Meter::start(INTERVAL, move || Ok(nvml.gpm()?.into_iter().filter_map(event).collect())).map(Self::Nvml)
    }

    /// Passes on the readings since the last call.
    pub fn take(&mut self, push: &mut dyn FnMut(Event)) {
        match self {
            Self::Nvml(meter) => meter.take().for_each(push),
            Self::Pm(sampler) => sampler.take(push),
        }
    }

    /// Waits for the last readings, and passes them on.
    pub fn finish(&mut self, push: &mut dyn FnMut(Event)) {
        match self {
            Self::Nvml(meter) => meter.stop(),
            Self::Pm(sampler) => sampler.finish(push),
        }
        self.take(push);
    }

    /// Returns the CPU time of the process that sampled, once it has ended.
    pub fn cpu_ns(&self) -> u64 {
        if let Self::Pm(sampler) = self { sampler.cpu_ns() } else { 0 }
    }
}

/// Says what to do if another tool uses the counters of a GPU that the program sees. `None` if none does, or if that is not
/// known.
pub fn used_by_others(program: Option<&Path>, simulator: Option<&Path>) -> Option<String> {
    sampler::used_by_others(&Choice::for_program(program, simulator).ok()?)
}

/// Opens NVML: that of the simulated GPU if there is one.
fn open(simulator: Option<&Path>) -> Result<Nvml, String> {
    match simulator {
        Some(_) => {
            let library = simulated::library("libnvidia-ml.so.1");
            Nvml::open_at(&library.map_err(|error| format!("cannot load the simulated NVML: {error}"))?)
        }
        None => Nvml::open(),
    }
}

#[cfg(test)]
mod tests {
    use crate::pm::metrics::{Kind, METRICS};
    use model::gpu_counters::{CounterUnit, Source};

    /// Check that the process that samples and the recording number metrics alike.
    #[test]
    fn metrics_have_the_same_numbers() {
        assert_eq!(METRICS.len(), model::gpu_counters::pm::COUNT);
        for (number, (name, kind)) in METRICS.into_iter().enumerate() {
            let (shown, unit) = Source::Pm.metric(number as u32).expect("a metric");
            assert_eq!(kind == Kind::Percent, unit == CounterUnit::Percent, "{name:?} {shown}");
            let word = name.to_string_lossy().split("__").next().map(str::to_owned).unwrap_or_default();
            let about = match word.as_str() {
                "sm" => ["SM", "tensor", "instructions", "warps"].as_slice(),
                "dram" => &["DRAM"],
                "gr" => &["graphics"],
                "pcie" => &["PCIe"],
                "nvlrx" => &["NVLink received"],
                _ => &["NVLink sent"],
            };
            assert!(about.iter().any(|start| shown.starts_with(start)), "{name:?} is not {shown}");
        }
    }
}
