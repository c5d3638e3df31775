//! Counters of GPUs as a source: their energy, and how busy their parts are.

use std::{ffi::OsString, path::Path};

use gpu_counters::Readings;

use crate::{
    calls::search,
    collector::Collector,
    sink::Sink,
    source::{Around, Source},
};

/// Records the energy of GPUs from now on. Without it, the recording says why.
pub fn record_energy<S: Sink>(collector: &mut Collector<S>, simulator: Option<&Path>) {
    match Readings::energy(simulator) {
        Ok(readings) => collector.add(readings),
        Err(error) => collector.note(format!("energy was not recorded: {error}")),
    }
}

/// Records how busy the parts of GPUs are from now on. Without that, the recording says why.
pub fn record_counters<S: Sink>(collector: &mut Collector<S>, program: &OsString, simulator: Option<&Path>) {
    let program = search::program(program);
    let readings = Readings::counters(program.as_deref(), simulator, &mut |event| collector.sink.push(&event));
    readings.into_iter().for_each(|readings| collector.add(readings));
}

impl Source for Readings {
    fn gather(&mut self, around: &mut dyn Around) -> bool {
        self.take(&mut |event| around.push(event));
        false
    }

    fn end(&mut self, around: &mut dyn Around) {
        self.finish(&mut |event| around.push(event));
    }

    fn child_ns(&self) -> u64 {
        self.cpu_ns()
    }
}
