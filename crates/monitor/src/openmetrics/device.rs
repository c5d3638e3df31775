//! Metric families of GPUs, from NVML.

use super::{
    Format,
    other::OTHER,
    process::define,
    text::{Definition, Family, Kind, Labels},
};
use crate::snapshot::{Device, Snapshot};

/// The maximum number of processes per GPU; the rest is summed.
const MAX_PROCESSES: usize = 128;
/// The maximum number of different Xids per GPU; there are fewer than 200 in all.
const MAX_XIDS: usize = 64;

define! {
    LOST = Maximum "warpscope_device_lost", "", "1 if the GPU no longer responds: it fell off the bus or was removed.";
    UTILISATION = Maximum "warpscope_device_utilisation_ratio", "ratio", "Share of time during which a kernel was running.";
    MEMORY_UTILISATION = Maximum "warpscope_device_memory_utilisation_ratio", "ratio",
        "Share of time during which device memory was read or written.";
    MEMORY_SIZE = Gauge "warpscope_device_memory_size_bytes", "bytes", "Total memory of the GPU.";
    MEMORY_USED = Gauge "warpscope_device_memory_used_bytes", "bytes", "Memory of the GPU in use.";
    POWER = Gauge "warpscope_device_power_watts", "watts", "Power drawn by the GPU.";
    POWER_LIMIT = Maximum "warpscope_device_power_limit_watts", "watts", "Power limit of the GPU.";
    ENERGY = Counter "warpscope_device_energy_joules", "joules", "Energy used since the driver was loaded.";
    TEMPERATURE = Maximum "warpscope_device_temperature_celsius", "celsius", "Temperature of the GPU.";
    SM_CLOCK = Maximum "warpscope_device_sm_clock_hertz", "hertz", "Clock frequency of the multiprocessors.";
    MEMORY_CLOCK = Maximum "warpscope_device_memory_clock_hertz", "hertz", "Clock frequency of the memory.";
    PCIE_RECEIVED = Gauge "warpscope_device_pcie_received_bytes_per_second", "", "Bytes per second received over PCIe.";
    PCIE_SENT = Gauge "warpscope_device_pcie_sent_bytes_per_second", "", "Bytes per second sent over PCIe.";
    NVLINK_RECEIVED = Counter "warpscope_device_nvlink_received_bytes", "bytes", "Bytes received over all NVLinks.";
    NVLINK_SENT = Counter "warpscope_device_nvlink_sent_bytes", "bytes", "Bytes sent over all NVLinks.";
    ECC = Counter "warpscope_device_ecc_errors", "", "Memory errors since the driver was loaded, corrected and uncorrected.";
    XID = Counter "warpscope_device_xid_events", "", "Xid events since warpscope started, by number.";
    GPM = Maximum "warpscope_device_gpm_ratio", "ratio", "Metrics of the GPU performance monitor, 0 to 1.";
    PROCESS_MEMORY = Gauge "warpscope_device_process_memory_bytes", "bytes",
        "Memory of the GPU by process as counted by the driver, including contexts and code.";
}

/// Writes all families of GPUs.
pub fn write(snapshot: &Snapshot, format: Format, text: &mut String) {
    let labelled: Vec<(Labels, &Device)> = snapshot
        .devices
        .iter()
        .map(|device| {
            let labels = Labels::default()
                .with("device", &device.index.to_string())
                .with("uuid", &device.uuid)
                .with("name", &device.name);
            (labels, device)
        })
        .collect();
    let mut each = |definition, add: &dyn Fn(&mut Family, &Labels, &Device)| {
        let mut family = Family::new(definition);
        for (labels, device) in &labelled {
            add(&mut family, labels, device);
        }
        family.write(format, text);
    };
    each(&LOST, &|family, labels, device| family.push(labels.clone(), u64::from(device.lost)));
    each(&UTILISATION, &|family, labels, device| family.push_some(labels, device.utilisation));
    each(&MEMORY_UTILISATION, &|family, labels, device| family.push_some(labels, device.memory_utilisation));
    each(&MEMORY_SIZE, &|family, labels, device| family.push_some(labels, device.memory_total));
    each(&MEMORY_USED, &|family, labels, device| family.push_some(labels, device.memory_used));
    each(&POWER, &|family, labels, device| family.push_some(labels, device.power));
    each(&POWER_LIMIT, &|family, labels, device| family.push_some(labels, device.power_limit));
    each(&ENERGY, &|family, labels, device| family.push_some(labels, device.energy));
    each(&TEMPERATURE, &|family, labels, device| family.push_some(labels, device.temperature));
    each(&SM_CLOCK, &|family, labels, device| family.push_some(labels, device.sm_clock));
    each(&MEMORY_CLOCK, &|family, labels, device| family.push_some(labels, device.memory_clock));
    each(&PCIE_RECEIVED, &|family, labels, device| family.push_some(labels, device.pcie_received));
    each(&PCIE_SENT, &|family, labels, device| family.push_some(labels, device.pcie_sent));
    each(&NVLINK_RECEIVED, &|family, labels, device| family.push_some(labels, device.nvlink_received));
    each(&NVLINK_SENT, &|family, labels, device| family.push_some(labels, device.nvlink_sent));
    each(&ECC, &|family, labels, device| {
        family.push_some(&labels.with("kind", "corrected"), device.ecc_corrected);
        family.push_some(&labels.with("kind", "uncorrected"), device.ecc_uncorrected);
    });
    each(&XID, &|family, labels, device| {
        for (xid, count) in device.xids.iter().take(MAX_XIDS) {
            family.push(labels.with("xid", &xid.to_string()), *count);
        }
    });
    each(&GPM, &|family, labels, device| {
        for (metric, share) in &device.gpm {
            family.push(labels.with("metric", metric), *share);
        }
    });
    each(&PROCESS_MEMORY, &|family, labels, device| process_memory(family, labels, device, snapshot));
}

fn process_memory(family: &mut Family, labels: &Labels, device: &Device, snapshot: &Snapshot) {
    let mut processes = device.processes.clone();
    processes.sort_by_key(|&(pid, bytes)| (std::cmp::Reverse(bytes), pid));
    for (place, (pid, bytes)) in processes.into_iter().enumerate() {
        let labels = if place >= MAX_PROCESSES {
            labels.with("pid", OTHER)
        } else {
            let known = snapshot.processes.iter().find(|process| process.pid == pid);
            let labels = labels.with("pid", &pid.to_string());
            known.map_or(labels.clone(), |process| {
                labels.with("comm", &process.comm).with("user", &process.user).with("container", &process.container)
            })
        };
        family.push(labels, bytes);
    }
}
