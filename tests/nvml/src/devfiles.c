/* Boards that this process may not open are hidden, as a device cgroup makes a real driver hide
 * them: with `device_files = 1` a session shows the boards whose /dev/nvidia<minor> is not refused,
 * and numbers them from 0. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "calls.h"

static volatile u64 hidden; /* one bit a board; as it was when the session began */

void look_at_device_files(const struct scenario *c) {
    u64 found = 0;
    for (int i = 0; i < c->gpu_count; i++) {
        char path[64];
        if (c->enumerate_once && c->gpu[i].absent) found |= 1ULL << i;
        if (!c->device_files) continue;
        snprintf(path, sizeof path, "/dev/nvidia%d", c->gpu[i].minor);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd >= 0) close(fd);
        else if (errno != ENXIO && errno != ENODEV) found |= 1ULL << i; /* those: no driver, but allowed */
    }
    hidden = found;
}

int is_hidden(const struct scenario *c, int gpu) {
    return (hidden >> gpu & 1) || (!c->enumerate_once && c->gpu[gpu].absent);
}

int visible_gpu(const struct scenario *c, uint index) {
    for (int i = 0; i < c->gpu_count; i++)
        if (!is_hidden(c, i) && index-- == 0) return i;
    return -1;
}

int visible_index(const struct scenario *c, int gpu) {
    int index = 0;
    for (int i = 0; i < gpu; i++) index += !is_hidden(c, i);
    return index;
}
