//! Copies. A gigabyte takes a second, so 8 MB take 8 ms.

use super::{says::says, scenario::Scenario};

const MS: u64 = 1_000_000;

scenarios! {
    /// Each kernel waits for its copy.
    copies_before_kernels => Scenario::of(["16( copy:8000000 kernel:work ) sync"])
        .sim("kernel_ns=12ms,copy_gbps=1")
        .says(says("copies-alone").at("upload").ns(16 * 8 * MS).words(&["GPU 0 only copies"]));

    /// The same with memory that is not pinned.
    pageable_copies => Scenario::of(["16( pageable:8000000 kernel:work ) sync"])
        .sim("kernel_ns=12ms,copy_gbps=1")
        .says(says("copies-alone").at("upload_pageable").ns(16 * 8 * MS))
        .says(says("pageable-copies").at("upload_pageable").ns(16 * 8 * MS).words(&["from pageable memory", "pin"]));

    /// Copies of such memory beside the kernels: they cost no time of the GPU, but they are slow.
    pageable_copies_beside_kernels => Scenario::of(["20( kernel:work ) sync", "12( pageable:16000000 ) sync"])
        .sim("kernel_ns=20ms,copy_gbps=1")
        .says(says("pageable-copies").at("upload_pageable").ns(12 * 16 * MS))
        .unsteady();

    /// The host copies, and waits for it, before it launches.
    synchronous_copies => Scenario::of(["default kernel:work 12( put:8000000 kernel:work ) sync"])
        .sim("kernel_ns=40ms,copy_gbps=0.25")
        .says(says("copies-alone").at("put").ns(12 * 32 * MS))
        .says(says("pageable-copies").at("put").ns(12 * 32 * MS));

    /// The host fetches results, and waits for them, before it launches.
    synchronous_results => Scenario::of(["default 12( kernel:work get:8000000 ) sync"])
        .sim("kernel_ns=40ms,copy_gbps=0.25")
        .says(says("copies-alone").at("get").ns(12 * 32 * MS))
        .says(says("pageable-copies").at("get").ns(12 * 32 * MS).words(&["to pageable memory"]));

    /// Half of the copied memory is pinned, and the GPU sleeps most of the time: copies are not its problem.
    copies_that_do_not_matter => Scenario::of(["kernel:work sync 12( nap:40000 pageable:1000000 kernel:work sync )"])
        .sim("kernel_ns=2ms,copy_gbps=1")
        .options("--off-cpu")
        .says(super::says::idle("nap"))
        .never(&["pin"]);
}
