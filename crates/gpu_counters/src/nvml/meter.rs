//! Reads GPUs at an interval, on its own thread.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver},
    },
    thread::JoinHandle,
    time::Duration,
};

/// Reads until stopped.
pub struct Meter<R> {
    readings: Receiver<R>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl<R: Send + 'static> Meter<R> {
    /// Calls `read` now, and then every `interval`. If the first call fails, its error is returned.
    pub fn start(
        interval: Duration,
        mut read: impl FnMut() -> Result<Vec<R>, String> + Send + 'static,
    ) -> Result<Self, String> {
        let (sender, readings) = mpsc::channel();
        // An error means that nobody takes them any more.
        let send = move |read: Vec<R>| read.into_iter().for_each(|reading| drop(sender.send(reading)));
        send(read()?);
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = stop.clone();
        let run = move || {
            loop {
                std::thread::sleep(interval);
                let last = theirs.load(Ordering::Acquire);
                // A GPU that fails has no more readings: what it used until then is known.
                send(read().unwrap_or_default());
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
    pub fn take(&self) -> impl Iterator<Item = R> + '_ {
        self.readings.try_iter()
    }
}

impl<R> Meter<R> {
    /// Waits for the last reading. The last interval is as long as the others: counters change in steps, and a step in a
    /// short interval would look like high power.
    pub fn stop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl<R> Drop for Meter<R> {
    fn drop(&mut self) {
        self.stop();
    }
}
