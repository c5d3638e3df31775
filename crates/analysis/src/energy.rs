//! The energy of GPUs: who used it, and how well it is known.

use std::collections::BTreeMap;

use model::{
    energy::{GpuEnergy, watts},
    profile::Profile,
};
use serde::Serialize;
use text::units::{counted, energy, time};

use crate::{names, user_code::user_path};

/// The energy of the time in which no recorded kernel ran.
pub(crate) const IDLE: &str = "[idle]";

/// The most rows in a summary.
const MOST: usize = 100;

/// The energy of a recording.
#[derive(Clone, Debug, Serialize)]
pub struct EnergySummary {
    /// Each GPU.
    pub gpus: Vec<GpuEnergy>,
    /// Kernels and idle time, those with the most energy first.
    pub kernels: Vec<EnergyRow>,
    /// What the numbers mean, in sentences.
    pub meaning: Vec<String>,
}

/// Energy of a kernel, of a call path, or of idle time.
#[derive(Clone, Debug, Serialize)]
pub struct EnergyRow {
    /// Its name, or the names of the path.
    pub name: String,
    /// The GPU.
    pub gpu: String,
    /// Kernels; 0 for idle time.
    pub count: u64,
    /// The time of the kernels, or of the time without any.
    pub ns: u64,
    /// Microjoules.
    pub energy_uj: u64,
    /// The share of the energy of all GPUs.
    pub share: f64,
}

impl EnergyRow {
    /// Returns the mean power in watts.
    pub fn watts(&self) -> Option<f64> {
        watts(self.energy_uj, self.ns)
    }
}

/// Sums up the energy of a profile; `None` if it was not recorded.
pub(crate) fn summary(profile: &Profile) -> Option<EnergySummary> {
    let mut kernels = by_kernel(profile);
    kernels.truncate(MOST);
    let meaning = meaning(&profile.energy);
    (!profile.energy.is_empty()).then(|| EnergySummary { gpus: profile.energy.clone(), kernels, meaning })
}

/// Returns the energy by kernel and GPU. All rows add up to what NVML counted.
pub(crate) fn by_kernel(profile: &Profile) -> Vec<EnergyRow> {
    rows(profile, |key| names::kernel(profile, key).to_owned(), |_, name| name)
}

/// Returns the energy by the path of user code and GPU. All rows add up to what NVML counted.
pub(crate) fn by_line(profile: &Profile) -> Vec<EnergyRow> {
    let path = user_path(profile);
    rows(profile, |_| String::new(), |key, _| path(key))
}

/// Sums the energy of kernels by name, and adds that of idle time.
fn rows(
    profile: &Profile,
    kernel: impl Fn(u32) -> String,
    name: impl Fn(&model::profile::GpuKey, String) -> String,
) -> Vec<EnergyRow> {
    if profile.energy.is_empty() {
        return Vec::new();
    }
    let gpu_of = |device: u32| profile.device_label(device).split(':').next().unwrap_or_default().to_owned();
    let mut sums: BTreeMap<(String, String), (u64, u64, u64)> = BTreeMap::new();
    for (key, weight) in &profile.gpu {
        let Some(index) = key.what.kernel() else { continue };
        let sum = sums.entry((name(key, kernel(index)), gpu_of(key.device))).or_default();
        sum.0 = sum.0.saturating_add(weight.count);
        sum.1 = sum.1.saturating_add(weight.ns);
        sum.2 = sum.2.saturating_add(weight.microjoules);
    }
    for gpu in &profile.energy {
        let idle = (0, gpu.ns.saturating_sub(gpu.busy_ns), gpu.idle_uj);
        sums.insert((IDLE.to_owned(), gpu.label.clone()), idle);
    }
    let whole = profile.energy.iter().fold(0_u64, |sum, gpu| sum.saturating_add(gpu.total_uj));
    let share = |part: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    let row =
        |((name, gpu), (count, ns, energy_uj))| EnergyRow { name, gpu, count, ns, energy_uj, share: share(energy_uj) };
    let mut rows: Vec<EnergyRow> = sums.into_iter().map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.energy_uj));
    rows
}

/// Says what the numbers mean, and how exact they are.
fn meaning(gpus: &[GpuEnergy]) -> Vec<String> {
    let Some(change) = gpus.iter().filter_map(GpuEnergy::change_ns).max() else {
        return gpus.iter().map(steps).collect();
    };
    let general = format!(
        "divided by time: kernels shorter than {} have the mean power around them; kernels of processes that were not \
         recorded count as idle",
        time(change)
    );
    gpus.iter().map(steps).chain([general]).collect()
}

/// Says how the counter of a GPU changed, and what that means for its sum.
fn steps(gpu: &GpuEnergy) -> String {
    let Some(change) = gpu.change_ns() else {
        return format!("GPU {}: the counter did not change in {}", gpu.label, readings(gpu));
    };
    format!(
        "GPU {}: in {} the counter changed every {} (shortest {}) by at least {}: up to {} at each end may belong to the \
         time outside the recording",
        gpu.label,
        readings(gpu),
        time(change),
        time(gpu.shortest_change_ns),
        energy(gpu.smallest_change_uj),
        energy((gpu.watts().unwrap_or(0.0) * change as f64 / 1e3) as u64),
    )
}

fn readings(gpu: &GpuEnergy) -> String {
    counted(gpu.readings, "reading", "readings")
}
