// A 32-bit program without any library.
static long call(long number, long a, const void *b, long c) {
    long result;
    asm volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
    return result;
}

void _start(void) {
    char byte;
    call(4, 1, "ready\n", 6);
    while (call(3, 0, &byte, 1) > 0) {}
    call(4, 1, "ok\n", 3);
    call(1, 0, 0, 0);
}
