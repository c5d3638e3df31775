//! Readings of the energy counters of GPUs, as events.

use std::{path::Path, time::Duration};

use model::event::{Energy, Event, Uuid};
use nvml::{Meter, Nvml};

/// How often the counters are read. Those of real GPUs change every 20 to 100 ms.
const INTERVAL: Duration = Duration::from_millis(100);

/// Reads the counters.
pub struct Readings(Meter);

impl Readings {
    /// Starts reading, with the NVML of the simulated GPU if there is one. The error says what is missing.
    pub fn start(simulator: Option<&Path>) -> Result<Self, String> {
        let nvml = match simulator {
            Some(directory) => Nvml::open_at(&directory.join("libnvidia-ml.so.1")),
            None => Nvml::open(),
        };
        nvml.and_then(|nvml| Meter::start(nvml, INTERVAL)).map(Self)
    }

    /// Passes on the readings since the last call.
    pub fn take(&self, push: &mut dyn FnMut(Event)) {
        for reading in self.0.take() {
            if let Some(gpu) = Uuid::parse(&reading.uuid) {
                push(Event::Energy(Energy { gpu, time: reading.time, millijoules: reading.millijoules }));
            }
        }
    }

    /// Waits for the last reading, and passes it on.
    pub fn finish(mut self, push: &mut dyn FnMut(Event)) {
        self.0.stop();
        self.take(push);
    }
}
