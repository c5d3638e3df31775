/* SPDX-License-Identifier: MIT */
/*
 * The types of shared.h and walk_types.h that the Rust side uses. This object is never loaded: the build
 * generates Rust types from its BTF, which has the type of every variable.
 */
#include "vmlinux.h"
#include "shared.h"
#include "walk_types.h"

#define SHARED_STRUCT(name) struct name name##_type
#define SHARED_ENUM(name) enum name name##_type

/* Records of the ring buffers. */
SHARED_ENUM(record_type);
SHARED_STRUCT(stack_record);
SHARED_STRUCT(raw_stack_record);
SHARED_STRUCT(python_stack_record);
SHARED_STRUCT(python_code_record);
SHARED_STRUCT(launch_record);
SHARED_STRUCT(memo_record);
SHARED_STRUCT(handover_record);
SHARED_STRUCT(start_record);
SHARED_STRUCT(deep_memo_record);
SHARED_STRUCT(sample_record);
SHARED_STRUCT(call_record);
SHARED_STRUCT(syscall_record);
SHARED_STRUCT(switch_record);
SHARED_STRUCT(point_record);
SHARED_STRUCT(hit_record);
SHARED_STRUCT(wait_record);
SHARED_STRUCT(tensor_record);
SHARED_STRUCT(process_record);
SHARED_STRUCT(thread_record);
SHARED_STRUCT(exit_record);
SHARED_STRUCT(thread_state);

/* Keys and values of maps. */
SHARED_STRUCT(cost);
SHARED_STRUCT(image);
SHARED_STRUCT(handed);
SHARED_STRUCT(mapping);
SHARED_STRUCT(range);
SHARED_STRUCT(unwind_row);
SHARED_STRUCT(python_process);
SHARED_STRUCT(python_program_key);
SHARED_STRUCT(python_program);
SHARED_STRUCT(function);
SHARED_STRUCT(hit_point);
SHARED_STRUCT(tensor_point);
SHARED_STRUCT(sum_key);
SHARED_STRUCT(sum);
SHARED_STRUCT(error_key);
SHARED_STRUCT(allocation_key);
SHARED_STRUCT(allocation);
SHARED_STRUCT(site);
SHARED_STRUCT(context_key);
SHARED_STRUCT(memory_key);
SHARED_STRUCT(memory_sum);
SHARED_STRUCT(kernel_key);
SHARED_STRUCT(kernel_sum);

/* Constants. */
SHARED_ENUM(limit);
SHARED_ENUM(hit_limit);
SHARED_ENUM(loss);
SHARED_ENUM(cost_program);
SHARED_ENUM(process_origin);
SHARED_ENUM(no_shard);
SHARED_ENUM(launch_work);
SHARED_ENUM(launch_cpu);
SHARED_ENUM(handover_cause);
SHARED_ENUM(called);
SHARED_ENUM(call_flag);
SHARED_ENUM(sum_flag);
SHARED_ENUM(function_dims);
SHARED_ENUM(function_memory);
SHARED_ENUM(python_kind);
SHARED_ENUM(python_frame_flag);
SHARED_ENUM(python_stack_flag);
SHARED_ENUM(hit_source);
SHARED_ENUM(hit_register);
SHARED_ENUM(wait_reason);
SHARED_ENUM(tensor_what);
SHARED_ENUM(walk_result);
