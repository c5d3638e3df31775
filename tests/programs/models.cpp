/* C++ functions for tests of names: methods, overloads, templates. Each is called a known number of times. */
#include <cstdio>

#define CALLED __attribute__((noinline, used))

namespace ns {
volatile int sum;

struct Model {
    CALLED void step(int n) { sum += n; }
    CALLED void step(double n) { sum += (int)n; }
    CALLED int size() const { return sum; }
};

template <typename A, typename B> CALLED void mix(A a, B b) {
    sum += (int)a + (int)b;
}

CALLED void rest() {
    sum++;
}
} // namespace ns

int main() {
    ns::Model model;
    for (int i = 0; i < 5; i++)
        model.step(i);
    model.step(0.5);
    model.step(1.5);
    for (int i = 0; i < 3; i++)
        ns::mix(i, 2.0f);
    ns::rest();
    std::printf("%d\n", model.size());
}
