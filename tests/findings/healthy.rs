//! Programs that keep their GPU busy, or whose GPU is idle for too short a time to matter: nothing must be said.

use super::{devices::reducing, scenario::Scenario};

scenarios! {
    /// Kernels of 20 ms, all of them queued.
    a_busy_gpu => Scenario::of(["20( kernel:work ) sync"]).sim("kernel_ns=20ms");

    /// The same with copies beside the kernels.
    copies_beside_kernels => Scenario::of(["20( kernel:work ) sync", "12( copy:1000000 sync nap:5000 )"]).sim("kernel_ns=20ms");

    /// Kernels that fill half of the device, two at a time.
    kernels_that_fill_the_device_together =>
        Scenario::of(["grid:66 20( kernel:work ) sync", "grid:66 20( kernel:work ) sync"]).sim("kernel_ns=20ms");

    /// The host waits 160 times, but there is always more work in the queue.
    a_host_that_waits_in_time => Scenario::of([
        "kernel:work record:0 kernel:work record:1 kernel:work record:2 kernel:work record:3 40( await:0 kernel:work record:0 \
         await:1 kernel:work record:1 await:2 kernel:work record:2 await:3 kernel:work record:3 ) sync",
    ])
    .sim("kernel_ns=3ms");

    /// Tiny kernels in a graph are launched together.
    tiny_kernels_in_a_graph =>
        Scenario::of(["capture:50 kernel:long 20( replay ) sync"]).sim("kernel[long]=300ms,kernel[work]=8us").unsteady();

    /// A thousand tiny kernels, which take a few milliseconds of it all.
    a_burst_of_tiny_kernels => Scenario::of(["kernel:long tiny:1010 10( kernel:work ) sync"])
        .sim("kernel[long]=300ms,kernel[tiny]=2us,kernel[work]=20ms")
        .unsteady();

    /// A few copies of memory that is not pinned, beside the kernels.
    rare_pageable_copies => Scenario::of(["20( kernel:work ) sync", "4( pageable:1000000 sync )"])
        .sim("kernel_ns=20ms,copy_gbps=1")
        .unsteady();

    /// The threads of a pool wait for work all the time.
    an_idle_pool_beside_a_busy_gpu =>
        Scenario::of(["20( kernel:work ) sync", "pool", "pool"]).sim("kernel_ns=20ms").options("--off-cpu");

    /// Ranks that start together and do the same.
    ranks_that_are_alike => Scenario::of((0..4).map(|rank| format!("rank:{rank} together 12( kernel:work ) sync together")))
        .sim("kernel_ns=30ms");

    /// The same, and they communicate.
    ranks_that_communicate_alike => reducing(|_, _| "");

    /// The same by the threads of one process.
    gpus_that_are_alike =>
        Scenario::of((0..4).map(|gpu| format!("device:{gpu} 12( kernel:work ) sync"))).sim("kernel_ns=30ms");

    /// A program that goes on after its last GPU work.
    a_long_end => Scenario::of(["20( kernel:work ) sync nap:300000"]).sim("kernel_ns=20ms").options("--off-cpu");

    /// A program that takes a while to begin.
    a_short_start => Scenario::of(["import:200000 20( kernel:work ) sync"]).sim("kernel_ns=20ms");

    /// A few MiB of GPU memory.
    a_little_memory => Scenario::of(["weights:8 20( kernel:work ) sync"]).sim("kernel_ns=20ms").options("--memory");

    /// Much memory, but never at the same time.
    memory_that_is_freed =>
        Scenario::of(["kernel:work 10( weights:32 free ) 20( kernel:work ) sync"]).sim("kernel_ns=20ms").options("--memory");

    /// A kernel that computes as fast as the GPU can.
    a_kernel_that_computes => Scenario::of(["12( kernel:work ) sync"])
        .sim("kernel_ns=20ms,pm[work]=95:5:80:20:10,meter={scene}meter")
        .options("--counters --gpu-only");

    /// Too few samples of stalls to know anything.
    a_few_stalls => Scenario::of(["12( kernel:gather ) sync"])
        .sim("kernel_ns=20ms,cubin={cubin},stall[gather]=0x5b0:long_scoreboard:2")
        .options("--stalls --gpu-only");
}
