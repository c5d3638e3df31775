/* A chain of programs, each of which launches: `chain launch ROUNDS LEFT`. With LEFT the program starts itself again with
 * LEFT - 1: by posix_spawn, by vfork and exec, and finally by exec in its own process. */
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "matrix.h"

extern char **environ;

CASE static void link_of_chain(void) {
    ACT("link_of_chain");
}

int main(int argc, char **argv) {
    char left[16];
    char *arguments[] = {argv[0], argv[1], argv[2], left, NULL};
    start(argc, argv);
    while (again()) link_of_chain();
    end_cuda();
    if (atoi(argv[3]) == 0) return 0;
    snprintf(left, sizeof left, "%d", atoi(argv[3]) - 1);
    pid_t child;
    int status, failed = 0;
    if (posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ)) abort();
    failed |= waitpid(child, &status, 0) != child || status;
    child = vfork();
    if (child == 0) {
        execv("/proc/self/exe", arguments);
        _exit(127);
    }
    failed |= waitpid(child, &status, 0) != child || status;
    if (failed) return 1;
    execv("/proc/self/exe", arguments);
    return 127;
}
