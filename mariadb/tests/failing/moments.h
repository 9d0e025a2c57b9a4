/*
  What a test asks for, moments at which it may kill the server, and a sync of a directory with one
  before and behind it.
*/
#ifndef TERRACE_TESTS_MOMENTS_H
#define TERRACE_TESTS_MOMENTS_H

#include "terrace.h"

/* Whether a step of a rename finds a full disk. It is refused otherwise, and says that. */
bool is_full();
terrace_status as_full(terrace_error **error);
bool is_of_full(const terrace_error *error);
/* Whether a test asks for this one: it does for one call at a time. */
bool is_asked(const char *name);
void moment();
/* Kills the server where rows of definitions and files differ, if a test asks for that. */
void compare_definitions();
int sync_at_moments(int (*sync)(const char *, unsigned long), const char *file, unsigned long flags);

#endif
