//! Findings about kernels.

use std::collections::BTreeMap;

use model::profile::{GpuWeight, Profile, What};
use text::{
    short::shortened,
    units::{count, percent, time},
};

use super::{
    advice::Setting,
    copies::spans,
    finding::{Evidence, Finding, Gain, Kind, share},
};
use crate::{
    idle::DeviceIdle,
    names,
    user_code::{Place, UserCode},
};

/// A launch costs the CPU and the GPU several microseconds. Below this mean duration, the launch costs about as much as
/// the kernel.
const TINY_NS: u64 = 10_000;
/// A line with fewer kernels is not worth a change.
const MANY: u64 = 1_000;
/// A line with a smaller share of all kernels is not what slows the program down.
const SHARE: f64 = 0.1;
/// A smaller share of the time of GPUs is not worth a change.
const WORTH: f64 = 0.05;
/// The first compute capability with tensor cores for single precision (TF32).
const TENSOR_CORES: (u32, u32) = (8, 0);
/// A smaller share of the recorded time in multiplications is not worth a change.
const MULTIPLICATIONS: f64 = 0.05;
/// The most characters of a kernel's name in a title.
const NAME: usize = 60;

/// Many short kernels are launched one by one from one line.
pub fn tiny(profile: &Profile, code: &UserCode<'_>, devices: &[DeviceIdle], setting: Setting) -> Option<Finding> {
    let mut lines: BTreeMap<Place, GpuWeight> = BTreeMap::new();
    let is_kernel = |key: &model::profile::GpuKey| matches!(key.what, What::Kernel(_));
    let all = profile.whole().gpu.iter().filter(|(key, _)| is_kernel(key));
    let kernels = all.fold(0_u64, |sum, (_, weight)| sum.saturating_add(weight.count));
    for (key, weight) in &profile.gpu {
        // Kernels of a graph are launched together.
        if let (What::Kernel(_), Some(stack), None) = (key.what, key.stack, key.capture) {
            lines.entry(code.place(key.process, stack)).or_default().add(weight);
        }
    }
    let mean = |weight: &GpuWeight| weight.ns / weight.count.max(1);
    let is_tiny =
        |weight: &GpuWeight| mean(weight) < TINY_NS && weight.count >= MANY && share(weight.count, kernels) >= SHARE;
    let (place, weight) = lines.into_iter().filter(|(_, w)| is_tiny(w)).max_by_key(|(_, weight)| weight.count)?;
    // Each takes at least as long as a launch.
    let affected = weight.count.saturating_mul(TINY_NS);
    if share(affected, spans(devices)) < WORTH {
        return None;
    }
    // Their own time remains. The GPU cannot gain more than it is idle, and launches may take longer than that.
    let gaps = |device: &DeviceIdle| profile.devices.get(&device.device).map_or(0, |info| info.idle.short_gaps.1);
    let idle = devices.iter().map(|device| device.idle_ns).max().unwrap_or(0);
    let launching = affected.saturating_sub(weight.ns).max(devices.iter().map(gaps).max().unwrap_or(0));
    Some(Finding {
        kind: Kind::TinyKernels,
        title: format!(
            "{} kernels of {} on average ({} of all) are launched one by one at {}",
            count(weight.count),
            time(mean(&weight)),
            percent(weight.count, kernels),
            place.short()
        ),
        evidence: vec![
            Evidence::count("kernels", weight.count),
            Evidence::ns("mean duration", mean(&weight)),
            Evidence::ns("longest", weight.max_ns),
        ],
        place: Some(place),
        advice: setting
            .torch_or(
                "capture them in a CUDA graph, or fuse them: torch.compile does both",
                "capture them in a CUDA graph, or fuse them",
            )
            .into(),
        share: share(affected, profile.wall_ns()),
        gain: Gain::of(launching.min(idle), profile),
    })
}

/// Matrix multiplications run on the units for single precision, although the GPU has tensor cores for it.
pub fn without_tensor_cores(profile: &Profile, code: &UserCode<'_>, setting: Setting) -> Option<Finding> {
    let has_tensor_cores =
        |device: u32| profile.devices.get(&device).is_some_and(|info| info.limits.capability >= TENSOR_CORES);
    let mut kernels: BTreeMap<u32, GpuWeight> = BTreeMap::new();
    for (key, weight) in profile.gpu.iter().filter(|(key, _)| has_tensor_cores(key.device)) {
        if let What::Kernel(index) = key.what
            && is_single_precision(names::kernel(profile, index))
        {
            kernels.entry(index).or_default().add(weight);
        }
    }
    let ns = kernels.values().fold(0_u64, |sum, weight| sum.saturating_add(weight.ns));
    let (index, most) = kernels.iter().max_by_key(|(_, weight)| weight.ns)?;
    if share(ns, profile.wall_ns()) < MULTIPLICATIONS {
        return None;
    }
    Some(Finding {
        kind: Kind::NoTensorCores,
        title: format!(
            "matrix multiplications in single precision do not use the tensor cores: {} of the time, most in {}",
            percent(ns, profile.wall_ns()),
            shortened(names::kernel(profile, *index), NAME)
        ),
        evidence: vec![
            Evidence::ns("time", ns),
            Evidence::count("kernels by that name", most.count),
            Evidence::ns("their time", most.ns),
        ],
        place: launched_at(profile, code, *index),
        advice: setting
            .torch_or(
                "if the accuracy suffices, allow TF32 (torch.set_float32_matmul_precision('high')), or use bf16 or fp16 \
                 (torch.autocast)",
                "if the accuracy suffices, allow TF32 (CUBLAS_TF32_TENSOR_OP_MATH), or use bf16 or fp16",
            )
            .into(),
        share: share(ns, profile.wall_ns()),
        gain: Gain::of(ns, profile),
    })
}

/// Whether a kernel of cuBLAS or CUTLASS multiplies on the units for single precision, by its name.
fn is_single_precision(kernel: &str) -> bool {
    let has = |part: &str| kernel.contains(part);
    !has("tensorop") && !has("tf32") && (has("sgemm") || (has("simt") && has("gemm")) || has("gemm_f32f32_f32f32_f32"))
}

/// Returns the line that launches most of a kernel's time.
pub(super) fn launched_at(profile: &Profile, code: &UserCode<'_>, kernel: u32) -> Option<Place> {
    let mut lines: BTreeMap<Place, u64> = BTreeMap::new();
    for (key, weight) in profile.gpu.iter().filter(|(key, _)| key.what == What::Kernel(kernel)) {
        if let Some(stack) = key.capture.or(key.stack) {
            let sum = lines.entry(code.place(key.process, stack)).or_default();
            *sum = sum.saturating_add(weight.ns);
        }
    }
    lines.into_iter().max_by_key(|(_, ns)| *ns).map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check names of libraries' kernels, with and without tensor cores.
    #[test]
    fn single_precision_is_known_by_name() {
        for name in [
            "ampere_sgemm_128x64_nn",
            "volta_sgemm_32x128_tn",
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_nn_align1>(Params)",
            "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x128x8",
        ] {
            assert!(is_single_precision(name), "{name}");
        }
        for name in [
            "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x4_nn_align4>(Params)",
            "ampere_s1688gemm_fp32_128x64_sliced1x2_nn",
            "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x32",
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n",
            "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_nn",
            "gather",
        ] {
            assert!(!is_single_precision(name), "{name}");
        }
    }
}
