// The bundled workload: imitates LLM inference on the CUDA runtime API, for `warpscope demo`.
//
//   workload [SECONDS] [TOKENS]      runs for this many seconds (3) or tokens (no limit)
//
// There is no model and no arithmetic on the GPU: kernels are simulated, and their grid determines their duration. The
// structure is realistic: a server receives prompts, tokenizes them on the CPU, runs layers of kernels for each token,
// copies logits back and samples on the CPU, while a second thread prefetches weights on its own stream. Kernels have
// host functions and device stubs like those emitted by nvcc. No C++ library is used, so that the program runs
// anywhere.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <pthread.h>

#define NOINLINE __attribute__((noinline))

struct dim3 {
    unsigned x, y, z;
};
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef int cudaError_t;
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 };

extern "C" {
void **__cudaRegisterFatBinary(void *);
void __cudaRegisterFatBinaryEnd(void **);
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, cudaStream_t);
cudaError_t __cudaPopCallConfiguration(dim3 *, dim3 *, size_t *, void *);
cudaError_t cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, cudaStream_t);
cudaError_t cudaMalloc(void **, size_t);
cudaError_t cudaMallocHost(void **, size_t);
cudaError_t cudaFree(void *);
cudaError_t cudaFreeHost(void *);
cudaError_t cudaMemcpyAsync(void *, const void *, size_t, cudaMemcpyKind, cudaStream_t);
cudaError_t cudaMemsetAsync(void *, int, size_t, cudaStream_t);
cudaError_t cudaStreamCreate(cudaStream_t *);
cudaError_t cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned);
cudaError_t cudaEventCreate(cudaEvent_t *);
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t);
cudaError_t cudaDeviceSynchronize();
const char *cudaGetErrorString(cudaError_t);
}

static void check(cudaError_t error, const char *what) {
    if (error == 0) return;
    fprintf(stderr, "workload: %s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}
#define CHECK(call) check((call), #call)

// Kernels, as emitted by nvcc: `kernel<<<...>>>(...)` pushes a configuration and calls the host function, which calls
// the device stub, which pops the configuration and launches by the host function's address.

namespace llm {
template <int TileM, int TileN> void gemm(const float *a, const float *b, float *c, int m, int n, int k);
template <> void gemm<128, 64>(const float *a, const float *b, float *c, int m, int n, int k);
template <> void gemm<256, 128>(const float *a, const float *b, float *c, int m, int n, int k);
void embedding_lookup(const int *tokens, const float *table, float *out, int width);
void rms_norm(const float *in, const float *weight, float *out, int width, float epsilon);
void rope(float *q, float *k, int heads, int position);
void attention_scores(const float *q, const float *cache, float *scores, int heads, int length);
void softmax(float *scores, int heads, int length);
void attention_values(const float *scores, const float *cache, float *out, int heads, int length);
void silu_multiply(const float *gate, const float *up, float *out, int width);
void add_residual(float *x, const float *delta, int width);
} // namespace llm

[[gnu::always_inline]] static inline void launch_stub(const void *host, void **arguments) {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
    if (__cudaPopCallConfiguration(&grid, &block, &shared, &stream)) return;
    CHECK(cudaLaunchKernel(host, grid, block, arguments, shared, stream));
}

#define STUB(mangled, host, parameters, ...)                                        \
    NOINLINE static void __device_stub_##mangled parameters {                       \
        void *arguments[] = {__VA_ARGS__};                                          \
        launch_stub(reinterpret_cast<const void *>(static_cast<void(*) parameters>(host)), arguments); \
    }

#define GEMM_PARAMETERS (const float *a, const float *b, float *c, int m, int n, int k)
STUB(_ZN3llm4gemmILi128ELi64EEEvPKfS2_Pfiii, (llm::gemm<128, 64>), GEMM_PARAMETERS, &a, &b, &c, &m, &n, &k)
STUB(_ZN3llm4gemmILi256ELi128EEEvPKfS2_Pfiii, (llm::gemm<256, 128>), GEMM_PARAMETERS, &a, &b, &c, &m, &n, &k)
STUB(_ZN3llm16embedding_lookupEPKiPKfPfi, llm::embedding_lookup,
     (const int *tokens, const float *table, float *out, int width), &tokens, &table, &out, &width)
STUB(_ZN3llm8rms_normEPKfS1_Pfif, llm::rms_norm,
     (const float *in, const float *weight, float *out, int width, float epsilon), &in, &weight, &out, &width, &epsilon)
STUB(_ZN3llm4ropeEPfS0_ii, llm::rope, (float *q, float *k, int heads, int position), &q, &k, &heads, &position)
STUB(_ZN3llm16attention_scoresEPKfS1_Pfii, llm::attention_scores,
     (const float *q, const float *cache, float *scores, int heads, int length), &q, &cache, &scores, &heads, &length)
STUB(_ZN3llm7softmaxEPfii, llm::softmax, (float *scores, int heads, int length), &scores, &heads, &length)
STUB(_ZN3llm16attention_valuesEPKfS1_Pfii, llm::attention_values,
     (const float *scores, const float *cache, float *out, int heads, int length), &scores, &cache, &out, &heads, &length)
STUB(_ZN3llm13silu_multiplyEPKfS1_Pfi, llm::silu_multiply,
     (const float *gate, const float *up, float *out, int width), &gate, &up, &out, &width)
STUB(_ZN3llm12add_residualEPfPKfi, llm::add_residual, (float *x, const float *delta, int width), &x, &delta, &width)

namespace llm {
template <> NOINLINE void gemm<128, 64> GEMM_PARAMETERS {
    __device_stub__ZN3llm4gemmILi128ELi64EEEvPKfS2_Pfiii(a, b, c, m, n, k);
}
template <> NOINLINE void gemm<256, 128> GEMM_PARAMETERS {
    __device_stub__ZN3llm4gemmILi256ELi128EEEvPKfS2_Pfiii(a, b, c, m, n, k);
}
NOINLINE void embedding_lookup(const int *tokens, const float *table, float *out, int width) {
    __device_stub__ZN3llm16embedding_lookupEPKiPKfPfi(tokens, table, out, width);
}
NOINLINE void rms_norm(const float *in, const float *weight, float *out, int width, float epsilon) {
    __device_stub__ZN3llm8rms_normEPKfS1_Pfif(in, weight, out, width, epsilon);
}
NOINLINE void rope(float *q, float *k, int heads, int position) {
    __device_stub__ZN3llm4ropeEPfS0_ii(q, k, heads, position);
}
NOINLINE void attention_scores(const float *q, const float *cache, float *scores, int heads, int length) {
    __device_stub__ZN3llm16attention_scoresEPKfS1_Pfii(q, cache, scores, heads, length);
}
NOINLINE void softmax(float *scores, int heads, int length) {
    __device_stub__ZN3llm7softmaxEPfii(scores, heads, length);
}
NOINLINE void attention_values(const float *scores, const float *cache, float *out, int heads, int length) {
    __device_stub__ZN3llm16attention_valuesEPKfS1_Pfii(scores, cache, out, heads, length);
}
NOINLINE void silu_multiply(const float *gate, const float *up, float *out, int width) {
    __device_stub__ZN3llm13silu_multiplyEPKfS1_Pfi(gate, up, out, width);
}
NOINLINE void add_residual(float *x, const float *delta, int width) {
    __device_stub__ZN3llm12add_residualEPfPKfi(x, delta, width);
}
} // namespace llm

#define REGISTER(handle, mangled, host)                                                                      \
    __cudaRegisterFunction(handle, reinterpret_cast<const char *>(host), const_cast<char *>(#mangled), #mangled, -1, \
                           nullptr, nullptr, nullptr, nullptr, nullptr)

__attribute__((constructor)) static void __sti____cudaRegisterAll() {
    static int fat_binary;
    void **handle = __cudaRegisterFatBinary(&fat_binary);
    REGISTER(handle, _ZN3llm4gemmILi128ELi64EEEvPKfS2_Pfiii, (&llm::gemm<128, 64>));
    REGISTER(handle, _ZN3llm4gemmILi256ELi128EEEvPKfS2_Pfiii, (&llm::gemm<256, 128>));
    REGISTER(handle, _ZN3llm16embedding_lookupEPKiPKfPfi, &llm::embedding_lookup);
    REGISTER(handle, _ZN3llm8rms_normEPKfS1_Pfif, &llm::rms_norm);
    REGISTER(handle, _ZN3llm4ropeEPfS0_ii, &llm::rope);
    REGISTER(handle, _ZN3llm16attention_scoresEPKfS1_Pfii, &llm::attention_scores);
    REGISTER(handle, _ZN3llm7softmaxEPfii, &llm::softmax);
    REGISTER(handle, _ZN3llm16attention_valuesEPKfS1_Pfii, &llm::attention_values);
    REGISTER(handle, _ZN3llm13silu_multiplyEPKfS1_Pfi, &llm::silu_multiply);
    REGISTER(handle, _ZN3llm12add_residualEPfPKfi, &llm::add_residual);
    __cudaRegisterFatBinaryEnd(handle);
}

// kernel<<<blocks, 256, 0, stream>>>(...)
#define LAUNCH(blocks, stream, call) \
    (__cudaPushCallConfiguration(dim3{unsigned(blocks), 1, 1}, dim3{256, 1, 1}, 0, stream) ? void(0) : (call))

static double seconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
}

namespace llm {

constexpr int Layers = 10, Width = 4096, Heads = 32, Vocabulary = 250 * 1024, Longest = 64;

/// Memory on the device; its contents are never read.
struct DeviceBuffers {
    float *x, *normed, *q, *k, *scores, *attention, *gate, *up, *logits, *cache, *weights[2];
    int *tokens;

    DeviceBuffers() {
        float **all[] = {&x, &normed, &q, &k, &scores, &attention, &gate, &up, &logits, &cache, &weights[0], &weights[1]};
        for (float **buffer : all) CHECK(cudaMalloc(reinterpret_cast<void **>(buffer), 4 << 20));
        CHECK(cudaMalloc(reinterpret_cast<void **>(&tokens), Longest * sizeof(int)));
    }
    ~DeviceBuffers() {
        float *all[] = {x, normed, q, k, scores, attention, gate, up, logits, cache, weights[0], weights[1]};
        for (float *buffer : all) cudaFree(buffer);
        cudaFree(tokens);
    }
};

class Layer {
  public:
    NOINLINE void forward(DeviceBuffers &d, cudaStream_t stream, int position) const {
        attention(d, stream, position);
        feed_forward(d, stream);
    }

  private:
    NOINLINE void attention(DeviceBuffers &d, cudaStream_t stream, int position) const {
        LAUNCH(2048, stream, rms_norm(d.x, d.weights[0], d.normed, Width, 1e-5f));
        LAUNCH(16384, stream, (gemm<128, 64>(d.normed, d.weights[0], d.q, 1, 3 * Width, Width)));
        LAUNCH(1024, stream, rope(d.q, d.k, Heads, position));
        LAUNCH(20000 + 200 * position, stream, attention_scores(d.q, d.cache, d.scores, Heads, position));
        LAUNCH(4096, stream, softmax(d.scores, Heads, position));
        LAUNCH(16384, stream, attention_values(d.scores, d.cache, d.attention, Heads, position));
        LAUNCH(8192, stream, (gemm<128, 64>(d.attention, d.weights[0], d.normed, 1, Width, Width)));
        LAUNCH(1024, stream, add_residual(d.x, d.normed, Width));
    }

    NOINLINE void feed_forward(DeviceBuffers &d, cudaStream_t stream) const {
        LAUNCH(2048, stream, rms_norm(d.x, d.weights[1], d.normed, Width, 1e-5f));
        LAUNCH(28000, stream, (gemm<256, 128>(d.normed, d.weights[1], d.gate, 1, 4 * Width, Width)));
        LAUNCH(28000, stream, (gemm<256, 128>(d.normed, d.weights[1], d.up, 1, 4 * Width, Width)));
        LAUNCH(4096, stream, silu_multiply(d.gate, d.up, d.gate, 4 * Width));
        LAUNCH(28000, stream, (gemm<256, 128>(d.gate, d.weights[1], d.normed, 1, Width, 4 * Width)));
        LAUNCH(1024, stream, add_residual(d.x, d.normed, Width));
    }
};

class Model {
  public:
    NOINLINE void forward(DeviceBuffers &d, cudaStream_t stream, const int *token, int position) {
        embed(d, stream, token);
        for (const Layer &layer : layers) layer.forward(d, stream, position);
        project(d, stream);
    }

  private:
    NOINLINE void embed(DeviceBuffers &d, cudaStream_t stream, const int *token) {
        CHECK(cudaMemcpyAsync(d.tokens, token, sizeof *token, cudaMemcpyHostToDevice, stream));
        LAUNCH(512, stream, embedding_lookup(d.tokens, d.weights[0], d.x, Width));
    }
    NOINLINE void project(DeviceBuffers &d, cudaStream_t stream) {
        LAUNCH(2048, stream, rms_norm(d.x, d.weights[0], d.normed, Width, 1e-5f));
        LAUNCH(60000, stream, (gemm<256, 128>(d.normed, d.weights[0], d.logits, 1, Vocabulary, Width)));
    }
    Layer layers[Layers];
};

/// Splits text into tokens by repeated merging, with far more work than such short text needs.
class Tokenizer {
  public:
    NOINLINE int encode(const char *text, int *tokens) const {
        int count = 0;
        for (const char *at = text; *at && count < Longest; count++) {
            const char *end = at + strcspn(at, " ");
            tokens[count] = int(merge(at, end) % Vocabulary);
            at = *end ? end + 1 : end;
        }
        return count;
    }

  private:
    NOINLINE static uint64_t merge(const char *begin, const char *end) {
        uint64_t best = 0;
        for (int rank = 0; rank < 20000; rank++) {
            uint64_t hash = 1469598103934665603u + uint64_t(rank);
            for (const char *at = begin; at < end; at++) hash = (hash ^ uint64_t(*at)) * 1099511628211u;
            if (hash > best) best = hash;
        }
        return best;
    }
};

/// Selects a token from logits: penalties, softmax, the best few, one of those at random.
class Sampler {
  public:
    NOINLINE int sample(float *logits, uint64_t position) {
        disturb(logits, position);
        const float total = normalize(logits);
        int best[Best];
        select_top(logits, best);
        state = state * 6364136223846793005u + 1442695040888963407u;
        const float threshold = total * float(state >> 40) / float(1 << 24);
        float sum = 0;
        for (int candidate : best)
            if ((sum += logits[candidate]) >= threshold) return candidate;
        return best[state % Best];
    }

  private:
    static constexpr int Best = 40;
    uint64_t state = 20240601;

    /// The simulated GPU computes nothing, so the logits are generated here.
    NOINLINE static void disturb(float *logits, uint64_t position) {
        uint64_t noise = position * 0x9e3779b97f4a7c15u + 1;
        for (int i = 0; i < Vocabulary; i++) {
            noise ^= noise << 13, noise ^= noise >> 7, noise ^= noise << 17;
            logits[i] = float(noise >> 40) / float(1 << 22);
        }
    }
    NOINLINE static float normalize(float *logits) {
        float largest = logits[0], total = 0;
        for (int i = 1; i < Vocabulary; i++) largest = logits[i] > largest ? logits[i] : largest;
        for (int i = 0; i < Vocabulary; i++) total += logits[i] = std::exp((logits[i] - largest) / 0.8f);
        return total;
    }
    NOINLINE static void select_top(const float *probability, int *best) {
        int count = 0;
        for (int i = 0; i < Vocabulary; i++) {
            if (count == Best && probability[i] <= probability[best[Best - 1]]) continue;
            int at = count < Best ? count++ : Best - 1;
            for (; at > 0 && probability[best[at - 1]] < probability[i]; at--) best[at] = best[at - 1];
            best[at] = i;
        }
    }
};

/// Copies the next layer's weights while the current one runs, on its own thread and stream.
class Prefetcher {
  public:
    explicit Prefetcher(DeviceBuffers &buffers) : device(buffers) {
        CHECK(cudaStreamCreate(&stream));
        CHECK(cudaMallocHost(&staging, Chunk));
        pthread_create(&thread, nullptr, run, this);
    }
    ~Prefetcher() {
        __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
        pthread_join(thread, nullptr);
        cudaFreeHost(staging);
    }

  private:
    static constexpr size_t Chunk = 768 << 10;

    static void *run(void *self) {
        static_cast<Prefetcher *>(self)->loop();
        return nullptr;
    }
    NOINLINE void loop() {
        for (unsigned n = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); n++) {
            load_chunk(n);
            CHECK(cudaStreamSynchronize(stream));
            timespec pause = {0, 4000000};
            nanosleep(&pause, nullptr);
        }
    }
    NOINLINE void load_chunk(unsigned n) {
        for (size_t i = 0; i < Chunk; i += 64) static_cast<char *>(staging)[i] = char(n + i);
        CHECK(cudaMemcpyAsync(device.weights[n % 2], staging, Chunk, cudaMemcpyHostToDevice, stream));
    }

    DeviceBuffers &device;
    cudaStream_t stream;
    void *staging;
    bool stop = false;
    pthread_t thread;
};

class Server {
  public:
    Server(double end, long most) : deadline(end), tokens_left(most), prefetcher(device) {
        CHECK(cudaStreamCreate(&compute));
        CHECK(cudaStreamCreate(&copies));
        CHECK(cudaEventCreate(&computed));
        CHECK(cudaMallocHost(reinterpret_cast<void **>(&logits), Vocabulary * sizeof(float)));
    }
    ~Server() {
        CHECK(cudaDeviceSynchronize());
        cudaFreeHost(logits);
    }

    NOINLINE long serve() {
        static const char *const prompts[] = {
            "Explain in one paragraph why the GPU waits for the CPU",
            "Write a haiku about a kernel that never came back",
            "Which line of my program makes this kernel slow",
        };
        long generated = 0;
        for (unsigned n = 0; !done(); n++) {
            const long here = generate(prompts[n % 3], n < 2);
            generated += here;
        }
        return generated;
    }

  private:
    bool done() const { return tokens_left <= 0 || seconds() >= deadline; }

    NOINLINE long generate(const char *prompt, bool print) {
        int tokens[Longest];
        const int prompted = tokenizer.encode(prompt, tokens);
        CHECK(cudaMemsetAsync(device.cache, 0, 1 << 20, compute));
        long generated = 0;
        if (print) printf("> %s\n ", prompt);
        for (int position = prompted; position < Longest && !done(); position++, generated++) {
            tokens[position] = step(tokens[position - 1], position);
            tokens_left--;
            if (print && generated < 16) printf(" %s", word(tokens[position]));
        }
        if (print) printf(" ...\n"), fflush(stdout);
        return generated;
    }

    NOINLINE int step(int token, int position) {
        model.forward(device, compute, &token, position);
        fetch_logits();
        return sampler.sample(logits, uint64_t(position));
    }

    NOINLINE void fetch_logits() {
        CHECK(cudaEventRecord(computed, compute));
        CHECK(cudaStreamWaitEvent(copies, computed, 0));
        CHECK(cudaMemcpyAsync(logits, device.logits, Vocabulary * sizeof(float), cudaMemcpyDeviceToHost, copies));
        CHECK(cudaStreamSynchronize(copies));
    }

    static const char *word(int token) {
        static const char *const words[] = {"the",   "kernel", "waits", "while", "a",      "stream", "of",    "tokens",
                                            "flows", "and",    "every", "launch", "finds", "its",    "stack", "again"};
        return words[unsigned(token) % 16];
    }

    double deadline;
    long tokens_left;
    DeviceBuffers device;
    Model model;
    Tokenizer tokenizer;
    Sampler sampler;
    Prefetcher prefetcher;
    cudaStream_t compute, copies;
    cudaEvent_t computed;
    float *logits;
};

} // namespace llm

int main(int argc, char **argv) {
    const double run_for = argc > 1 ? atof(argv[1]) : 3;
    const long most = argc > 2 ? atol(argv[2]) : 1000000;
    const double start = seconds();
    llm::Server server(start + run_for, most);
    const long generated = server.serve();
    printf("%ld tokens in %.1f s\n", generated, seconds() - start);
    return 0;
}
