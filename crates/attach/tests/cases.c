// Programs that are hard to enter. The first argument selects one.
// Each writes "ready", or "ready PID" for another process, runs until its standard input ends, then writes "ok".
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

static void ready(int pid) {
    char line[32];
    int size = pid ? snprintf(line, sizeof line, "ready %d\n", pid) : snprintf(line, sizeof line, "ready\n");
    if (write(1, line, size) != size) _exit(2);
}

static void until_end_of_input(void) {
    char byte;
    while (read(0, &byte, 1) > 0) {}
}

static volatile int stop;

static void handler(int signal) {
    ready(0);
    until_end_of_input();
}

static void *loads(void *unused) {
    while (!stop) {
        void *library = dlopen("libm.so.6", RTLD_NOW);
        if (!library) _exit(3);
        dlclose(library);
    }
    return 0;
}

static int locked[2], unlock[2];

static int holds(struct dl_phdr_info *info, size_t size, void *unused) {
    char byte = 1;
    if (write(locked[1], &byte, 1) != 1) _exit(4);
    read(unlock[0], &byte, 1);
    return 1;
}

static void *locks(void *unused) {
    dl_iterate_phdr(holds, 0);
    return 0;
}

static void *executes(void *unused) {
    usleep(3000);
    if (!stop) execl("/proc/self/exe", "cases", "execs", "again", (char *)0);
    return 0;
}

int main(int count, char **arguments) {
    const char *name = count > 1 ? arguments[1] : "";
    pthread_t thread;
    char byte;
    if (!strcmp(name, "handler")) {
        signal(SIGUSR1, handler);
        raise(SIGUSR1);
    } else if (!strcmp(name, "loads")) {
        pthread_create(&thread, 0, loads, 0);
        ready(0);
        until_end_of_input();
        stop = 1;
        pthread_join(thread, 0);
    } else if (!strcmp(name, "execs")) {
        // Executes itself again and again. It may do so before the next line.
        if (count == 2) ready(0);
        pthread_create(&thread, 0, executes, 0);
        until_end_of_input();
        stop = 1;
        pthread_join(thread, 0);
    } else if (!strcmp(name, "locked")) {
        // Another thread holds a lock of the loader. The main thread may be borrowed.
        if (pipe(locked) || pipe(unlock)) return 5;
        pthread_create(&thread, 0, locks, 0);
        read(locked[0], &byte, 1);
        ready(0);
        until_end_of_input();
        close(unlock[1]);
        pthread_join(thread, 0);
    } else if (!strcmp(name, "seccomp")) {
        struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
        struct sock_fprog filter = {1, &allow};
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) return 6;
        ready(0);
        until_end_of_input();
    } else if (!strcmp(name, "traced") || !strcmp(name, "zombie")) {
        int traced = !strcmp(name, "traced");
        pid_t child = fork();
        if (!child && !traced) _exit(0);
        if (!child) {
            for (;;) pause();
        }
        siginfo_t info;
        if (traced ? ptrace(PTRACE_SEIZE, child, 0, 0) : waitid(P_PID, child, &info, WEXITED | WNOWAIT)) return 7;
        ready(child);
        until_end_of_input();
        kill(child, SIGKILL);
        waitpid(child, 0, 0);
    } else if (!strcmp(name, "vfork")) {
        // The child runs in the parent's memory, and the parent sleeps uninterruptibly.
        pid_t child = vfork();
        if (!child) {
            ready(getpid());
            until_end_of_input();
            _exit(0);
        }
        waitpid(child, 0, 0);
    } else {
        ready(0);
        until_end_of_input();
    }
    puts("ok");
    return 0;
}
