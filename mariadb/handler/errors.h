/*
  Errors of the library as errors of the server.
*/
#ifndef TERRACE_HANDLER_ERRORS_H
#define TERRACE_HANDLER_ERRORS_H

#include "server.h"

/* What a call of the library failed with. It frees the error when it goes out of scope. */
class Failure
{
public:
  Failure() = default;
  ~Failure() { terrace_error_free(error); }
  Failure(const Failure &) = delete;
  Failure &operator=(const Failure &) = delete;

  /* What calls take as their last argument. */
  terrace_error **out() { return &error; }
  terrace_status status() const { return terrace_error_status(error); }
  const char *message() const { return terrace_error_message(error); }

  /*
    The handler error for the last failed call. A deadlock and a conflict mark the transaction of
    the connection, because the library has rolled it back.
  */
  int handler_error(THD *thd) const;

private:
  terrace_error *error = nullptr;
};

/* The first error number that the server leaves to engines: its text is the library's message. */
static const int HA_ERR_TERRACE = HA_ERR_LAST + 1;

/* The message of the last failure of this thread with HA_ERR_TERRACE. */
const char *last_message();

/* Fails with a message of the handler's own. */
int fail_with(const char *message);

#endif
