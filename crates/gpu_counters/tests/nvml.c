// A libnvidia-ml.so with known values. The structures are written independently, from nvml.h's documentation, so that a
// wrong layout in Rust is detected. -DLOSE=N loses GPU 0 after N readings of memory, -DINIT=N fails nvmlInit, -DOLD
// omits what old drivers lack.
#include <stdlib.h>
#include <string.h>

#ifndef LOSE
#define LOSE 1000000000
#endif
#ifndef INIT
#define INIT 0
#endif

typedef unsigned int u32;
typedef unsigned long long u64;

static int readings, events = 3, gpm_samples, shutdowns;
static int gpus[2];

static int lost(void *device)
{
	return device == &gpus[0] && readings > LOSE;
}

int nvmlInit_v2(void) { return INIT; }
int nvmlShutdown(void) { shutdowns++; return 0; }
int nvmlDeviceGetCount_v2(u32 *count) { *count = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(u32 index, void **device)
{
	if (index == 1)
		return 15;
	*device = &gpus[index / 2];
	return 0;
}
int nvmlDeviceGetUUID(void *device, char *text, u32 length)
{
	(void)length;
	strcpy(text, device == &gpus[0] ? "GPU-0" : "GPU-2");
	return 0;
}
// Fills the whole buffer, without a terminating 0.
int nvmlDeviceGetName(void *device, char *text, u32 length)
{
	if (device == &gpus[0])
		strcpy(text, "NVIDIA H200");
	else
		memset(text, '\xff', length);
	return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, struct { u64 total, free, used; } *memory)
{
	readings += device == &gpus[0];
	if (lost(device))
		return 15;
	memory->total = 150754820096ull;
	memory->free = 1;
	memory->used = 12884901888ull;
	return 0;
}
int nvmlDeviceGetUtilizationRates(void *device, struct { u32 gpu, memory; } *rates)
{
	if (lost(device))
		return 15;
	rates->gpu = 93;
	rates->memory = 41;
	return 0;
}
int nvmlDeviceGetPowerUsage(void *device, u32 *milliwatts) { *milliwatts = 412500; return lost(device) ? 15 : 0; }
int nvmlDeviceGetTemperature(void *device, u32 sensor, u32 *degrees) { *degrees = 61; return sensor ? 2 : lost(device) ? 15 : 0; }
int nvmlDeviceGetClockInfo(void *device, u32 which, u32 *mhz)
{
	*mhz = which == 1 ? 1980 : which == 2 ? 3201 : 0;
	return lost(device) ? 15 : 0;
}
int nvmlDeviceGetTotalEccErrors(void *device, u32 kind, u32 counter, u64 *count)
{
	if (device != &gpus[0])
		return 3;
	*count = counter == 0 ? 10 + kind : 99;
	return 0;
}
int nvmlDeviceGetPcieThroughput(void *device, u32 which, u32 *kilobytes)
{
	*kilobytes = which == 0 ? 20 : 1700;
	return lost(device) ? 15 : 0;
}
struct process { u32 pid; u64 used; u32 gpu_instance, compute_instance; };
static int processes(void *device, u32 *count, struct process *infos)
{
	u32 room = *count;
	*count = device == &gpus[0] ? 100 : 3;
	if (room < *count)
		return 7;
	for (u32 i = 0; i < *count; i++) {
		infos[i].pid = device == &gpus[0] ? 1000 + i : 7;
		infos[i].used = i == 1 ? ~0ull : 4096ull * (i + 1);
		infos[i].gpu_instance = infos[i].compute_instance = 0xffffffff;
	}
	return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v2(void *device, u32 *count, struct process *infos) { return processes(device, count, infos); }

#ifndef OLD
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, u32 *count, struct process *infos) { return processes(device, count, infos); }
int nvmlDeviceGetEnforcedPowerLimit(void *device, u32 *milliwatts) { (void)device; *milliwatts = 700000; return 0; }
int nvmlDeviceGetTotalEnergyConsumption(void *device, u64 *millijoules) { (void)device; *millijoules = 1500000500ull; return 0; }

struct field { u32 id, scope; long long timestamp, latency; u32 type; int result; union { double d; u64 u; } value; };
int nvmlDeviceGetFieldValues(void *device, int count, struct field *fields)
{
	for (int i = 0; i < count; i++) {
		fields[i].type = 3;
		fields[i].result = device == &gpus[0] && fields[i].scope == 0xffffffff ? 0 : 3;
		fields[i].value.u = fields[i].id == 138 ? 1000 : fields[i].id == 139 ? 2000 : 0;
	}
	return 0;
}

int nvmlEventSetCreate(void **set) { *set = &events; return 0; }
int nvmlDeviceRegisterEvents(void *device, u64 types, void *set) { return set == &events && types == 8 && device == &gpus[0] ? 0 : 3; }
int nvmlEventSetFree(void *set) { return set != &events; }
int nvmlEventSetWait_v2(void *set, struct { void *device; u64 type, data; u32 gi, ci; } *event, u32 timeout)
{
	if (set != &events || timeout != 0 || events == 0)
		return 10;
	event->device = &gpus[0];
	event->type = 8;
	event->data = events-- == 1 ? 79 : 31;
	event->gi = event->ci = 0xffffffff;
	return 0;
}

int nvmlGpmQueryDeviceSupport(void *device, struct { u32 version, supported; } *support)
{
	support->supported = support->version == 1 && device == &gpus[0];
	return 0;
}
int nvmlGpmSampleAlloc(void **sample) { *sample = calloc(1, sizeof(int)); gpm_samples++; return 0; }
int nvmlGpmSampleFree(void *sample) { free(sample); gpm_samples--; return 0; }
int nvmlGpmSampleGet(void *device, void *sample) { static int number; *(int *)sample = ++number; return device != &gpus[0]; }
struct metric { u32 id; int result; double value; char *names[3]; };
int nvmlGpmMetricsGet(struct { u32 version, count; int *first, *second; struct metric metrics[98]; } *get)
{
	// The samples are in order, and the later one is the second.
	if (get->version != 1 || *get->second != *get->first + 1)
		return 2;
	for (u32 i = 0; i < get->count; i++) {
		struct metric *metric = &get->metrics[i];
		metric->result = metric->id == 11 ? 3 : 0;
		metric->value = metric->id == 12 ? __builtin_nan("") : metric->id == 20 ? 2 : metric->id == 21 ? 3 : metric->id * 5.0;
	}
	return 0;
}
#endif

// The samples that were not freed, and the number of shutdowns.
int fakeLeft(void) { return gpm_samples * 100 + shutdowns; }
