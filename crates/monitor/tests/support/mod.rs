//! A sample machine, and golden files.

#![allow(dead_code)]

use std::{path::Path, sync::Arc, time::Duration};

use monitor::snapshot::{
    Calls, Copies, Device, Errors, Frame, Health, Kernel, Kinds, Memory, Moved, Process, Snapshot, Space, Suspect,
};

/// Compares `text` with a golden file, or writes the file if `BLESS` is set.
pub fn check(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, text).expect("a golden file that can be written");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "{name} differs; BLESS=1 updates it");
}

fn stack(frames: &[&str]) -> Arc<[Frame]> {
    frames.iter().copied().map(Frame::from).collect()
}

/// Memory of a process in one space.
pub fn memory(space: Space, live_bytes: u64, live: u64, frees: u64) -> Memory {
    Memory {
        space,
        live_bytes,
        live,
        peak_bytes: live_bytes + (1 << 30),
        allocations: live + frees,
        allocated_bytes: live_bytes + frees * 4096,
        frees,
        failed: 1,
        failed_frees: 2,
        ..Memory::default()
    }
}

fn training(step: u64) -> Process {
    let gemm = "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4>(Params)";
    let add = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)";
    let kernel = |name: &str, launches, grid: [u32; 3], block| {
        let by_address = vec![(grid[0].into(), launches)];
        Kernel { name: name.into(), launches, by_address, grid, block }
    };
    Process {
        id: 1,
        pid: 4711,
        comm: "python3".to_owned(),
        command: "python3 train.py --epochs 3".to_owned(),
        user: "alice".to_owned(),
        container: "3f9a2c77d1e0".to_owned(),
        watched: Duration::from_secs(60 + 5 * step),
        unwatched: Some(Duration::from_millis(12)),
        ended: false,
        memory: vec![
            memory(Space::Device, (10 << 30) + (step << 28), 2_000 + step, 500),
            memory(Space::Host, 64 << 20, 3, 9),
        ],
        suspects: vec![
            Suspect {
                bytes: (2 << 30) + (step << 28),
                count: 8 + step,
                growth: 1 << 28,
                oldest: Duration::from_secs(58),
                function: "cudaMalloc".into(),
                stack: stack(&[
                    "_start",
                    "<module> (train.py:88)",
                    "cache_batch (train.py:42)",
                    "at::empty_cuda",
                    "cudaMalloc",
                ]),
                resolving: false,
                remark: "",
            },
            Suspect {
                bytes: 8 << 30,
                count: 1_992,
                growth: 0,
                oldest: Duration::from_secs(60),
                function: "cudaMalloc".into(),
                stack: stack(&[
                    "_start",
                    "<module> (train.py:88)",
                    "step (train.py:17)",
                    "c10::cuda::CUDACachingAllocator::malloc",
                ]),
                resolving: false,
                remark: "PyTorch's caching allocator: held for reuse, not leaked",
            },
        ],
        kernels: vec![
            kernel(gemm, 100_000 * step, [128, 4, 1], [256, 1, 1]),
            kernel(add, 5_000 * step, [4096, 1, 1], [128, 1, 1]),
        ],
        other_launches: 77,
        unnamed_launches: 0,
        unlisted: Vec::new(),
        graph_launches: 12 * step,
        copies: vec![
            Copies {
                direction: "HtoD",
                asynchronous: false,
                moved: Moved { count: 100 * step, bytes: step << 33, ns: 800_000_000 * step },
                sizes: vec![(4096, 10 * step), (1 << 27, 90 * step), (u64::MAX, 0)],
                durations: vec![(1 << 14, 10 * step), (1 << 23, 90 * step), (u64::MAX, 0)],
            },
            Copies {
                direction: "DtoH",
                asynchronous: true,
                moved: Moved { count: 40 * step, bytes: step << 20, ns: 90_000 },
                sizes: vec![(1 << 20, 40 * step), (u64::MAX, 0)],
                durations: Vec::new(),
            },
        ],
        sets: Moved { count: 6, bytes: 6 << 20, ns: 12_000 },
        errors: vec![Errors {
            function: "cudaMalloc".into(),
            code: "cudaErrorMemoryAllocation".into(),
            count: 2 * step,
        }],
        calls: vec![Calls {
            function: "cudaLaunchKernel".into(),
            count: 105_077 * step,
            ns: 400_000_000 * step,
            durations: vec![(1 << 12, 105_000 * step), (1 << 20, 77 * step), (u64::MAX, 0)],
            working: true,
        }],
    }
}

/// A process with hostile names everywhere.
pub fn hostile() -> Process {
    let evil = "a\"b\\c\nd\u{1b}[2J\u{202e}{x=\"1\"} 5\r\0";
    Process {
        id: 2,
        pid: 13,
        comm: evil.to_owned(),
        command: format!("{evil} {evil}"),
        user: "#1000".to_owned(),
        memory: vec![memory(Space::Managed, u64::MAX - (1 << 40), 1, 0)],
        suspects: vec![Suspect { function: evil.into(), stack: stack(&[evil, ""]), bytes: 1, ..Suspect::default() }],
        kernels: vec![
            Kernel { name: evil.into(), launches: 3, ..Kernel::default() },
            Kernel { name: evil.replace('\n', " ").into(), launches: 4, ..Kernel::default() },
            Kernel { name: "k<".repeat(3000).into(), launches: 2, ..Kernel::default() },
            Kernel { name: "".into(), launches: 1, ..Kernel::default() },
        ],
        errors: vec![Errors { function: evil.into(), code: evil.into(), count: 1 }],
        ..Process::default()
    }
}

fn device(step: u64) -> Device {
    Device {
        index: 0,
        uuid: "GPU-5a1c".to_owned(),
        name: "NVIDIA H200".to_owned(),
        utilisation: Some(0.93),
        memory_utilisation: Some(0.41),
        memory_total: Some(141 << 30),
        memory_used: Some(12 << 30),
        power: Some(412.5),
        power_limit: Some(700.0),
        energy: Some(1.5e6 + 2000.0 * step as f64),
        temperature: Some(61.0),
        sm_clock: Some(1_980_000_000),
        memory_clock: Some(3_201_000_000),
        pcie_received: Some(1_700_000_000),
        pcie_sent: Some(20_000_000),
        nvlink_received: None,
        nvlink_sent: None,
        ecc_corrected: Some(0),
        ecc_uncorrected: Some(0),
        xids: vec![(31, 1)],
        gpm: vec![("sm_occupancy", 0.5), ("tensor", f64::NAN)],
        processes: vec![(4711, 11 << 30), (99, 1 << 20)],
        lost: false,
    }
}

/// A machine with a training run and a process with hostile names, after `step` intervals of five seconds.
pub fn machine(step: u64) -> Snapshot {
    Snapshot {
        time_ns: 1_000_000_000_000 + step * 5_000_000_000,
        unix_ns: 1_794_729_600_000_000_000 + step * 5_000_000_000,
        processes: vec![hostile(), training(step)],
        devices: vec![device(step)],
        kinds: Kinds::ALL,
        health: Health {
            paused: Some(Duration::from_millis(1500)),
            libraries: 2,
            functions: 61,
            late_processes: 1,
            late: Duration::from_millis(12),
            missed_processes: 0,
            lost: vec![("allocations", 0), ("stacks", 3)],
            maps: vec![("allocations", 2_001, 262_144), ("stacks", 12, 16_384)],
            series_dropped: 0,
            programs: vec![("enter", 640, 0.0005), ("leave", 608, 0.00025)],
            cpu_seconds: 0.75,
            resident_bytes: 31 << 20,
            notes: vec!["NVML reports no NVLink counters here".to_owned()],
        },
    }
}
