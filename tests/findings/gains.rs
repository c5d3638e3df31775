//! How much a finding says could be gained, compared with what is gained when the bottleneck is removed.
//!
//! Each test records a program twice: with its bottleneck, and with the change that the finding advises. The time from the first to
//! the last GPU work must not become shorter by more than the stated gain, within the slack: a gain is an upper bound. Nor may it
//! be several times of what was gained: these programs have nothing that the change could not remove.

use serde_json::Value;

use super::{devices::reducing, report::findings, scenario::Scenario};
use crate::support::scene::number;

/// The part of the time before the change that a gain may be too small by: no two runs take equally long.
const SLACK: f64 = 0.05;
/// A gain may be so many times of what was gained, and the slack more.
const MOST: f64 = 1.5;

macro_rules! gains {
    ($($(#[$about:meta])* $name:ident => $kind:literal, $before:expr, $after:expr;)*) => {
        $(
            $(#[$about])*
            #[test]
            #[ignore = "compares times, which other tests change: ./test runs it after the others"]
            fn $name() {
                check($kind, &$before, &$after);
            }
        )*
    };
}

gains! {
    /// The thread no longer computes while its GPU is idle.
    computation => "gpu-idle",
        Scenario::of(["kernel:work sync 20( compute:8000 kernel:work sync )"]).sim("kernel_ns=8ms").options("--off-cpu"),
        Scenario::of(["kernel:work sync 20( kernel:work sync )"]).sim("kernel_ns=8ms").options("--off-cpu");

    /// It computes ahead of time, in another thread.
    prefetch => "gpu-idle",
        Scenario::of(["kernel:work sync 20( compute:8000 kernel:work sync )"]).sim("kernel_ns=8ms").options("--off-cpu"),
        Scenario::of(["kernel:work sync 20( take:0 kernel:work sync )", "20( compute:8000 post:0 )"])
            .sim("kernel_ns=8ms")
            .options("--off-cpu");

    /// The host queues the next kernel while one runs.
    fewer_waits => "synchronization",
        Scenario::of(["kernel:work sync 220( compute:1000 kernel:work sync )"]).sim("kernel_ns=1ms").options("--off-cpu"),
        Scenario::of(["kernel:work 220( compute:1000 kernel:work ) sync"]).sim("kernel_ns=1ms").options("--off-cpu");

    /// The kernels are launched together, by graphs.
    graphs => "launch-bound",
        Scenario::of(["tiny:10000 sync"]).sim("kernel[tiny]=2us,record_cost=6us"),
        Scenario::of(["capture:1000 10( replay ) sync"]).sim("kernel[work]=2us");

    /// The same kernels do five times as much each.
    fused_kernels => "tiny-kernels",
        Scenario::of(["tiny:10000 sync"]).sim("kernel[tiny]=2us,record_cost=6us"),
        Scenario::of(["tiny:2000 sync"]).sim("kernel[tiny]=10us,record_cost=6us");

    /// Copies run beside the kernels.
    copies_beside => "copies-alone",
        Scenario::of(["16( copy:8000000 kernel:work ) sync"]).sim("kernel_ns=12ms,copy_gbps=1"),
        Scenario::of(["16( kernel:work ) sync", "16( copy:8000000 ) sync"]).sim("kernel_ns=12ms,copy_gbps=1");

    /// The same with memory that was not pinned, in calls that wait.
    pinned_memory => "pageable-copies",
        Scenario::of(["default kernel:work 12( put:8000000 kernel:work ) sync"]).sim("kernel_ns=40ms,copy_gbps=0.25"),
        Scenario::of(["13( kernel:work ) sync", "12( copy:8000000 ) sync"]).sim("kernel_ns=40ms,copy_gbps=0.25");

    /// Both GPUs have as much to do.
    an_even_load => "imbalance",
        Scenario::of(["device:0 16( kernel:work ) sync", "device:1 16( kernel:short ) sync"])
            .sim("kernel[work]=20ms,kernel[short]=5ms"),
        Scenario::of(["device:0 16( kernel:work ) sync", "device:1 16( kernel:work ) sync"]).sim("kernel_ns=12500us");

    /// The rank does no more than the others, which waited for it.
    a_rank_in_time => "late-rank", reducing(|rank, _| if rank == 3 { "compute:12000" } else { "" }), reducing(|_, _| "");

    /// Blocks for all SMs: 8 of 132 took 20 ms.
    a_whole_grid => "small-grid",
        Scenario::of(["grid:8 12( kernel:work ) sync"]).sim("kernel_ns=20ms"),
        Scenario::of(["12( kernel:work ) sync"]).sim("kernel_ns=1212us");

    /// No wave of a single block: one of two waves is left.
    a_whole_wave => "tail",
        Scenario::of(["grid:1057 12( kernel:work ) sync"]).sim("kernel_ns=20ms"),
        Scenario::of(["grid:1056 12( kernel:work ) sync"]).sim("kernel_ns=10ms");

    /// Tensor cores are eight times as fast.
    tensor_cores => "no-tensor-cores",
        Scenario::of(["12( kernel:ampere_sgemm_128x64_nn ) sync"]).sim("kernel_ns=20ms"),
        Scenario::of(["12( kernel:ampere_s1688gemm_tf32_128x64_nn ) sync"]).sim("kernel_ns=2500us");
}

/// Records both programs, and compares.
#[track_caller]
fn check(kind: &str, before: &Scenario, after: &Scenario) {
    let (Some(before), Some(after)) = (before.measure(), after.measure()) else { return };
    let finding = findings(&before).find(|finding| finding["kind"] == kind);
    let finding = finding.unwrap_or_else(|| panic!("no {kind}: {:#?}", before["findings"]));
    assert!(!findings(&after).any(|finding| finding["kind"] == kind), "still {kind}: {:#?}", after["findings"]);
    let stated = number(&finding["gain"], "ns") as f64;
    let (before_ns, after_ns) = (working(&before), working(&after));
    let (gained, slack) = (before_ns - after_ns, SLACK * before_ns);
    let text =
        format!("{kind}: {stated:.0} ns were stated, {gained:.0} of {before_ns:.0} gained: {}", finding["title"]);
    assert!(gained > slack, "nothing was gained: {text}");
    assert!(stated + slack >= gained, "no upper bound: {text}");
    assert!(stated <= MOST * gained + slack, "too much: {text}");
}

/// Returns the time from the first to the last work of any GPU.
fn working(report: &Value) -> f64 {
    let devices = || report["idle"].as_array().expect("GPUs").iter();
    let first = devices().map(|device| number(device, "before_ns")).min().expect("a GPU");
    let last = devices().map(|device| number(device, "before_ns") + number(device, "span_ns")).max().expect("a GPU");
    (last - first) as f64
}
