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
  /* Forgets it, before the call is tried again. */
  void clear()
  {
    terrace_error_free(error);
    error = nullptr;
  }

  /*
    The handler error for the last failed call. A row may be half written, so the whole statement
    has to fail: no handler of a function or a trigger goes on after it. A deadlock and a conflict
    end the transaction of the connection too, because the library has rolled it back.
  */
  int handler_error(THD *thd) const;

private:
  bool ends_transaction() const;

  terrace_error *error = nullptr;
};

/* An error whose text is the library's message. The server has no text for numbers of engines. */
static const int HA_ERR_TERRACE = HA_ERR_GENERIC;

/* The message of the last failure of this thread with HA_ERR_TERRACE, which is taken once. */
Bytes take_message();

/* Says an error where the server itself would say a number alone. Returns it. */
int tell(int error);

/* Fails with a message of the handler's own. */
int fail_with(const char *message);

#endif
