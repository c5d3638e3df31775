/* Many processes: `many WAY COUNT PROGRAM [ARGUMENT...]`.
 *
 *   turn    one after another, by vfork and exec
 *   once    all at once, by fork and exec; then waits for them
 *   chain   execs itself COUNT times, each time under another name, and finally PROGRAM
 *   thread  no processes: COUNT threads, one after another, then PROGRAM
 *
 * Exits 0 if all of them did. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int failed;

static void reap(pid_t child) {
    int status;
    if (waitpid(child, &status, 0) < 0 || status) failed = 1;
}

static void *nothing(void *argument) {
    return argument;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    const char *way = argv[1];
    long count = atol(argv[2]);
    if (!strcmp(way, "chain") && count > 0) {
        char left[24];
        snprintf(left, sizeof left, "%ld", count - 1);
        argv[2] = left;
        execv(argv[0], argv);
        return 127;
    }
    for (long i = 0; i < count; i++) {
        pthread_t thread;
        if (!strcmp(way, "thread")) {
            if (pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL)) return 1;
            continue;
        }
        pid_t child = strcmp(way, "turn") ? fork() : vfork();
        if (child < 0) return 1;
        if (child == 0) {
            execv(argv[3], argv + 3);
            _exit(127);
        }
        if (!strcmp(way, "turn")) reap(child);
    }
    if (!strcmp(way, "once"))
        for (long i = 0; i < count; i++) reap(-1);
    if (!strcmp(way, "chain") || !strcmp(way, "thread")) execv(argv[3], argv + 3);
    return failed;
}
