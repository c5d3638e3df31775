// Eight threads that launch from many call paths each: a random tree of functions, so that caches and branch predictors see a
// large program. Prints `us_per_step X launches_per_step N`; a step is one launch of every thread.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#ifdef WARPSCOPE_SIMULATOR
#include "paths_sim.h"
#else
#include <cuda_runtime.h>
__global__ void nothing(int) {}
static void launch(cudaStream_t stream) { nothing<<<1, 32, 0, stream>>>(0); }
#endif

constexpr int kDepth = 6;

// Each instance is a separate function with a different frame size: 4^kDepth paths to a launch.
template <int Depth, int Branch>
__attribute__((noinline)) void descend(cudaStream_t stream, unsigned path) {
    volatile char frame[64 + 48 * Branch + 16 * Depth];
    frame[path % sizeof(frame)] = 1;
    if constexpr (Depth == 0) {
        launch(stream);
    } else {
        switch (path & 3) {
        case 0: descend<Depth - 1, 0>(stream, path >> 2); break;
        case 1: descend<Depth - 1, 1>(stream, path >> 2); break;
        case 2: descend<Depth - 1, 2>(stream, path >> 2); break;
        default: descend<Depth - 1, 3>(stream, path >> 2); break;
        }
    }
    frame[0] = frame[path % sizeof(frame)];
}

// As many paths as a training step has, repeated in the same order.
static void work(int launches, int paths, unsigned seed) {
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    std::vector<unsigned> order(paths);
    for (unsigned &path : order)
        path = (seed = seed * 1664525u + 1013904223u) >> 8;
    for (int i = 0; i < launches; i++) {
        descend<kDepth, 0>(stream, order[i % paths]);
        if (i % 256 == 255)
            cudaStreamSynchronize(stream);
    }
    cudaStreamSynchronize(stream);
}

int main(int count, char **arguments) {
    int launches = count > 1 ? atoi(arguments[1]) : 40000, threads = count > 2 ? atoi(arguments[2]) : 8;
    int paths = count > 3 ? atoi(arguments[3]) : 200;
    auto run = [&](int each) {
        std::vector<std::thread> all;
        for (int i = 0; i < threads; i++)
            all.emplace_back(work, each, paths, i + 1);
        for (std::thread &thread : all)
            thread.join();
    };
    run(paths);
    auto begin = std::chrono::steady_clock::now();
    run(launches);
    std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
    printf("us_per_step %.3f launches_per_step %d\n", time.count() / launches, threads);
}
