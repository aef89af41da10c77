/* The one assertion of the C tests: a failed one says where and ends the program. */
#ifndef HEADRACE_CHECK_H
#define HEADRACE_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#endif
