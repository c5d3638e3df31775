/* Calls functions of scripted libraries, which return when and what the script says. Commands are lines on stdin;
 * the response to each is `done`. Exits at the end of its input.
 *
 *   enter THREAD FUNCTION WORD...    the thread calls the function; `&` is a pointer to the place of its output
 *   return THREAD RESULT [ANSWER]    the function that the thread entered last returns */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 8, DEPTH = 8, WORDS = 6 };
typedef unsigned long word;

struct thread {
    pthread_t thread;
    sem_t go, done;
    char line[512];
    word answers[DEPTH];
    int depth;
};

static struct thread threads[THREADS];
static __thread struct thread *self;
static void *libraries[2];

static void fail(const char *what) {
    fprintf(stderr, "runner: %s\n", what);
    exit(1);
}

static void enter(char *words) {
    char *name = strtok_r(words, " \n", &words), *text;
    word word_of[WORDS] = {0};
    unsigned (*function)(word, word, word, word, word, word) = dlsym(libraries[strncmp(name, "cuda", 4) != 0], name);

    if (!function || self->depth == DEPTH) fail(name);
    for (int i = 0; i < WORDS && (text = strtok_r(NULL, " \n", &words)); i++)
        word_of[i] = *text == '&' ? (word)&self->answers[self->depth] : strtoul(text, NULL, 0);
    self->depth++;
    function(word_of[0], word_of[1], word_of[2], word_of[3], word_of[4], word_of[5]);
    sem_post(&self->done);
}

/* Runs the thread's commands until a function must return, and returns that function's result. */
static unsigned serve(void) {
    for (;;) {
        char line[sizeof self->line], *words;

        sem_wait(&self->go);
        strcpy(line, self->line);
        words = strchr(strchr(line, ' ') + 1, ' ') + 1;
        if (*line == 'r') {
            char *end;
            unsigned result = strtoul(words, &end, 0);

            self->depth--;
            if (*end == ' ') self->answers[self->depth] = strtoul(end, NULL, 0);
            return result;
        }
        enter(words);
    }
}

/* Called by every function of the scripted libraries. */
unsigned scripted(void) {
    sem_post(&self->done);
    return serve();
}

static void *run(void *thread) {
    self = thread;
    serve();
    return NULL;
}

int main(void) {
    char line[512];

    libraries[0] = dlopen("libcudart.so.12", RTLD_NOW);
    libraries[1] = dlopen("libcuda.so.1", RTLD_NOW);
    if (!libraries[0] || !libraries[1]) fail(dlerror());
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        struct thread *thread = &threads[atoi(strchr(line, ' ')) % THREADS];

        strcpy(thread->line, line);
        if (!thread->thread) {
            sem_init(&thread->go, 0, 0);
            sem_init(&thread->done, 0, 0);
            if (pthread_create(&thread->thread, NULL, run, thread)) fail("no thread");
        }
        sem_post(&thread->go);
        sem_wait(&thread->done);
        puts("done");
        fflush(stdout);
    }
    _exit(0);
}
