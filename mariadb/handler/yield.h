/*
  Points at which a test holds a connection, so that others come in between: as the server's own
  DEBUG_SYNC, for a server that is no debug build. Only a plugin for tests has them, in the files that
  name this macro (xtask/src/mariadb/build.rs).
*/
#ifndef TERRACE_HANDLER_YIELD_H
#define TERRACE_HANDLER_YIELD_H

#ifdef TERRACE_YIELDS
/* Returns once no test holds the point. */
void terrace_yield(const char *point);
#define YIELD(point) terrace_yield(point)
#else
#define YIELD(point) static_cast<void>(0)
#endif

#endif
