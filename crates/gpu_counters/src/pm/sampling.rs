//! The process that samples: everything it does.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    path::Path,
};

use cupti::pm_sampling::Initialize;

use super::{
    device::{self, Device},
    functions::{Cupti, call, gpus},
    output::{Closed, Output},
    record::{Failure, Numbers, Record, Step, UNTRUSTED},
};
use crate::clock::Clock;

/// How often the hardware buffers are read.
const POLL_MS: libc::c_int = 50;

/// Samples all GPUs until standard input is closed, and writes records to standard output.
pub fn run(driver: &Path, cupti: &Path, interval: u64) -> io::Result<()> {
    let mut output = Output::new(take_output()?);
    // The reader is gone: so is the reason to sample.
    let _ = sample(driver, cupti, interval, &mut output);
    Ok(())
}

/// Checks all GPUs, and writes records to standard output: a failure for each GPU whose counters cannot be used, and the end.
pub fn check(driver: &Path, cupti: &Path) -> io::Result<()> {
    let mut output = Output::new(take_output()?);
    let _ = check_all(driver, cupti, &mut output);
    Ok(())
}

/// Writes a record that says why a library is not loaded.
pub fn refuse() -> io::Result<()> {
    let mut output = Output::new(take_output()?);
    let _ = output.record(&Record::Failed { gpu: None, failure: Failure { step: Step::LoadCupti, code: UNTRUSTED } });
    Ok(())
}

fn check_all(driver: &Path, cupti: &Path, output: &mut Output) -> Result<(), Closed> {
    match load(driver, cupti) {
        Ok((cupti, uuids)) => {
            for index in 0..uuids.len() {
                if let Err(failure) = device::check(&cupti, index) {
                    output.record(&Record::Failed { gpu: Some(index as u8), failure })?;
                }
            }
        }
        Err(failure) => output.record(&Record::Failed { gpu: None, failure })?,
    }
    output.record(&Record::Ready)?;
    output.record(&Record::End)
}

/// Takes standard output away from the libraries: what they print there would be read as records.
fn take_output() -> io::Result<OwnedFd> {
    let null = File::options().write(true).open("/dev/null")?;
    // SAFETY: plain system calls; the new descriptor is owned by nothing else.
    unsafe {
        let pipe = libc::fcntl(libc::STDOUT_FILENO, libc::F_DUPFD_CLOEXEC, 3);
        if pipe < 0 || libc::dup2(null.as_raw_fd(), libc::STDOUT_FILENO) < 0 {
            return Err(io::Error::last_os_error());
        }
        let flags = libc::fcntl(pipe, libc::F_GETFL);
        libc::fcntl(pipe, libc::F_SETFL, flags | libc::O_NONBLOCK);
        Ok(OwnedFd::from_raw_fd(pipe))
    }
}

fn sample(driver: &Path, cupti: &Path, interval: u64, output: &mut Output) -> Result<(), Closed> {
    let (cupti, uuids) = match load(driver, cupti) {
        Ok(loaded) => loaded,
        Err(failure) => return output.record(&Record::Failed { gpu: None, failure }),
    };
    let mut devices: Vec<(u8, Device)> = Vec::new();
    for (index, uuid) in uuids.into_iter().enumerate() {
        let gpu = index as u8;
        match Device::open(&cupti, index, interval) {
            Ok(device) => {
                let metrics = Numbers::new(device.metrics.iter().copied());
                output.record(&Record::Gpu { gpu, uuid, metrics })?;
                devices.push((gpu, device));
            }
            Err(failure) => output.record(&Record::Failed { gpu: Some(gpu), failure })?,
        }
    }
    output.record(&Record::Ready)?;
    let mut clock = Clock::new();
    let mut last = false;
    while !last {
        last = devices.is_empty() || stop_requested();
        clock.refresh();
        if last {
            devices.iter_mut().for_each(|(_, device)| device.stop(&cupti));
        }
        let mut place = 0;
        while place < devices.len() {
            let (gpu, device) = &mut devices[place];
            let gpu = *gpu;
            let mut written = Ok(());
            let read = device.read(&cupti, &mut |start, end, values| {
                let (start, end, values) = (clock.monotonic(start), clock.monotonic(end), Numbers::new(values));
                if written.is_ok() && start < end {
                    written = output.sample(&Record::Sample { gpu, start, end, values });
                }
            });
            written?;
            match read {
                Ok(read) if read.overflow => output.record(&Record::Overflow { gpu })?,
                Ok(_) => {}
                Err(failure) => {
                    output.record(&Record::Failed { gpu: Some(gpu), failure })?;
                    devices.remove(place).1.end(&cupti);
                    continue;
                }
            }
            place += 1;
        }
        output.flush()?;
    }
    output.record(&Record::End)?;
    devices.iter_mut().for_each(|(_, device)| device.end(&cupti));
    Ok(())
}

fn load(driver: &Path, cupti: &Path) -> Result<(Cupti, Vec<u128>), Failure> {
    let uuids = gpus(driver)?;
    let cupti = Cupti::load(cupti)?;
    // SAFETY: the structure has nothing but its size.
    unsafe { call(Step::Profiler, cupti.initialize, &mut Initialize::new())? };
    Ok((cupti, uuids))
}

/// Waits until it is time to read, or until standard input is closed.
fn stop_requested() -> bool {
    let mut wait = libc::pollfd { fd: libc::STDIN_FILENO, events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid entry.
    unsafe { libc::poll(&mut wait, 1, POLL_MS) > 0 }
}
