/*
  What a test asks for, a sync of a directory, and moments before and behind it at which a test may kill the server.
*/
#ifndef TERRACE_TESTS_MOMENTS_H
#define TERRACE_TESTS_MOMENTS_H

/* Whether a test asks for this one: it does for one call at a time. */
bool is_asked(const char *name);
int sync_at_moments(int (*sync)(const char *, unsigned long), const char *file, unsigned long flags);

#endif
