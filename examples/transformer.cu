// A transformer's forward loop with the layer shapes of Qwen3 0.6B and random weights.
//
//     transformer [TOKENS [PROMPT]] [--check]      default 64 tokens after a prompt of 32
//
// The prompt is processed as a batch (tiled matrix multiplication), then one token at a time
// (matrix times vector). The logits are copied back for each token, and the CPU picks the largest.
// The same arguments always give the same tokens. --check runs the prompt both ways and compares
// the logits.
//
// Weights are bfloat16, sums and activations float. No libraries: every kernel is in this file.

#include <cuda_runtime.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

// Keeps a host function as a separate frame.
#define FRAME __attribute__((noinline))

#define CHECK(call) check((call), #call, __LINE__)

static void check(cudaError_t result, const char* call, int line)
{
    if (result != cudaSuccess) {
        std::fprintf(stderr, "transformer.cu:%d: %s failed: %s\n", line, call, cudaGetErrorString(result));
        std::exit(1);
    }
}

constexpr int kHidden = 1024;
constexpr int kLayers = 28;
constexpr int kHeads = 16;
constexpr int kKvHeads = 8;
constexpr int kHeadDim = 128;
constexpr int kFeedForward = 3072;
constexpr int kVocabulary = 151936;
constexpr float kEpsilon = 1e-6f;
constexpr float kRopeTheta = 1e6f;

constexpr int kQueryWidth = kHeads * kHeadDim;
constexpr int kKvWidth = kKvHeads * kHeadDim;
constexpr int kQkvWidth = kQueryWidth + 2 * kKvWidth;
// The attention kernel keeps one score per position in shared memory: 32 KiB at most.
constexpr int kMaxContext = 8192;

using Bf16 = uint16_t;  // the upper half of a float's bits

__device__ float low_bf16(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ float high_bf16(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

__device__ Bf16 to_bf16(float value)
{
    uint32_t bits = __float_as_uint(value);
    return Bf16((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);  // round to nearest, ties to even
}

__device__ float warp_sum(float value)
{
    for (int offset = 16; offset > 0; offset /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}

__device__ float warp_max(float value)
{
    for (int offset = 16; offset > 0; offset /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
    return value;
}

// All threads of the block get the sum. The first barrier waits for readers of the previous call.
__device__ float block_sum(float value)
{
    __shared__ float partial[32];
    value = warp_sum(value);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        partial[threadIdx.x / 32] = value;
    __syncthreads();
    float total = 0;
    for (int warp = 0; warp < int(blockDim.x) / 32; warp++)
        total += partial[warp];
    return total;
}

__device__ float block_max(float value)
{
    __shared__ float partial[32];
    value = warp_max(value);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        partial[threadIdx.x / 32] = value;
    __syncthreads();
    float largest = partial[0];
    for (int warp = 1; warp < int(blockDim.x) / 32; warp++)
        largest = fmaxf(largest, partial[warp]);
    return largest;
}

__device__ uint32_t hash(uint64_t value)
{
    value = (value ^ (value >> 31)) * 0x9e3779b97f4a7c15ull;
    value = (value ^ (value >> 29)) * 0xbf58476d1ce4e5b9ull;
    return uint32_t(value >> 32);
}

// Uniform in [-limit, limit): each weight depends only on its index and the seed.
__global__ void random_weights_kernel(Bf16* out, size_t count, uint64_t seed, float limit)
{
    size_t step = size_t(gridDim.x) * blockDim.x;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step)
        out[i] = to_bf16((float(hash(seed << 32 | i) >> 8) * (2.0f / 16777216.0f) - 1.0f) * limit);
}

__global__ void fill_kernel(float* out, int count, float value)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        out[i] = value;
}

__global__ void embed_kernel(float* out, const Bf16* table, const int* tokens)
{
    size_t row = size_t(tokens[blockIdx.x]) * kHidden;
    for (int i = threadIdx.x; i < kHidden; i += blockDim.x)
        out[size_t(blockIdx.x) * kHidden + i] = low_bf16(table[row + i]);
}

__global__ void rms_norm_kernel(float* out, const float* in, const float* weight)
{
    const float* row = in + size_t(blockIdx.x) * kHidden;
    float squares = 0;
    for (int i = threadIdx.x; i < kHidden; i += blockDim.x)
        squares += row[i] * row[i];
    float scale = rsqrtf(block_sum(squares) / kHidden + kEpsilon);
    for (int i = threadIdx.x; i < kHidden; i += blockDim.x)
        out[size_t(blockIdx.x) * kHidden + i] = row[i] * scale * weight[i];
}

constexpr int kMatvecWarps = 4;

// out[row] (+)= weights[row] . in. One warp per row; each lane reads eight weights (16 bytes) at a time.
template <bool kAdd>
__global__ void matvec_kernel(float* out, const Bf16* weights, const float* in, int rows, int columns)
{
    int row = blockIdx.x * kMatvecWarps + threadIdx.x / 32;
    if (row >= rows)
        return;
    const uint4* weight = reinterpret_cast<const uint4*>(weights + size_t(row) * columns);
    const float4* vector = reinterpret_cast<const float4*>(in);
    float sum = 0;
    for (int i = threadIdx.x % 32; i < columns / 8; i += 32) {
        uint4 w = weight[i];
        float4 a = vector[2 * i];
        float4 b = vector[2 * i + 1];
        sum += low_bf16(w.x) * a.x + high_bf16(w.x) * a.y + low_bf16(w.y) * a.z + high_bf16(w.y) * a.w;
        sum += low_bf16(w.z) * b.x + high_bf16(w.z) * b.y + low_bf16(w.w) * b.z + high_bf16(w.w) * b.w;
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        out[row] = kAdd ? out[row] + sum : sum;
}

constexpr int kTile = 64;  // rows and tokens of a block's result
constexpr int kDepth = 16; // columns held in shared memory at a time

// out[token][row] (+)= weights[row] . in[token]. 256 threads compute a 64 x 64 tile, 4 x 4 each.
template <bool kAdd>
__global__ void matmul_kernel(float* out, const Bf16* weights, const float* in, int tokens, int rows, int columns)
{
    __shared__ __align__(16) float weight_tile[kDepth][kTile + 4];
    __shared__ __align__(16) float in_tile[kDepth][kTile + 4];
    int first_row = blockIdx.x * kTile;
    int first_token = blockIdx.y * kTile;
    int load_line = threadIdx.x / 4;         // 0..63
    int load_column = threadIdx.x % 4 * 4;   // 0, 4, 8, 12
    int row = threadIdx.x % 16 * 4;          // of the 4 x 4 part, in the tile
    int token = threadIdx.x / 16 * 4;
    bool loads_token = first_token + load_line < tokens;
    const Bf16* weight = weights + size_t(first_row + load_line) * columns + load_column;
    const float* vector = in + size_t(loads_token ? first_token + load_line : 0) * columns + load_column;

    float sums[4][4] = {};  // [token][row]
    for (int column = 0; column < columns; column += kDepth) {
        uint2 w = *reinterpret_cast<const uint2*>(weight + column);
        float4 v = *reinterpret_cast<const float4*>(vector + column);
        weight_tile[load_column + 0][load_line] = low_bf16(w.x);
        weight_tile[load_column + 1][load_line] = high_bf16(w.x);
        weight_tile[load_column + 2][load_line] = low_bf16(w.y);
        weight_tile[load_column + 3][load_line] = high_bf16(w.y);
        in_tile[load_column + 0][load_line] = loads_token ? v.x : 0.0f;
        in_tile[load_column + 1][load_line] = loads_token ? v.y : 0.0f;
        in_tile[load_column + 2][load_line] = loads_token ? v.z : 0.0f;
        in_tile[load_column + 3][load_line] = loads_token ? v.w : 0.0f;
        __syncthreads();
#pragma unroll
        for (int k = 0; k < kDepth; k++) {
            float4 a = *reinterpret_cast<const float4*>(&in_tile[k][token]);
            float4 b = *reinterpret_cast<const float4*>(&weight_tile[k][row]);
            float left[4] = {a.x, a.y, a.z, a.w};
            float right[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    sums[i][j] += left[i] * right[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; i++) {
        if (first_token + token + i >= tokens)
            break;
        float* line = out + size_t(first_token + token + i) * rows + first_row + row;
        for (int j = 0; j < 4; j++)
            line[j] = kAdd ? line[j] + sums[i][j] : sums[i][j];
    }
}

// Block (head, token), 64 threads, each with dimensions i and i + 64. Query heads are normed and
// rotated in place, key heads into the cache, value heads copied into the cache.
__global__ void rope_kernel(float* qkv, float* keys, float* values, const float* query_norm, const float* key_norm, int start)
{
    constexpr int kHalf = kHeadDim / 2;
    int head = blockIdx.x;
    int position = start + blockIdx.y;
    int i = threadIdx.x;
    float* in = qkv + size_t(blockIdx.y) * kQkvWidth + head * kHeadDim;
    float a = in[i];
    float b = in[i + kHalf];
    if (head >= kHeads + kKvHeads) {
        float* out = values + (size_t(position) * kKvHeads + (head - kHeads - kKvHeads)) * kHeadDim;
        out[i] = a;
        out[i + kHalf] = b;
        return;
    }
    bool query = head < kHeads;
    const float* weight = query ? query_norm : key_norm;
    float scale = rsqrtf(block_sum(a * a + b * b) / kHeadDim + kEpsilon);
    a *= scale * weight[i];
    b *= scale * weight[i + kHalf];
    float sine, cosine;
    sincosf(position * powf(kRopeTheta, -float(i) / kHalf), &sine, &cosine);
    float* out = query ? in : keys + (size_t(position) * kKvHeads + (head - kHeads)) * kHeadDim;
    out[i] = a * cosine - b * sine;
    out[i + kHalf] = b * cosine + a * sine;
}

constexpr int kGroups = 4;  // each group of kHeadDim threads adds up every kGroups-th position

// Block (query head, token): scores against every position up to the token's own, softmax, weighted values.
__global__ void attention_kernel(float* out, const float* qkv, const float* keys, const float* values, int start)
{
    extern __shared__ float scores[];
    int head = blockIdx.x;
    int kv_head = head / (kHeads / kKvHeads);
    int length = start + blockIdx.y + 1;
    int lane = threadIdx.x % 32;
    float4 q = reinterpret_cast<const float4*>(qkv + size_t(blockIdx.y) * kQkvWidth + head * kHeadDim)[lane];
    for (int p = threadIdx.x / 32; p < length; p += blockDim.x / 32) {
        float4 k = reinterpret_cast<const float4*>(keys + (size_t(p) * kKvHeads + kv_head) * kHeadDim)[lane];
        float dot = warp_sum(q.x * k.x + q.y * k.y + q.z * k.z + q.w * k.w);
        if (lane == 0)
            scores[p] = dot * rsqrtf(float(kHeadDim));
    }
    __syncthreads();
    float largest = -INFINITY;
    for (int p = threadIdx.x; p < length; p += blockDim.x)
        largest = fmaxf(largest, scores[p]);
    largest = block_max(largest);
    float sum = 0;
    for (int p = threadIdx.x; p < length; p += blockDim.x) {
        scores[p] = expf(scores[p] - largest);
        sum += scores[p];
    }
    sum = block_sum(sum);  // its barriers also make every score visible to every thread
    __shared__ float parts[kGroups][kHeadDim];
    int group = threadIdx.x / kHeadDim;
    int dimension = threadIdx.x % kHeadDim;
    float part = 0;
#pragma unroll 4
    for (int p = group; p < length; p += kGroups)
        part += scores[p] * values[(size_t(p) * kKvHeads + kv_head) * kHeadDim + dimension];
    parts[group][dimension] = part;
    __syncthreads();
    if (group > 0)
        return;
    float result = 0;
    for (int i = 0; i < kGroups; i++)
        result += parts[i][dimension];
    out[size_t(blockIdx.y) * kQueryWidth + head * kHeadDim + dimension] = result / sum;
}

__global__ void swiglu_kernel(float* out, const float* gate_up)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= kFeedForward)
        return;
    const float* row = gate_up + size_t(blockIdx.y) * 2 * kFeedForward;
    float gate = row[i];
    out[size_t(blockIdx.y) * kFeedForward + i] = gate / (1.0f + expf(-gate)) * row[kFeedForward + i];
}

struct Layer {
    Bf16* qkv;      // [kQkvWidth][kHidden]: queries, keys, values
    Bf16* output;   // [kHidden][kQueryWidth]
    Bf16* gate_up;  // [2 kFeedForward][kHidden]
    Bf16* down;     // [kHidden][kFeedForward]
    float* attention_norm;
    float* feed_forward_norm;
    float* query_norm;
    float* key_norm;
    float* keys;    // [context][kKvHeads][kHeadDim]
    float* values;
};

struct Transformer {
    Bf16* embedding;  // also the last matrix: the weights are tied
    float* final_norm;
    std::vector<Layer> layers;
    int context;  // positions the cache holds
    int batch;    // tokens the buffers below hold
    int* tokens;
    float* hidden;   // the residual stream
    float* normed;
    float* qkv;
    float* attended;
    float* gate_up;
    float* gated;
    float* logits;
    float* host_logits;  // pinned
    std::vector<void*> allocations;
};

template <typename T>
T* device_alloc(Transformer& model, size_t count)
{
    void* pointer = nullptr;
    CHECK(cudaMalloc(&pointer, count * sizeof(T)));
    model.allocations.push_back(pointer);
    return static_cast<T*>(pointer);
}

FRAME Bf16* random_matrix(Transformer& model, size_t rows, size_t columns)
{
    constexpr float kDeviation = 0.02f;
    uint64_t seed = model.allocations.size() + 1;
    Bf16* weights = device_alloc<Bf16>(model, rows * columns);
    random_weights_kernel<<<1024, 256>>>(weights, rows * columns, seed, kDeviation * std::sqrt(3.0f));
    CHECK(cudaGetLastError());
    return weights;
}

FRAME float* ones(Transformer& model, int count)
{
    float* values = device_alloc<float>(model, count);
    fill_kernel<<<(count + 255) / 256, 256>>>(values, count, 1.0f);
    CHECK(cudaGetLastError());
    return values;
}

FRAME Transformer create_model(int context, int batch)
{
    Transformer model = {};
    model.context = context;
    model.batch = batch;
    model.embedding = random_matrix(model, kVocabulary, kHidden);
    model.final_norm = ones(model, kHidden);
    for (int i = 0; i < kLayers; i++) {
        Layer layer = {};
        layer.qkv = random_matrix(model, kQkvWidth, kHidden);
        layer.output = random_matrix(model, kHidden, kQueryWidth);
        layer.gate_up = random_matrix(model, 2 * kFeedForward, kHidden);
        layer.down = random_matrix(model, kHidden, kFeedForward);
        layer.attention_norm = ones(model, kHidden);
        layer.feed_forward_norm = ones(model, kHidden);
        layer.query_norm = ones(model, kHeadDim);
        layer.key_norm = ones(model, kHeadDim);
        layer.keys = device_alloc<float>(model, size_t(context) * kKvWidth);
        layer.values = device_alloc<float>(model, size_t(context) * kKvWidth);
        model.layers.push_back(layer);
    }
    model.tokens = device_alloc<int>(model, batch);
    model.hidden = device_alloc<float>(model, size_t(batch) * kHidden);
    model.normed = device_alloc<float>(model, size_t(batch) * kHidden);
    model.qkv = device_alloc<float>(model, size_t(batch) * kQkvWidth);
    model.attended = device_alloc<float>(model, size_t(batch) * kQueryWidth);
    model.gate_up = device_alloc<float>(model, size_t(batch) * 2 * kFeedForward);
    model.gated = device_alloc<float>(model, size_t(batch) * kFeedForward);
    model.logits = device_alloc<float>(model, kVocabulary);
    CHECK(cudaMallocHost(&model.host_logits, kVocabulary * sizeof(float)));
    CHECK(cudaDeviceSynchronize());
    return model;
}

FRAME void free_model(Transformer& model)
{
    for (void* pointer : model.allocations)
        CHECK(cudaFree(pointer));
    CHECK(cudaFreeHost(model.host_logits));
}

FRAME void rms_norm(float* out, const float* in, const float* weight, int count)
{
    rms_norm_kernel<<<count, 256>>>(out, in, weight);
    CHECK(cudaGetLastError());
}

// Stores the product of each token of `in` and each row of weights in out; kAdd adds to out instead.
template <bool kAdd>
FRAME void matmul(float* out, const Bf16* weights, const float* in, int count, int rows, int columns)
{
    if (count == 1) {
        int blocks = (rows + kMatvecWarps - 1) / kMatvecWarps;
        matvec_kernel<kAdd><<<blocks, kMatvecWarps * 32>>>(out, weights, in, rows, columns);
    } else {
        dim3 blocks(rows / kTile, (count + kTile - 1) / kTile);
        matmul_kernel<kAdd><<<blocks, 256>>>(out, weights, in, count, rows, columns);
    }
    CHECK(cudaGetLastError());
}
static_assert(kQkvWidth % kTile == 0 && kHidden % kTile == 0 && kFeedForward % kTile == 0, "tiles have no ragged rows");
static_assert(kHidden % 256 == 0 && kQueryWidth % 256 == 0 && kFeedForward % 256 == 0, "a warp reads 256 weights at a time");

FRAME void embed(Transformer& model, const int* tokens, int count)
{
    CHECK(cudaMemcpyAsync(model.tokens, tokens, count * sizeof(int), cudaMemcpyHostToDevice));
    embed_kernel<<<count, 256>>>(model.hidden, model.embedding, model.tokens);
    CHECK(cudaGetLastError());
}

FRAME void rope(Transformer& model, const Layer& layer, int count, int start)
{
    dim3 blocks(kHeads + 2 * kKvHeads, count);
    rope_kernel<<<blocks, kHeadDim / 2>>>(model.qkv, layer.keys, layer.values, layer.query_norm, layer.key_norm, start);
    CHECK(cudaGetLastError());
}

FRAME void attention(Transformer& model, const Layer& layer, int count, int start)
{
    rms_norm(model.normed, model.hidden, layer.attention_norm, count);
    matmul<false>(model.qkv, layer.qkv, model.normed, count, kQkvWidth, kHidden);
    rope(model, layer, count, start);
    dim3 blocks(kHeads, count);
    size_t scores = size_t(start + count) * sizeof(float);
    attention_kernel<<<blocks, kGroups * kHeadDim, scores>>>(model.attended, model.qkv, layer.keys, layer.values, start);
    CHECK(cudaGetLastError());
    matmul<true>(model.hidden, layer.output, model.attended, count, kHidden, kQueryWidth);
    CHECK(cudaPeekAtLastError());  // and no tail call: this function stays on the stack of the one above
}

FRAME void feed_forward(Transformer& model, const Layer& layer, int count)
{
    rms_norm(model.normed, model.hidden, layer.feed_forward_norm, count);
    matmul<false>(model.gate_up, layer.gate_up, model.normed, count, 2 * kFeedForward, kHidden);
    dim3 blocks((kFeedForward + 255) / 256, count);
    swiglu_kernel<<<blocks, 256>>>(model.gated, model.gate_up);
    CHECK(cudaGetLastError());
    matmul<true>(model.hidden, layer.down, model.gated, count, kHidden, kFeedForward);
    CHECK(cudaPeekAtLastError());
}

// Processes the tokens at positions start, start + 1, ... and stores the logits after the last one in host_logits.
FRAME void forward(Transformer& model, const int* tokens, int count, int start)
{
    if (count < 1 || count > model.batch || start + count > model.context) {
        std::fprintf(stderr, "transformer: %d tokens at %d do not fit\n", count, start);
        std::exit(1);
    }
    embed(model, tokens, count);
    for (const Layer& layer : model.layers) {
        attention(model, layer, count, start);
        feed_forward(model, layer, count);
    }
    rms_norm(model.normed, model.hidden + size_t(count - 1) * kHidden, model.final_norm, 1);
    matmul<false>(model.logits, model.embedding, model.normed, 1, kVocabulary, kHidden);
    CHECK(cudaMemcpyAsync(model.host_logits, model.logits, kVocabulary * sizeof(float), cudaMemcpyDeviceToHost));
    CHECK(cudaStreamSynchronize(0));
}

// Returns the token with the largest logit; the first one if several are equal.
FRAME int sample_token(const float* logits)
{
    int best = 0;
    for (int i = 1; i < kVocabulary; i++)
        if (logits[i] > logits[best])
            best = i;
    if (!std::isfinite(logits[best])) {
        std::fprintf(stderr, "transformer: the largest logit is %f\n", logits[best]);
        std::exit(1);
    }
    return best;
}

static double seconds()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Generation {
    std::vector<int> tokens;
    double prompt_seconds;
    double decode_seconds;
};

FRAME Generation generate(Transformer& model, const std::vector<int>& prompt, int count)
{
    Generation result = {};
    double begin = seconds();
    forward(model, prompt.data(), int(prompt.size()), 0);
    int token = sample_token(model.host_logits);
    result.tokens.push_back(token);
    double first = seconds();
    for (int i = 1; i < count; i++) {
        forward(model, &token, 1, int(prompt.size()) + i - 1);
        token = sample_token(model.host_logits);
        result.tokens.push_back(token);
    }
    result.prompt_seconds = first - begin;
    result.decode_seconds = seconds() - first;
    return result;
}

// Runs the prompt as a batch and token by token; the logits must be equal except for rounding.
FRAME bool check_prompt(Transformer& model, const std::vector<int>& prompt)
{
    forward(model, prompt.data(), int(prompt.size()), 0);
    std::vector<float> at_once(model.host_logits, model.host_logits + kVocabulary);
    for (size_t i = 0; i < prompt.size(); i++)
        forward(model, &prompt[i], 1, int(i));
    double difference = 0, largest = 0;
    for (int i = 0; i < kVocabulary; i++) {
        difference = std::fmax(difference, std::fabs(double(at_once[i]) - model.host_logits[i]));
        largest = std::fmax(largest, std::fabs(double(at_once[i])));
    }
    bool same = std::isfinite(largest) && largest > 0 && difference <= 1e-3 * largest;
    std::printf("prompt at once and by token: logits differ by %g of %g: %s\n", difference, largest, same ? "ok" : "WRONG");
    return same;
}

static uint64_t checksum(const std::vector<int>& tokens)
{
    uint64_t sum = 0xcbf29ce484222325ull;  // FNV-1a, a token at a time
    for (int token : tokens)
        sum = (sum ^ uint64_t(token)) * 0x100000001b3ull;
    return sum;
}

static int usage()
{
    std::fprintf(stderr, "usage: transformer [TOKENS [PROMPT]] [--check]    at most %d together\n", kMaxContext);
    return 2;
}

int main(int argc, char** argv)
{
    int numbers[2] = {64, 32};
    int given = 0;
    bool compare = false;
    for (int i = 1; i < argc; i++) {
        if (std::strcmp(argv[i], "--check") == 0) {
            compare = true;
            continue;
        }
        char* end = nullptr;
        long number = std::strtol(argv[i], &end, 10);
        if (given == 2 || end == argv[i] || *end || number < 1 || number > kMaxContext)
            return usage();
        numbers[given++] = int(number);
    }
    int count = numbers[0], prompt_length = numbers[1];
    if (count + prompt_length > kMaxContext)
        return usage();

    Transformer model = create_model(prompt_length + count, prompt_length);
    std::vector<int> prompt(prompt_length);
    for (int i = 0; i < prompt_length; i++)
        prompt[i] = int((uint64_t(i) * 7919 + 17) % kVocabulary);
    bool good = !compare || check_prompt(model, prompt);
    Generation result = generate(model, prompt, count);
    free_model(model);

    std::printf("prompt: %d tokens in %.2f ms\n", prompt_length, result.prompt_seconds * 1e3);
    if (count > 1)
        std::printf("generated: %d tokens, %.1f tokens/s\n", count, (count - 1) / result.decode_seconds);
    std::printf("checksum: %016llx\n", static_cast<unsigned long long>(checksum(result.tokens)));
    return good ? 0 : 1;
}
