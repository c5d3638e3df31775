//! Asks NVML on a thread of its own, so that a scrape never waits for a GPU: a PCIe rate takes 20 ms to measure, and a GPU
//! that is about to be lost may take seconds to answer.

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use crate::{Device, Nvml};

#[derive(Default)]
struct Shared {
    devices: Mutex<Vec<Device>>,
    stop: Mutex<bool>,
    stopped: Condvar,
}

/// Asks at an interval, until it is dropped.
pub struct Sampler {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Asks once now, and then each `interval`.
    pub fn start(mut nvml: Nvml, interval: Duration) -> Result<Self, String> {
        let shared = Arc::new(Shared { devices: Mutex::new(nvml.devices()), ..Shared::default() });
        let theirs = shared.clone();
        let run = move || {
            loop {
                let stop = theirs.stop.lock().unwrap_or_else(PoisonError::into_inner);
                let waited = theirs.stopped.wait_timeout_while(stop, interval, |stop| !*stop);
                if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                    return;
                }
                let devices = nvml.devices();
                *theirs.devices.lock().unwrap_or_else(PoisonError::into_inner) = devices;
            }
        };
        let thread = std::thread::Builder::new().name("nvml".to_owned()).spawn(run);
        let thread = thread.map_err(|error| format!("cannot start a thread for NVML: {error}"))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// What GPUs told last; does not wait.
    pub fn devices(&self) -> Vec<Device> {
        self.shared.devices.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        *self.shared.stop.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.stopped.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
