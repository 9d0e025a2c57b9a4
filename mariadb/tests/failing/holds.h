/* What holds calls of the library. */
#ifndef TERRACE_TESTS_HOLDS_H
#define TERRACE_TESTS_HOLDS_H

#include "terrace.h"

/* Does not return while a test holds the calls of this name. */
void hold(const char *name);

#endif
