/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* All BPF programs of `warpscope record` and `warpscope trace`. */
#include "process.h"
#include "launch.h"
#include "handover.h"
#include "sample.h"
#include "call_probes.h"
#include "driver.h"
#include "hooks.h"
#include "points.h"
#include "hits.h"
#include "tensors.h"
#include "waits.h"
#include "threads.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";
