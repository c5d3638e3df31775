//! Queries NVML on its own thread, so that a scrape never waits for a GPU: measuring a PCIe rate takes 20 ms, and a
//! failing GPU may take seconds to respond.

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use super::{device::Device, session::Nvml};

#[derive(Default)]
struct Shared {
    devices: Mutex<Vec<Device>>,
    stop: Mutex<bool>,
    stopped: Condvar,
}

/// Samples at an interval until dropped.
pub struct Sampler {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Samples once now, and then every `interval`.
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

    /// Returns the last sample of all GPUs; does not wait.
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
