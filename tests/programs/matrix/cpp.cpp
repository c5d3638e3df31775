/* C++ frame layouts: exceptions (in a catch block, in a destructor during unwinding, after a rethrow),
 * lambdas, std::function, virtual calls, templates. */
#include <functional>
#include <stdexcept>

/* Exceptions are slow, so the work between them takes long too. */
#define SPINS 200000
#include "matrix.h"

struct Guard {
    int number;
    CASE ~Guard() { ACT("unwound(int);guarded(int);Guard::~Guard()"); }
};

CASE static void thrower(const char *path) {
    ACT(path);
    throw std::runtime_error("requested");
}

CASE static void guarded(int n) {
    Guard guard{n};
    thrower("unwound(int);guarded(int);thrower(char const*)");
    KEEP;
}

CASE static void unwound(int n) {
    try {
        guarded(n);
    } catch (const std::exception &) {
        KEEP;
    }
}

CASE static void caught(int) {
    try {
        thrower("caught(int);thrower(char const*)");
    } catch (const std::exception &) {
        ACT("caught(int)");
    }
}

CASE static void rethrower(int) {
    try {
        thrower("rethrown(int);rethrower(int);thrower(char const*)");
    } catch (...) {
        KEEP;
        throw;
    }
}

CASE static void rethrown(int n) {
    try {
        rethrower(n);
    } catch (const std::runtime_error &) {
        ACT("rethrown(int)");
    }
}

struct Base {
    virtual ~Base() = default;
    virtual long work(int) = 0;
};

struct Derived : Base {
    CASE long work(int n) override {
        ACT("call_virtual(Base*, int);Derived::work(int)");
        return n;
    }
};

CASE static long call_virtual(Base *base, int n) {
    long there = base->work(n);
    KEEP;
    return there + 1;
}

CASE static void called_by_lambda(int n) {
    (void)n;
    ACT("Shapes::with_lambda(int);Shapes::with_lambda(int)::{lambda(int)#1}::operator()(int) const;called_by_lambda(int)");
}

/* Inline, because compilers agree on the names of lambdas only there. */
struct Shapes {
    CASE static void with_lambda(int n) {
        auto lambda = [n](int m) CASE {
            called_by_lambda(n + m);
            KEEP;
        };
        lambda(n);
        KEEP;
    }
};

CASE static void called_by_function(int n) {
    (void)n;
    ACT("with_function(int);call_function(std::function<void (int)> const&, int);@std;called_by_function(int)");
}

CASE static void call_function(const std::function<void(int)> &function, int n) {
    function(n);
    KEEP;
}

CASE static void with_function(int n) {
    call_function(
        [n](int m) {
            called_by_function(n + m);
            KEEP;
        },
        n);
    KEEP;
}

template <typename T>
CASE static T templated(T value) {
    ACT("templated<long>(long)");
    return value;
}

CASE static void all(int n) {
    caught(n);
    unwound(n);
    rethrown(n);
    Derived derived;
    call_virtual(&derived, n);
    Shapes::with_lambda(n);
    with_function(n);
    templated<long>(n);
    KEEP;
}

int main(int argc, char **argv) {
    start(argc, argv);
    root = ROOT_MAIN ";all(int)";
    while (again()) all(1);
    return end();
}
