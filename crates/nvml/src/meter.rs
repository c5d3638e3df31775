//! Reads the energy counters of all GPUs at an interval, on its own thread.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    thread::JoinHandle,
    time::Duration,
};

use crate::{Nvml, Reading};

/// Reads until stopped.
pub struct Meter {
    readings: Receiver<Reading>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Meter {
    /// Reads now, and then every `interval`. The error is a message for the user.
    pub fn start(nvml: Nvml, interval: Duration) -> Result<Self, String> {
        let (sender, readings) = mpsc::channel();
        read(&nvml, &sender)?;
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = stop.clone();
        let run = move || {
            loop {
                std::thread::sleep(interval);
                let last = theirs.load(Ordering::Acquire);
                // A GPU that fails has no more readings: what it used until then is known.
                let _ = read(&nvml, &sender);
                if last {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("nvml".to_owned()).spawn(run);
        let thread = thread.map_err(|error| format!("cannot start a thread for NVML: {error}"))?;
        Ok(Self { readings, stop, thread: Some(thread) })
    }

    /// Returns the readings since the last call; does not wait.
    pub fn take(&self) -> impl Iterator<Item = Reading> + '_ {
        self.readings.try_iter()
    }

    /// Waits for the last reading. The last interval is as long as the others: counters change in steps, and a step in a
    /// short interval would look like high power.
    pub fn stop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Reads all GPUs. Fails if none has a counter.
fn read(nvml: &Nvml, readings: &Sender<Reading>) -> Result<(), String> {
    for reading in nvml.energy()? {
        // Nobody takes them any more.
        let _ = readings.send(reading);
    }
    Ok(())
}
