/* A stand-in for XLA's thread pools: xla_cuda_plugin.so with the same functions, local as there, called in the same way. */
#include <array>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>

#include "pools.h"

namespace absl { inline namespace lts_1 {
/* As in Abseil: two words with the state or its address, and the functions that manage and call it. */
template <class> class AnyInvocable;
template <> class AnyInvocable<void() &&> {
public:
    AnyInvocable() = default;
    template <class F, class = std::enable_if_t<!std::is_same<std::decay_t<F>, AnyInvocable>::value>> AnyInvocable(F f) {
        if (std::is_trivially_copyable<F>::value && sizeof(F) <= sizeof state_) {
            new (state_) F(std::move(f));
            invoker_ = [](void *state) { (*static_cast<F *>(state))(); };
        } else {
            state_[0] = new F(std::move(f));
            manager_ = [](void *state) { delete *static_cast<F **>(state); };
            invoker_ = [](void *state) { (**static_cast<F **>(state))(); };
        }
    }
    AnyInvocable(AnyInvocable &&other) { *this = std::move(other); }
    AnyInvocable &operator=(AnyInvocable &&other) {
        std::swap(state_, other.state_), std::swap(manager_, other.manager_), std::swap(invoker_, other.invoker_);
        return *this;
    }
    ~AnyInvocable() {
        if (manager_) manager_(state_);
    }
    void operator()() && { invoker_(state_); }

private:
    void *state_[2] = {};
    void (*manager_)(void *) = nullptr;
    void (*invoker_)(void *) = nullptr;
};
}}

template <class Task> class Tasks {
public:
    void push(Task task) {
        std::lock_guard<std::mutex> lock(mutex);
        tasks.push_back(std::move(task));
        added.notify_one();
    }
    Task pop() {
        std::unique_lock<std::mutex> lock(mutex);
        added.wait(lock, [this] { return !tasks.empty(); });
        Task task = std::move(tasks.front());
        tasks.pop_front();
        return task;
    }

private:
    std::mutex mutex;
    std::condition_variable added;
    std::deque<Task> tasks;
};

namespace tsl {
namespace thread {
struct EigenEnvironment {};
}

/* Tasks do not wait for each other: one thread is enough for the test. */
class UnboundedWorkQueue {
public:
    UnboundedWorkQueue() { std::thread([this] { PooledThreadFunc(); }).detach(); }
    void Schedule(std::function<void()> task);
    void PooledThreadFunc();

private:
    Tasks<std::function<void()>> tasks;
};
__attribute__((noinline)) void UnboundedWorkQueue::Schedule(std::function<void()> task) { tasks.push(std::move(task)); }
__attribute__((noinline)) void UnboundedWorkQueue::PooledThreadFunc() {
    for (;;) {
        std::function<void()> task = tasks.pop();
        task();
    }
}
}

namespace Eigen {
template <class Environment> class ThreadPoolTempl {
public:
    ThreadPoolTempl() {
        for (int i = 0; i < 2; i++) std::thread([this, i] { WorkerLoop(i); }).detach();
    }
    void ScheduleWithHint(std::function<void()> task, int start, int limit);
    void WorkerLoop(int thread);

private:
    Tasks<std::function<void()>> tasks;
};
template <class Environment>
__attribute__((noinline)) void ThreadPoolTempl<Environment>::ScheduleWithHint(std::function<void()> task, int start, int limit) {
    std::function<void()> moved = std::move(task);
    if (start < limit)
        tasks.push(std::move(moved));
    else
        moved();
}
template <class Environment> __attribute__((noinline)) void ThreadPoolTempl<Environment>::WorkerLoop(int) {
    for (;;) {
        std::function<void()> task = tasks.pop();
        task();
    }
}
}

namespace xla {
class WorkerThread {
public:
    WorkerThread() { std::thread([this] { WorkLoop(); }).detach(); }
    void Schedule(absl::AnyInvocable<void() &&> task);
    void WorkLoop();

private:
    Tasks<absl::AnyInvocable<void() &&>> tasks;
};
__attribute__((noinline)) void WorkerThread::Schedule(absl::AnyInvocable<void() &&> task) { tasks.push(std::move(task)); }
__attribute__((noinline)) void WorkerThread::WorkLoop() {
    for (;;) {
        absl::AnyInvocable<void() &&> task = tasks.pop();
        std::move(task)();
    }
}
}

/* Their threads never end. */
struct Pools {
    Eigen::ThreadPoolTempl<tsl::thread::EigenEnvironment> eigen;
    xla::WorkerThread worker;
    tsl::UnboundedWorkQueue queue;
};
static Pools &pools() {
    static Pools *pools = new Pools;
    return *pools;
}

static std::mutex mutex;
static std::condition_variable ended;
static int open_tasks;

static void end() {
    std::lock_guard<std::mutex> lock(mutex);
    if (--open_tasks == 0) ended.notify_all();
}

template <class Task> static void schedule(enum pool pool, Task task) {
    switch (pool) {
    case EIGEN: return pools().eigen.ScheduleWithHint(std::move(task), 0, 2);
    case WORKER: return pools().worker.Schedule(std::move(task));
    case QUEUE: return pools().queue.Schedule(std::move(task));
    case FULL: return pools().eigen.ScheduleWithHint(std::move(task), 0, 0);
    }
}

#pragma GCC visibility push(default)
void pool_schedule(enum pool pool, enum state state, void (*apply)(void *), void *argument) {
    {
        std::lock_guard<std::mutex> lock(mutex);
        open_tasks++;
    }
    if (state == INSIDE)
        return schedule(pool, [apply, argument] { apply(argument), end(); });
    auto large = std::make_shared<std::array<void *, 4>>();
    return schedule(pool, [apply, argument, large] { (*large)[0] = argument, apply((*large)[0]), end(); });
}

void pool_wait(void) {
    std::unique_lock<std::mutex> lock(mutex);
    ended.wait(lock, [] { return open_tasks == 0; });
}
#pragma GCC visibility pop
