/* A command with a pid of the caller's choice, which must be free: how a pid comes round without 4 million processes.
 *
 *   as_pid PID COMMAND...   ends with the command's exit status, or with 99 if the pid cannot be had */
#define _GNU_SOURCE
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    pid_t wanted = argc > 2 ? atoi(argv[1]) : 0;
    struct clone_args arguments = {.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&wanted, .set_tid_size = 1};
    long child = syscall(SYS_clone3, &arguments, sizeof arguments);
    int status;

    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execv(argv[2], argv + 2);
        _exit(98);
    }
    if (child != wanted || waitpid(wanted, &status, 0) != wanted) {
        perror("as_pid");
        return 99;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 97;
}
