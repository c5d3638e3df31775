/* SPDX-License-Identifier: MIT */
/* Launches and CPU samples, and what links their threads: calls that hand work over, and threads that start others. */
#ifndef WARPSCOPE_SHARED_LAUNCHES_H
#define WARPSCOPE_SHARED_LAUNCHES_H

enum launch_work {
	WORK_NODE = 5, /* no launch: a graph node was created (wire::WORK_NODE) */
	WORK_REFUSAL = 0xff00, /* from here on: why the injected library does nothing (wire::Refusal) */
};

struct launch_record {
	__u32 type;
	__u32 image;
	__u64 session;
	__u64 stack;
	__u64 python; /* the Python part's id, 0 if there is none */
	__u64 python_hash; /* by which the thread can recognise it, or 0 */
	__u64 time;
	__u32 pid;
	__u32 tid;
	__u32 correlation;
	__u16 cpu; /* with flags: which parts of its stack the thread recognised */
	__u16 work;
	__u32 cause; /* the call that handed the work over, if this thread is one of the threads that do such work */
	__u32 previous; /* the thread's last launch that has returned, 0 for none */
	__u64 took; /* how long that one took */
};

/* In place of the id of a call that hands work over. */
enum handover_cause {
	CAUSE_NONE = 0,
	CAUSE_UNKNOWN = 0xffffffff, /* several are in progress */
};

/*
 * A call that hands work to other threads has begun. As RECORD_FORWARD: a part of its work has a cause of its own, with the stack
 * that made it; `cause` is the call. As RECORD_TASK: a call hands tasks to a thread pool, and returns before they have ended.
 */
struct handover_record {
	__u32 type;
	__u32 image;
	__u64 stack;
	__u64 python;
	__u64 time;
	__u32 pid;
	__u32 tid;
	__u32 id;
	__u32 cause; /* of the call itself */
};

/* What an instruction calls, in its probe's cookie: a register by its DWARF number, and in the upper half a distance from it. */
enum called {
	CALL_REGISTER = 0xf,
	CALL_MEMORY = 0x10, /* the function's address is in memory there */
	CALL_AT_ONCE = 0x20, /* the thread that hands a task over runs it itself */
};

/* A thread of a Python process was started. */
struct start_record {
	__u32 type;
	__u32 image;
	__u64 stack; /* of the thread that started it */
	__u64 python;
	__u64 time;
	__u32 tid;
	__u32 creator;
	__u32 cause; /* of the thread that started it */
	__u32 pad;
};

enum launch_cpu {
	LAUNCH_KNOWN = 0x8000,
	LAUNCH_PYTHON_KNOWN = 0x4000,
};

struct sample_record {
	__u32 type;
	__u32 image;
	__u64 stack;
	__u64 python; /* the Python part's id, 0 if there is none */
	__u64 time;
	__u32 pid;
	__u32 tid;
	__u32 cpu;
	__u32 cause; /* as in launch_record */
};

#endif
