//! NVML against a fake library with known values, compiled here from C.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use gpu_counters::nvml::{Device, Meter, Nvml, Sampler};

/// Each test has its own library, because its state is static.
fn build(folder: &Path, name: &str, options: &[&str]) -> PathBuf {
    let library = folder.join(format!("lib{name}.so"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvml.c");
    let status =
        Command::new("cc").args(["-shared", "-fPIC", "-w", "-o"]).arg(&library).arg(source).args(options).status();
    assert!(status.expect("a C compiler").success());
    library
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

/// Check every value of two GPUs, one that reports everything and one that reports little, with an inaccessible one
/// between them.
#[test]
fn every_value_is_read() {
    let folder = folder();
    let mut nvml = Nvml::open_at(&build(folder.path(), "values", &[])).expect("open");
    let first = nvml.devices();
    assert_eq!(first.iter().map(|device| device.index).collect::<Vec<_>>(), [0, 2]);
    assert!(first[0].gpm.is_empty(), "one sample gives no rates");
    let devices = nvml.devices();
    let gpu = &devices[0];
    let expected = Device {
        index: 0,
        uuid: "GPU-0".to_owned(),
        name: "NVIDIA H200".to_owned(),
        utilisation: Some(0.93),
        memory_utilisation: Some(0.41),
        memory_total: Some(150_754_820_096),
        memory_used: Some(12 << 30),
        power: Some(412.5),
        power_limit: Some(700.0),
        energy: Some(1_500_000.5),
        temperature: Some(61.0),
        sm_clock: Some(1_980_000_000),
        memory_clock: Some(3_201_000_000),
        pcie_received: Some(3 << 20),
        pcie_sent: Some(2 << 20),
        nvlink_received: Some(2000 << 10),
        nvlink_sent: Some(1000 << 10),
        ecc_corrected: Some(10),
        ecc_uncorrected: Some(11),
        xids: vec![(31, 2), (79, 1)],
        gpm: vec![
            ("graphics", 0.05),
            ("sm", 0.1),
            ("sm_occupancy", 0.15),
            ("integer", 0.2),
            ("tensor", 0.25),
            ("dram_bandwidth", 0.5),
            ("fp16", 0.65),
        ],
        processes: (0..100).filter(|i| *i != 1).map(|i| (1000 + i, 4096 * (u64::from(i) + 1))).collect(),
        lost: false,
    };
    assert_eq!(*gpu, expected);

    let other = &devices[1];
    assert_eq!((other.uuid.as_str(), other.name.chars().count()), ("GPU-2", 95));
    assert_eq!((other.ecc_corrected, other.nvlink_sent), (None, None));
    assert!(other.gpm.is_empty() && other.xids.is_empty());
    assert_eq!((other.pcie_sent, other.pcie_received), (Some(20_000), Some(1_700_000)));
    assert_eq!(other.processes, [(7, 4096 + 3 * 4096)], "the partitions of a GPU are merged per process");
}

/// Check that functions missing from an old driver only cost their values.
#[test]
fn old_drivers_lack_some_values() {
    let folder = folder();
    let mut nvml = Nvml::open_at(&build(folder.path(), "old", &["-DOLD"])).expect("open");
    let devices = nvml.devices();
    let gpu = &devices[0];
    assert_eq!((gpu.power, gpu.power_limit, gpu.energy), (Some(412.5), None, None));
    assert_eq!((gpu.nvlink_sent, gpu.pcie_received), (None, Some(1_700_000)));
    assert!(gpu.xids.is_empty() && gpu.gpm.is_empty());
    assert_eq!(gpu.processes.len(), 99);
}

/// Check that the performance monitor reports what it measured since the last reading, and that GPUs without one are left
/// out.
#[test]
fn the_performance_monitor_is_read() {
    let folder = folder();
    let mut nvml = Nvml::open_at(&build(folder.path(), "gpm", &[])).expect("open");
    assert_eq!(nvml.gpm(), Ok(Vec::new()), "one sample gives no rates");
    let [reading] = &nvml.gpm().expect("a monitor")[..] else { panic!("one GPU has a monitor") };
    assert!(reading.uuid == "GPU-0" && 0 < reading.start && reading.start < reading.end, "{reading:?}");
    let expected = [(1, 5.0), (2, 10.0), (3, 15.0), (4, 20.0), (5, 25.0), (10, 50.0), (13, 65.0)];
    let rates = [(20, 2.0), (21, 3.0), (60, 300.0), (61, 305.0)];
    assert_eq!(reading.values, [&expected[..], &rates].concat());
    let mut old = Nvml::open_at(&build(folder.path(), "no_gpm", &["-DOLD"])).expect("open");
    assert!(old.gpm().is_err_and(|error| error.contains("Hopper")));
}

/// Check the messages when NVML cannot be initialised.
#[test]
fn missing_nvml_is_explained() {
    let missing = Nvml::open_at(Path::new("/nonexistent/libnvidia-ml.so.1")).err().expect("missing");
    assert_eq!(missing, "cannot load /nonexistent/libnvidia-ml.so.1: not found; it is installed with NVIDIA's driver");
    let not_nvml = Nvml::open_at(Path::new("libc.so.6")).err().expect("not NVML");
    assert_eq!(not_nvml, "libc.so.6 is not NVML, or too old");
    let folder = folder();
    for (number, sentence) in [
        (9, "cannot initialise NVML: the NVIDIA driver is not loaded"),
        (
            18,
            "cannot initialise NVML: the driver and its library have different versions; reboot after a driver update",
        ),
        (999, "cannot initialise NVML: NVML error 999"),
    ] {
        let library = build(folder.path(), &format!("init{number}"), &[&format!("-DINIT={number}")]);
        assert_eq!(Nvml::open_at(&library).err().as_deref(), Some(sentence));
    }
}

/// Check that a GPU lost at run time reports only that, and that the other one continues.
#[test]
fn a_lost_gpu_is_reported() {
    let folder = folder();
    let mut nvml = Nvml::open_at(&build(folder.path(), "lost", &["-DLOSE=2"])).expect("open");
    assert!(!nvml.devices()[0].lost);
    assert!(!nvml.devices()[0].lost);
    let devices = nvml.devices();
    assert!(devices[0].lost && devices[0].memory_used.is_none() && devices[0].utilisation.is_none());
    assert_eq!(devices[0].uuid, "GPU-0");
    assert!(!devices[1].lost && devices[1].memory_used.is_some());
}

/// Check that all resources are released.
#[test]
fn resources_are_released() {
    let folder = folder();
    let library = build(folder.path(), "back", &[]);
    let mut nvml = Nvml::open_at(&library).expect("open");
    nvml.devices();
    let path = std::ffi::CString::new(library.as_os_str().as_encoded_bytes()).expect("a path");
    // SAFETY: the library is loaded already, and has this function.
    let left = unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        assert!(!handle.is_null());
        let address = libc::dlsym(handle, c"fakeLeft".as_ptr());
        std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> i32>(address)
    };
    assert_eq!(left(), 200, "two samples");
    drop(nvml);
    assert_eq!(left(), 1, "no samples left, shut down once");
}

/// Check that the thread samples, and ends at once when it is stopped.
#[test]
fn the_sampler_stops_at_once() {
    let folder = folder();
    let nvml = Nvml::open_at(&build(folder.path(), "sampler", &[])).expect("open");
    let sampler = Sampler::start(nvml, Duration::from_millis(1)).expect("a thread");
    assert_eq!(sampler.devices().len(), 2);
    let begin = Instant::now();
    // The performance monitor needs a second sample.
    while sampler.devices()[0].gpm.is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(60), "no second sample arrived");
        std::thread::yield_now();
    }
    drop(sampler);

    let nvml = Nvml::open_at(&build(folder.path(), "slow", &[])).expect("open");
    let sampler = Sampler::start(nvml, Duration::from_secs(3600)).expect("a thread");
    let begin = Instant::now();
    drop(sampler);
    assert!(begin.elapsed() < Duration::from_secs(60), "the sampler waited for the next sample");
}

/// CLOCK_MONOTONIC in nanoseconds.
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Check that energy is read at the start and at the end, and that a driver without the counter is reported.
#[test]
fn energy_is_read_until_the_end() {
    let folder = folder();
    let nvml = Nvml::open_at(&build(folder.path(), "meter", &[])).expect("open");
    let mut meter = Meter::start(Duration::from_millis(50), move || nvml.energy()).expect("a counter");
    let first: Vec<_> = meter.take().take(2).collect();
    assert_eq!(first.iter().map(|reading| reading.uuid.as_str()).collect::<Vec<_>>(), ["GPU-0", "GPU-2"]);
    assert!(first.iter().all(|reading| reading.millijoules == 1_500_000_500 && reading.time > 0));
    let stopped = now();
    meter.stop();
    let last = meter.take().last().expect("a last reading");
    assert!(last.uuid == "GPU-2" && last.time > stopped, "{last:?} is not after {stopped}");

    let nvml = Nvml::open_at(&build(folder.path(), "old_meter", &["-DOLD"])).expect("open");
    let error = Meter::start(Duration::from_secs(1), move || nvml.energy()).err();
    assert_eq!(error.as_deref(), Some("NVML has no energy counter (Volta or later has one): not supported"));
}
