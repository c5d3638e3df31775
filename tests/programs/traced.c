/* Calls with known arguments and results on several threads, and the program's own account of them.
 *
 *   traced account FILE        four threads with a sequence each, runtime and driver API, some calls failing
 *   traced steps FILE STOP     a memset of 1 byte, of 2, of 3 ... until STOP exists, then 50 more; prints `ready` after the first
 *   traced family FILE STOP    the same, then a forked child makes one more call, and an exec'ed one runs `account FILE`
 * Each call is a line of JSON in FILE, as `warpscope trace` writes it. */
#include "account.h"

#include <pthread.h>
#include <sys/wait.h>
#include <time.h>

#include "cuda.h"

typedef unsigned long word;

static char first_stub, second_stub;
static char host[1 << 16];

static void register_kernels(void) {
    void **handle = __cudaRegisterFatBinary(NULL);
    __cudaRegisterFunction(handle, &first_stub, "first", "_Z5firstPfi", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFunction(handle, &second_stub, "second", "second", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFatBinaryEnd(handle);
}

#define DIMS(name) "\"" name "\":[%u,%u,%u]"

__attribute__((noinline)) static void launch(const void *stub, const char *name, dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
    CALLED(cudaLaunchKernel, cudaLaunchKernel(stub, grid, block, NULL, shared, stream),
           "\"kernel\":\"%s\"," DIMS("grid") "," DIMS("block") ",\"args\":\"0x0\",\"shared\":%zu," STREAM("stream"), name,
           grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, stream_text(stream));
}

__attribute__((noinline)) static void copy(void *dst, const void *src, size_t size, int kind) {
    static const char *const ways[] = {"HtoH", "HtoD", "DtoH", "DtoD", "Default"};
    CALLED(cudaMemcpy, cudaMemcpy(dst, src, size, kind),
           ADDRESS("dst") "," ADDRESS("src") ",\"size\":%zu,\"kind\":\"%s\"", (word)dst, (word)src, size, ways[kind]);
}

/* The runtime: memory, copies in all directions, memsets, launches of two kernels with different grids. */
__attribute__((noinline)) static void *use_runtime(void *unused) {
    void *a = NULL, *b = NULL, *pinned = NULL, *managed = NULL;
    int count = 0, device = -1;
    CALLED(cudaGetDeviceCount, cudaGetDeviceCount(&count), "\"count\":%d", count);
    CALLED(cudaSetDevice, cudaSetDevice(0), "\"device\":0");
    CALLED(cudaGetDevice, cudaGetDevice(&device), "\"device\":%d", device);
    CALLED(cudaMalloc, cudaMalloc(&a, 4096), ADDRESS("ptr") ",\"size\":4096", (word)a);
    CALLED(cudaMalloc, cudaMalloc(&b, 1 << 20), ADDRESS("ptr") ",\"size\":1048576", (word)b);
    CALLED(cudaMallocHost, cudaMallocHost(&pinned, 8192), ADDRESS("ptr") ",\"size\":8192", (word)pinned);
    CALLED(cudaMallocManaged, cudaMallocManaged(&managed, 12288, 1), ADDRESS("ptr") ",\"size\":12288,\"flags\":\"0x1\"",
           (word)managed);
    copy(a, host, 4096, cudaMemcpyHostToDevice);
    copy(b, a, 1000, cudaMemcpyDeviceToDevice);
    copy(host, b, 999, cudaMemcpyDeviceToHost);
    copy(host + 8192, host, 77, cudaMemcpyHostToHost);
    copy(a, pinned, 512, cudaMemcpyDefault);
    CALLED(cudaMemcpy2D, cudaMemcpy2D(b, 512, host, 256, 128, 8, cudaMemcpyHostToDevice),
           ADDRESS("dst") ",\"dst_pitch\":512," ADDRESS("src") ",\"src_pitch\":256,\"width\":128,\"height\":8,\"kind\":\"HtoD\"",
           (word)b, (word)host);
    CALLED(cudaMemset, cudaMemset(a, 7, 512), ADDRESS("ptr") ",\"value\":7,\"size\":512", (word)a);
    CALLED(cudaMemset, cudaMemset(b, -1, 3), ADDRESS("ptr") ",\"value\":-1,\"size\":3", (word)b);
    for (unsigned i = 1; i <= 20; i++) {
        launch(&first_stub, "first(float*, int)", (dim3){i, 2, 1}, (dim3){32 * i, 1, 1}, 0, NULL);
        launch(&second_stub, "second", (dim3){1, i, 3}, (dim3){8, 4, 2}, 16 * i, NULL);
    }
    cudaLaunchConfig_t config = {{5, 6, 7}, {16, 2, 1}, 48, NULL, NULL, 0};
    CALLED(cudaLaunchKernelExC, cudaLaunchKernelExC(&config, &second_stub, NULL),
           "\"grid\":[5,6,7],\"block\":[16,2,1],\"shared\":48,\"stream\":\"0\",\"kernel\":\"second\",\"args\":\"0x0\"");
    CALLED(cudaDeviceSynchronize, cudaDeviceSynchronize(), "%s", "");
    CALLED(cudaFreeHost, cudaFreeHost(pinned), ADDRESS("ptr"), (word)pinned);
    CALLED(cudaFree, cudaFree(managed), ADDRESS("ptr"), (word)managed);
    CALLED(cudaFree, cudaFree(b), ADDRESS("ptr"), (word)b);
    CALLED(cudaFree, cudaFree(a), ADDRESS("ptr"), (word)a);
    CALLED(cudaFree, cudaFree(NULL), "\"ptr\":\"0x0\"");
    return unused;
}

/* The driver: a module's function by handle, with eleven arguments, most of them on the stack. */
__attribute__((noinline)) static void *use_driver(void *unused) {
    CUcontext context = NULL, current = NULL;
    CUmodule module = NULL;
    CUfunction function = NULL;
    CUstream stream = NULL;
    CUevent event = NULL;
    CUdeviceptr memory = 0, other = 0;
    int count = 0, version = 0;
    CALLED(cuInit, cuInit(0), "\"flags\":\"0x0\"");
    CALLED(cuDriverGetVersion, cuDriverGetVersion(&version), "\"version\":%d", version);
    CALLED(cuDeviceGetCount, cuDeviceGetCount(&count), "\"count\":%d", count);
    CALLED(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain(&context, 0), ADDRESS("context") ",\"device\":0", (word)context);
    CALLED(cuCtxSetCurrent, cuCtxSetCurrent(context), ADDRESS("context"), (word)context);
    CALLED(cuCtxGetCurrent, cuCtxGetCurrent(&current), ADDRESS("context"), (word)current);
    CALLED(cuModuleLoadData, cuModuleLoadData(&module, "x"), ADDRESS("module") "," ADDRESS("image"), (word)module, (word) "x");
    CALLED(cuModuleGetFunction, cuModuleGetFunction(&function, module, "_Z5thirdv"),
           ADDRESS("kernel") "," ADDRESS("module") ",\"name\":\"_Z5thirdv\"", (word)function, (word)module);
    CALLED(cuStreamCreate, cuStreamCreate(&stream, 1), STREAM("stream") ",\"flags\":\"0x1\"", stream_text(stream));
    CALLED(cuMemAlloc_v2, cuMemAlloc_v2(&memory, 65536), ADDRESS("ptr") ",\"size\":65536", (word)memory);
    CALLED(cuMemAlloc_v2, cuMemAlloc_v2(&other, 65536), ADDRESS("ptr") ",\"size\":65536", (word)other);
    CALLED(cuMemcpyHtoD_v2, cuMemcpyHtoD_v2(memory, host, 1024), ADDRESS("dst") "," ADDRESS("src") ",\"size\":1024", (word)memory,
           (word)host);
    CALLED(cuMemcpyDtoD_v2, cuMemcpyDtoD_v2(other, memory, 1023), ADDRESS("dst") "," ADDRESS("src") ",\"size\":1023", (word)other,
           (word)memory);
    CALLED(cuMemcpyDtoH_v2, cuMemcpyDtoH_v2(host, other, 1022), ADDRESS("dst") "," ADDRESS("src") ",\"size\":1022", (word)host,
           (word)other);
    CALLED(cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2(memory, host, 2048, stream),
           ADDRESS("dst") "," ADDRESS("src") ",\"size\":2048," STREAM("stream"), (word)memory, (word)host, stream_text(stream));
    CALLED(cuMemsetD8Async, cuMemsetD8Async(memory, 200, 300, stream),
           ADDRESS("ptr") ",\"value\":200,\"count\":300," STREAM("stream"), (word)memory, stream_text(stream));
    for (unsigned i = 1; i <= 20; i++)
        CALLED(cuLaunchKernel, cuLaunchKernel(function, i, i + 1, i + 2, 32, i, 1, 64 * i, stream, NULL, NULL),
               "\"kernel\":\"third()\",\"grid\":[%u,%u,%u],\"block\":[32,%u,1],\"shared\":%u," STREAM("stream")
               ",\"params\":\"0x0\",\"extra\":\"0x0\"",
               i, i + 1, i + 2, i, 64 * i, stream_text(stream));
    CALLED(cuEventCreate, cuEventCreate(&event, 0), ADDRESS("event") ",\"flags\":\"0x0\"", (word)event);
    CALLED(cuEventRecord, cuEventRecord(event, stream), ADDRESS("event") "," STREAM("stream"), (word)event, stream_text(stream));
    CALLED(cuEventSynchronize, cuEventSynchronize(event), ADDRESS("event"), (word)event);
    CALLED(cuStreamSynchronize, cuStreamSynchronize(stream), STREAM("stream"), stream_text(stream));
    CALLED(cuCtxSynchronize, cuCtxSynchronize(), "%s", "");
    CALLED(cuEventDestroy_v2, cuEventDestroy_v2(event), ADDRESS("event"), (word)event);
    CALLED(cuStreamDestroy_v2, cuStreamDestroy_v2(stream), STREAM("stream"), stream_text(stream));
    CALLED(cuMemFree_v2, cuMemFree_v2(other), ADDRESS("ptr"), (word)other);
    CALLED(cuMemFree_v2, cuMemFree_v2(memory), ADDRESS("ptr"), (word)memory);
    return unused;
}

/* Streams, events, and a captured graph of one kernel, launched five times. */
__attribute__((noinline)) static void *use_streams(void *unused) {
    cudaStream_t one = NULL, two = NULL;
    cudaEvent_t begin = NULL, end = NULL;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    void *memory = NULL;
    float ms = -1;
    CALLED(cudaStreamCreate, cudaStreamCreate(&one), STREAM("stream"), stream_text(one));
    CALLED(cudaStreamCreate, cudaStreamCreate(&two), STREAM("stream"), stream_text(two));
    CALLED(cudaEventCreate, cudaEventCreate(&begin), ADDRESS("event"), (word)begin);
    CALLED(cudaEventCreate, cudaEventCreate(&end), ADDRESS("event"), (word)end);
    CALLED(cudaMallocAsync, cudaMallocAsync(&memory, 2048, one), ADDRESS("ptr") ",\"size\":2048," STREAM("stream"), (word)memory,
           stream_text(one));
    CALLED(cudaEventRecord, cudaEventRecord(begin, one), ADDRESS("event") "," STREAM("stream"), (word)begin, stream_text(one));
    CALLED(cudaMemcpyAsync, cudaMemcpyAsync(memory, host, 100, cudaMemcpyHostToDevice, one),
           ADDRESS("dst") "," ADDRESS("src") ",\"size\":100,\"kind\":\"HtoD\"," STREAM("stream"), (word)memory, (word)host,
           stream_text(one));
    CALLED(cudaMemsetAsync, cudaMemsetAsync(memory, 3, 200, one), ADDRESS("ptr") ",\"value\":3,\"size\":200," STREAM("stream"),
           (word)memory, stream_text(one));
    launch(&first_stub, "first(float*, int)", (dim3){9, 1, 1}, (dim3){64, 1, 1}, 128, two);
    CALLED(cudaEventRecord, cudaEventRecord(end, one), ADDRESS("event") "," STREAM("stream"), (word)end, stream_text(one));
    CALLED(cudaStreamWaitEvent, cudaStreamWaitEvent(two, end, 0), STREAM("stream") "," ADDRESS("event") ",\"flags\":\"0x0\"",
           stream_text(two), (word)end);
    CALLED(cudaEventSynchronize, cudaEventSynchronize(end), ADDRESS("event"), (word)end);
    CALLED(cudaEventElapsedTime, cudaEventElapsedTime(&ms, begin, end), "\"ms\":%.9g," ADDRESS("start") "," ADDRESS("end"), ms,
           (word)begin, (word)end);
    CALLED(cudaStreamSynchronize, cudaStreamSynchronize(two), STREAM("stream"), stream_text(two));
    CALLED(cudaStreamBeginCapture, cudaStreamBeginCapture(one, 0), STREAM("stream") ",\"mode\":0", stream_text(one));
    launch(&second_stub, "second", (dim3){2, 2, 2}, (dim3){8, 8, 1}, 0, one);
    CALLED(cudaStreamEndCapture, cudaStreamEndCapture(one, &graph), STREAM("stream") "," ADDRESS("graph"), stream_text(one),
           (word)graph);
    CALLED(cudaGraphInstantiateWithFlags, cudaGraphInstantiateWithFlags(&exec, graph, 0),
           ADDRESS("exec") "," ADDRESS("graph") ",\"flags\":\"0x0\"", (word)exec, (word)graph);
    for (int i = 0; i < 5; i++)
        CALLED(cudaGraphLaunch, cudaGraphLaunch(exec, two), ADDRESS("exec") "," STREAM("stream"), (word)exec, stream_text(two));
    CALLED(cudaStreamSynchronize, cudaStreamSynchronize(two), STREAM("stream"), stream_text(two));
    CALLED(cudaGraphExecDestroy, cudaGraphExecDestroy(exec), ADDRESS("exec"), (word)exec);
    CALLED(cudaGraphDestroy, cudaGraphDestroy(graph), ADDRESS("graph"), (word)graph);
    CALLED(cudaFreeAsync, cudaFreeAsync(memory, one), ADDRESS("ptr") "," STREAM("stream"), (word)memory, stream_text(one));
    CALLED(cudaStreamSynchronize, cudaStreamSynchronize(one), STREAM("stream"), stream_text(one));
    CALLED(cudaEventDestroy, cudaEventDestroy(begin), ADDRESS("event"), (word)begin);
    CALLED(cudaEventDestroy, cudaEventDestroy(end), ADDRESS("event"), (word)end);
    CALLED(cudaStreamDestroy, cudaStreamDestroy(one), STREAM("stream"), stream_text(one));
    CALLED(cudaStreamDestroy, cudaStreamDestroy(two), STREAM("stream"), stream_text(two));
    return unused;
}

/* Calls that fail, in the runtime itself and in the driver below it. The outputs of a failed call are ignored. */
__attribute__((noinline)) static void *fail(void *unused) {
    static char unknown;
    void *none;
    CUdeviceptr memory;
    CALLED(cudaSetDevice, cudaSetDevice(99), "\"device\":99");
    for (int i = 0; i < 10; i++) CALLED(cudaMalloc, cudaMalloc(&none, (size_t)1 << 50), "\"size\":1125899906842624");
    CALLED(cudaPeekAtLastError, cudaPeekAtLastError(), "%s", "");
    CALLED(cudaGetLastError, cudaGetLastError(), "%s", "");
    CALLED(cudaGetLastError, cudaGetLastError(), "%s", "");
    CALLED(cuMemAlloc_v2, cuMemAlloc_v2(&memory, (size_t)1 << 51), "\"size\":2251799813685248");
    CALLED(cudaFree, cudaFree((void *)0x1234), "\"ptr\":\"0x1234\"");
    CALLED(cudaLaunchKernel, cudaLaunchKernel(&unknown, (dim3){1, 1, 1}, (dim3){1, 1, 1}, NULL, 0, NULL),
           ADDRESS("kernel") ",\"grid\":[1,1,1],\"block\":[1,1,1],\"args\":\"0x0\",\"shared\":0,\"stream\":\"0\"", (word)&unknown);
    const char *name = cudaGetErrorName(2);
    char result[32];
    snprintf(result, sizeof result, "\"%p\"", name);
    account("cudaGetErrorName", result, "\"error\":2");
    return unused;
}

__attribute__((noinline)) static void make_account(void) {
    void *(*const sequences[])(void *) = {use_driver, use_streams, fail};
    pthread_t threads[3];
    register_kernels();
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, sequences[i], NULL);
    use_runtime(NULL);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
}

static void *stepped;

static void step(size_t size) {
    CALLED(cudaMemset, cudaMemset(stepped, 1, size), ADDRESS("ptr") ",\"value\":1,\"size\":%zu", (word)stepped, size);
}

static void take_steps(const char *stop) {
    size_t size = 0;
    CALLED(cudaMalloc, cudaMalloc(&stepped, 1 << 24), ADDRESS("ptr") ",\"size\":16777216", (word)stepped);
    while (access(stop, F_OK)) {
        step(++size);
        if (size == 1) puts("ready"), fflush(stdout);
        nanosleep(&(struct timespec){0, 100000}, NULL);
    }
    for (int i = 0; i < 50; i++) step(++size);
}

static int have_children(char *self, char *file) {
    int status, failed = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        step(12345);
        _exit(0);
    }
    failed |= waitpid(child, &status, 0) != child || status != 0;
    child = fork();
    if (child == 0) {
        execl(self, self, "account", file, NULL);
        _exit(2);
    }
    return failed | (waitpid(child, &status, 0) != child || status != 0);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    account_to(argv[2]);
    if (!strcmp(argv[1], "account")) {
        make_account();
        return 0;
    }
    if (argc < 4) return 2;
    take_steps(argv[3]);
    return !strcmp(argv[1], "family") ? have_children(argv[0], argv[2]) : 0;
}
