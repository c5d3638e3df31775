/* A stand-in for PyTorch's autograd engine: libtorch_cpu.so with the same symbols, called in the same way. Each device has a
 * thread that evaluates nodes; the thread that calls backward evaluates the nodes of the CPU, and waits for the others. A
 * node that calls backward itself continues to evaluate nodes of its device until that call is complete. */
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "engine.h"

namespace c10 {
/* It has a destructor, so a function that returns it gets the address of the result as its first argument. */
template <class T> struct intrusive_ptr {
    T *target = nullptr;
    ~intrusive_ptr() {}
};
}

namespace at { namespace sequence_number {
static thread_local uint64_t next;

__attribute__((noinline)) uint64_t get_and_increment() { return next++; }
}}

namespace torch { namespace autograd {

/* As in PyTorch, its number follows the pointers of its class and of std::enable_shared_from_this. */
struct Node {
    void *pointers[3];
    uint64_t sequence_nr;
    work what;
};
struct InputBuffer {};
struct Future {};
struct GraphTask;

struct ReadyQueue {
    struct Item {
        std::shared_ptr<GraphTask> task;
        Node *node; /* null only wakes the thread */
    };
    void push(Item item) {
        std::lock_guard<std::mutex> lock(mutex);
        items.push_back(std::move(item));
        added.notify_one();
    }
    Item pop() {
        std::unique_lock<std::mutex> lock(mutex);
        added.wait(lock, [this] { return !items.empty(); });
        Item item = std::move(items.front());
        items.pop_front();
        return item;
    }
    std::mutex mutex;
    std::condition_variable added;
    std::deque<Item> items;
};

struct GraphTask {
    std::vector<Node> nodes;
    work callback;
    std::atomic<int> outstanding;
    std::atomic<bool> completed{false};
    std::shared_ptr<ReadyQueue> cpu_ready_queue;

    void mark_as_completed_and_run_post_processing();
};

struct Engine {
    Engine();
    virtual ~Engine() {}
    virtual c10::intrusive_ptr<Future> execute_with_graph_task(const std::shared_ptr<GraphTask> &, std::shared_ptr<Node>,
                                                               InputBuffer &&);
    virtual void thread_main(const std::shared_ptr<GraphTask> &);
    void evaluate_function(std::shared_ptr<GraphTask> &, Node *, InputBuffer &, const std::shared_ptr<ReadyQueue> &);

    std::shared_ptr<ReadyQueue> device_queues[DEVICES];
};

/* The queue of this thread: that of its device, or of the calls that it makes. */
static thread_local std::shared_ptr<ReadyQueue> local_ready_queue;

Engine::Engine() {
    for (auto &queue : device_queues) {
        queue = std::make_shared<ReadyQueue>();
        std::thread([this, queue] {
            local_ready_queue = queue;
            thread_main(nullptr);
        }).detach();
    }
}

void GraphTask::mark_as_completed_and_run_post_processing() {
    if (callback.apply) callback.apply(callback.argument);
    completed = true;
}

void Engine::evaluate_function(std::shared_ptr<GraphTask> &, Node *node, InputBuffer &, const std::shared_ptr<ReadyQueue> &) {
    node->what.apply(node->what.argument);
}

void Engine::thread_main(const std::shared_ptr<GraphTask> &graph_task) {
    while (!graph_task || !graph_task->completed) {
        ReadyQueue::Item item = local_ready_queue->pop();
        InputBuffer inputs;
        if (!item.node) continue;
        evaluate_function(item.task, item.node, inputs, item.task->cpu_ready_queue);
        if (--item.task->outstanding == 0) {
            item.task->mark_as_completed_and_run_post_processing();
            item.task->cpu_ready_queue->push({item.task, nullptr});
        }
    }
}

c10::intrusive_ptr<Future> Engine::execute_with_graph_task(const std::shared_ptr<GraphTask> &graph_task,
                                                           std::shared_ptr<Node>, InputBuffer &&) {
    if (graph_task->nodes.empty()) throw std::runtime_error("there are no nodes");
    for (Node &node : graph_task->nodes) {
        int device = node.what.device;
        (device == CALLER ? local_ready_queue : device_queues[device])->push({graph_task, &node});
    }
    thread_main(graph_task);
    return {};
}

static Engine &engine() {
    static Engine *engine = new Engine; /* its threads never end */
    return *engine;
}

}}

unsigned long engine_number(void) { return at::sequence_number::get_and_increment(); }

void engine_backward(const work *nodes, int count, work completed) {
    using namespace torch::autograd;
    Engine &engine = torch::autograd::engine();
    auto task = std::make_shared<GraphTask>();
    for (int i = 0; i < count; i++) task->nodes.push_back({{}, nodes[i].number - 1, nodes[i]});
    task->callback = completed;
    task->outstanding = count;
    if (!local_ready_queue) local_ready_queue = std::make_shared<ReadyQueue>();
    task->cpu_ready_queue = local_ready_queue;
    try {
        engine.execute_with_graph_task(task, nullptr, InputBuffer());
    } catch (std::exception &) {
    }
}
