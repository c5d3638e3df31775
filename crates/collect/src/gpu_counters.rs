//! Counters of GPUs from NVML, as events: their energy, and their performance monitors (GPM).

use std::{path::Path, time::Duration};

use model::event::{Energy, Event, Gpm, Uuid};
use nvml::{GpmReading, Meter, Nvml, Reading};

/// How often the counters are read. Energy counters of real GPUs change every 20 to 100 ms, and GPM measures means over
/// intervals of this order.
const INTERVAL: Duration = Duration::from_millis(100);

/// What is read.
#[derive(Default)]
pub struct Readings {
    energy: Option<Meter<Reading>>,
    gpm: Option<Meter<GpmReading>>,
}

impl Readings {
    /// Starts to read energy, with the NVML of the simulated GPU if there is one. The error says what is missing.
    pub fn start_energy(&mut self, simulator: Option<&Path>) -> Result<(), String> {
        let nvml = open(simulator)?;
        self.energy = Some(Meter::start(INTERVAL, move || nvml.energy())?);
        Ok(())
    }

    /// Starts to read performance monitors, likewise.
    pub fn start_gpm(&mut self, simulator: Option<&Path>) -> Result<(), String> {
        let mut nvml = open(simulator)?;
        self.gpm = Some(Meter::start(INTERVAL, move || nvml.gpm())?);
        Ok(())
    }

    /// Passes on the readings since the last call.
    pub fn take(&self, push: &mut dyn FnMut(Event)) {
        for Reading { uuid, time, millijoules } in self.energy.iter().flat_map(Meter::take) {
            if let Some(gpu) = Uuid::parse(&uuid) {
                push(Event::Energy(Energy { gpu, time, millijoules }));
            }
        }
        for GpmReading { uuid, start, end, values } in self.gpm.iter().flat_map(Meter::take) {
            if let Some(gpu) = Uuid::parse(&uuid) {
                let values = values.into_iter().map(|(metric, value)| (metric, (value * 1000.0) as u64)).collect();
                push(Event::Gpm(Gpm { gpu, start, end, values }));
            }
        }
    }

    /// Waits for the last readings, and passes them on.
    pub fn finish(mut self, push: &mut dyn FnMut(Event)) {
        self.energy.iter_mut().for_each(Meter::stop);
        self.gpm.iter_mut().for_each(Meter::stop);
        self.take(push);
    }
}

/// Opens NVML: that of the simulated GPU if there is one.
fn open(simulator: Option<&Path>) -> Result<Nvml, String> {
    match simulator {
        Some(directory) => Nvml::open_at(&directory.join("libnvidia-ml.so.1")),
        None => Nvml::open(),
    }
}
