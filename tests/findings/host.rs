//! GPUs that wait for what one thread does.

use super::{
    TORCH,
    says::{idle, says},
    scenario::Scenario,
};

scenarios! {
    /// A thread computes while its GPU is idle, on a CPU or waiting for one. It is a C program, and gets no advice about
    /// PyTorch.
    computation => Scenario::of(["kernel:work sync 20( compute:5000 kernel:work sync )"])
        .sim("kernel_ns=5ms")
        .options("--off-cpu")
        .says(idle("compute").at("compute").words(&["ahead of time"]))
        .never(&TORCH);

    /// A thread sleeps while its GPU is idle.
    sleep => Scenario::of(["kernel:work sync 20( nap:5000 kernel:work sync )"])
        .sim("kernel_ns=5ms")
        .options("--off-cpu")
        .says(idle("nap").at("nap").words(&["do not wait here"]))
        .never(&TORCH);

    /// Both, for the same time.
    computation_and_sleep => Scenario::of(["kernel:work sync 20( compute:4000 nap:4000 kernel:work sync )"])
        .sim("kernel_ns=4ms")
        .options("--off-cpu")
        .says(idle("compute").place("nap"));

    /// First one, then the other: a time range has only what happened in it.
    two_phases => Scenario::of([
        "kernel:work sync mark:first 12( compute:8000 kernel:work sync ) mark:second 12( nap:8000 kernel:work sync ) mark:end",
    ])
    .sim("kernel_ns=6ms")
    .options("--off-cpu")
    .says(idle("compute").place("nap"))
    .between("first", "second", [idle("compute")], &["nap"])
    .between("second", "end", [idle("nap")], &["compute"]);

    /// A busy phase and one with long gaps.
    a_busy_and_an_idle_phase => Scenario::of([
        "mark:busy 12( kernel:work ) sync mark:idle 3( nap:80000 kernel:work sync ) mark:end",
    ])
    .sim("kernel_ns=20ms")
    .options("--off-cpu")
    .says(idle("nap"))
    .between("busy", "idle", [], &[])
    .between("idle", "end", [idle("nap")], &[]);

    /// One long gap. A time range in it has no GPU work, but the GPU is idle, and for a known reason.
    a_long_gap => Scenario::of(["8( kernel:work ) sync mark:asleep nap:300000 mark:awake 8( kernel:work ) sync"])
        .sim("kernel_ns=20ms")
        .options("--off-cpu")
        .says(idle("nap"))
        .between("asleep", "awake", [idle("nap")], &["no GPU worked"]);

    /// A thread waits for a lock, which another one has while it computes.
    a_lock => Scenario::of(["kernel:work sync 20( post:0 take:7 lock kernel:work sync )", "20( take:0 hold:6000 )"])
        .sim("kernel_ns=5ms")
        .options("--off-cpu")
        .says(idle("wait_for_lock").at("wait_for_lock").words(&["do not wait here"]))
        .never(&["hold"]);

    /// A thread waits for input.
    input => Scenario::of(["kernel:work sync 20( post:0 read kernel:work sync )", "20( take:0 nap:6000 write )"])
        .sim("kernel_ns=5ms")
        .options("--off-cpu")
        .says(idle("read_input").at("read_input"))
        .never(&["nap", "write_input"]);

    /// A thread allocates GPU memory in each step, and the driver takes long for it.
    slow_allocations => Scenario::of(["kernel:work sync 15( weights:1 free kernel:work sync )"])
        .sim("kernel_ns=5ms,slow=cuMemAlloc_v2:8ms")
        .options("--off-cpu")
        .says(idle("weights").at("weights"));

    /// A thread sleeps, and its waits were not recorded.
    sleep_without_waits => Scenario::of(["kernel:work sync 8( nap:20000 kernel:work sync )"])
        .sim("kernel_ns=20ms")
        .says(says("gpu-idle").named("[unknown]", "nap").words(&["record with --off-cpu"]));

    /// The same without samples.
    sleep_without_evidence => Scenario::of(["kernel:work sync 8( nap:20000 kernel:work sync )"])
        .sim("kernel_ns=20ms")
        .options("--gpu-only")
        .says(says("gpu-idle").named("[unknown]", "nap").words(&["record CPU samples"]));

    /// A program that takes a second to begin.
    a_long_start => Scenario::of(["import:1100000 10( kernel:work ) sync"])
        .sim("kernel_ns=20ms")
        .says(says("start").at("import_module").words(&["% import_module", "attach"]))
        .unsteady();
}
