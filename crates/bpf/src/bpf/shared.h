/* SPDX-License-Identifier: MIT */
/*
 * The contract between the BPF programs and the Rust side: records of the ring buffer, keys and values of maps, limits.
 *
 * The files in shared/ are the only definition. contract.bpf.c lists the types that Rust uses, and the build
 * generates Rust types from its BTF (src/contract.rs). So constants that Rust needs are enumerators, which are in BTF,
 * and not macros. Every record begins with its type.
 */
#ifndef WARPSCOPE_SHARED_H
#define WARPSCOPE_SHARED_H

/* Rust reads and writes these structures as plain bytes: none may have hidden padding. */
#pragma clang diagnostic push
#pragma clang diagnostic error "-Wpadded"

#include "shared/common.h"
#include "shared/processes.h"
#include "shared/stacks.h"
#include "shared/python.h"
#include "shared/launches.h"
#include "shared/calls.h"
#include "shared/sums.h"
#include "shared/hits.h"

#pragma clang diagnostic pop

#endif
