/* Makes every sync of a file take SLOW_DISK_MS longer. Loaded by LD_PRELOAD; see measured.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

typedef int (*sync_function)(int);

static int slowly(const char *name, int descriptor)
{
    const char *given = getenv("SLOW_DISK_MS");
    double milliseconds = given ? atof(given) : 0.0;
    struct timespec pause = {(time_t)(milliseconds / 1000.0), 0};
    pause.tv_nsec = (long)((milliseconds - 1000.0 * (double)pause.tv_sec) * 1e6);
    nanosleep(&pause, NULL);
    return ((sync_function)dlsym(RTLD_NEXT, name))(descriptor);
}

int fdatasync(int descriptor) { return slowly("fdatasync", descriptor); }

int fsync(int descriptor) { return slowly("fsync", descriptor); }
