/* Every other symbol of nvml.h and of the Python binding: counted, then NOT_SUPPORTED. */
#include <string.h>

#include "calls.h"

#define STUB(function)          \
    API int function(void) {    \
        BEGIN_SYSTEM();         \
        RETURN(NOT_SUPPORTED);  \
    }
#include "stubs.inc"
