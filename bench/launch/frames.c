/* Measures what reading the frames of a launch costs at least: the lower bound for anything that compares its stacks exactly.
 *   frames [PYTHON_FRAMES [WORDS]]
 * Reads the four fields of each Python frame and the words of a native stack, and decides nothing. Before each reading, 64 KiB of other memory are
 * used, so that the frames are in the second cache, as they are in a program that has done something else since its last launch. Prints the
 * median nanoseconds of 4,000 readings, and how much longer the program then takes for a loop over 36 KiB of its own, which were in the nearest cache. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { READINGS = 4000, OTHER = 64 << 10, OWN = 576, LINE = 64, MOST = 1000 };

/* The size of a frame of Python 3.12, and its fields: code, previous, instruction, owner. */
enum { SMALLEST = 88, PREVIOUS = 8, INSTRUCTION = 56, OWNER = 70 };

typedef const volatile uint64_t word;

static int frames = 42, words = 120;
static char *frame[MOST];
static char *place[MOST];

static uint64_t read_frames(void) {
    uint64_t all = 0;
    for (int i = 0; i < frames; i++)
        all += *(word *)frame[i] ^ *(word *)(frame[i] + PREVIOUS) ^ *(word *)(frame[i] + INSTRUCTION) ^ *(volatile uint8_t *)(frame[i] + OWNER);
    for (int i = 0; i < words; i++) all += *(word *)place[i];
    return all;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static int compare(const void *a, const void *b) {
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static double median(double *values) {
    qsort(values, READINGS, sizeof(*values), compare);
    return values[READINGS / 2];
}

static char *memory(size_t bytes) {
    char *found = aligned_alloc(4096, (bytes + 4095) & ~4095ul);
    for (size_t i = 0; i < bytes; i++) found[i] = rand();
    return found;
}

/* Links the lines of some memory to a circle in random order. */
static char *circle(char *at, int lines) {
    int order[OWN];
    for (int i = 0; i < lines; i++) order[i] = i;
    for (int i = lines - 1; i > 0; i--) {
        int other = rand() % (i + 1), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    for (int i = 0; i < lines; i++) *(char **)(at + LINE * order[i]) = at + LINE * order[(i + 1) % lines];
    return at;
}

static char *walk(char *at) {
    for (int i = 0; i < OWN; i++) at = *(char *volatile *)at;
    return at;
}

int main(int count, char **given) {
    static double reading[READINGS], after[2][READINGS];
    volatile uint64_t result = 0;
    if (count > 1) frames = atoi(given[1]);
    if (count > 2) words = atoi(given[2]);
    if (frames < 0 || frames > MOST || words < 0 || words > MOST) return 2;
    char *data = memory((size_t)MOST * 256), *stack = memory((size_t)MOST * 256), *other = memory(OTHER), *own = circle(memory(OWN * LINE), OWN);
    for (int i = 0; i < frames; i++) {
        frame[i] = data;
        data += SMALLEST + 8 * (rand() % 16);
    }
    for (int i = 0; i < words; i++) place[i] = stack + 96 * i + 8 * (rand() % 8);
    for (int i = 0; i < READINGS; i++) {
        for (int at = 0; at < OTHER; at += LINE) other[at]++;
        double begin = now();
        result += read_frames();
        reading[i] = now() - begin;
    }
    for (int i = 0; i < READINGS; i++)
        for (int reads = 0; reads < 2; reads++) {
            for (int at = 0; at < OTHER; at += LINE) other[at]++;
            own = walk(walk(own));
            if (reads) result += read_frames();
            double begin = now();
            own = walk(own);
            after[reads][i] = now() - begin;
        }
    printf("%d frames and %d words: %.0f ns; the program then takes %.0f instead of %.0f ns\n", frames, words, median(reading), median(after[1]),
           median(after[0]));
}
