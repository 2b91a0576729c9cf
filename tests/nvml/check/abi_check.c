/* Compile-time comparison of src/abi.h with a real nvml.h:  make check NVML_H_DIR=... */
#include <stddef.h>

#include "nvml.h"

#include "../src/abi.h"

#define STRUCT(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #ours " size");
#define MEMBER(ours, theirs, member)                                         \
    _Static_assert(offsetof(ours, member) == offsetof(theirs, member) &&     \
                       sizeof(((ours *)0)->member) == sizeof(((theirs *)0)->member), \
                   #ours "." #member);
#include "../src/layout.inc"

/* GpmMetricsGet grows with every driver; a driver writes only the metrics asked for */
_Static_assert(offsetof(GpmMetricsGet, metrics) == offsetof(nvmlGpmMetricsGet_t, metrics), "GPM");
