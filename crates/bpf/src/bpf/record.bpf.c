/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Everything that `warpscope record` puts into the kernel. */
#include "process.h"
#include "launch.h"
#include "sample.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";
