//! Launches and synchronisation.

use super::{
    says::{idle, says},
    scenario::Scenario,
};

const MS: u64 = 1_000_000;

scenarios! {
    /// One launch of many is slow, because its kernel runs for the first time.
    one_slow_launch => Scenario::of(["kernel:work sync late:other sync 80( kernel:work ) sync"])
        .sim("kernel_ns=5ms,slow=cuLaunchKernelEx:325ms")
        .says(says("gpu-idle").words(&["one launch of", "first use of a kernel"]))
        .never(&["fewer"])
        .unsteady();

    /// All launches are slow.
    slow_launches => Scenario::of(["kernel:work sync 30( kernel:work sync )"])
        .sim("kernel_ns=4ms,slow=cuLaunchKernel:6ms")
        .options("--off-cpu")
        .says(says("gpu-idle").named("launching", "launch").words(&["started late"]))
        .never(&["fewer", "one launch"]);

    /// Kernels that are shorter than the time to launch them.
    tiny_kernels => Scenario::of(["tiny:10000 sync"])
        .sim("kernel[tiny]=2us,record_cost=6us")
        .says(says("gpu-idle").at("launch_tiny").words(&["% launch_tiny", "fewer and longer kernels"]))
        .says(says("launch-bound").words(&["GPU 0 is launch-bound", "fewer and longer kernels"]))
        .says(says("tiny-kernels").at("launch_tiny").words(&["kernels of 2.00 µs", "100.0 % of all"]));

    /// The host waits for each kernel, and computes before it launches the next one.
    a_wait_in_each_step => Scenario::of(["kernel:work sync 220( compute:1000 kernel:work sync )"])
        .sim("kernel_ns=1ms")
        .options("--off-cpu")
        .says(idle("compute"))
        .says(says("synchronization").at("finish").takes("finish").words(&["synchronise less often"]));

    /// The same by reading a value, in a call that copies and waits.
    a_value_in_each_step => Scenario::of(["default kernel:work get:8 220( compute:1000 kernel:work get:8 )"])
        .sim("kernel_ns=1ms")
        .options("--off-cpu")
        .says(idle("compute"))
        .says(says("synchronization").at("get").ns(221 * MS).words(&["synchronise less often"]));

    /// A thread reads values beside one that sleeps: it keeps no GPU waiting. With so many switches the kernel may not report one, so
    /// one sleep is less than the three points.
    values_beside => Scenario::of([
        "kernel:work sync 40( nap:5000 kernel:work sync )",
        "default 150( get:8 nap:1000 )",
    ])
    .sim("kernel_ns=2500us,slow=cuMemcpyDtoH_v2:200us")
    .options("--off-cpu")
    .says(idle("nap").of(0, 0))
    .never(&["synchronise"])
    .unsteady();
}
