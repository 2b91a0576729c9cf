/* Prints the layout of every struct, for the comparison with the Python binding's ctypes:
 * "struct NAME SIZE" and "member NAME MEMBER OFFSET SIZE" lines. */
#include <stddef.h>
#include <stdio.h>

#include "abi.h"

int main(void) {
#define STRUCT(ours, theirs) printf("struct %s %zu\n", #theirs, sizeof(ours));
#define MEMBER(ours, theirs, member)                                                \
    printf("member %s %s %zu %zu\n", #theirs, #member, offsetof(ours, member),      \
           sizeof(((ours *)0)->member));
#include "layout.inc"
    return 0;
}
