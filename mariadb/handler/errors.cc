#include "errors.h"

static thread_local std::string message_of_thread;

const char *last_message() { return message_of_thread.c_str(); }

int fail_with(const char *message)
{
  message_of_thread = message;
  return HA_ERR_TERRACE;
}

int Failure::handler_error(THD *thd) const
{
  switch (status())
  {
  case TERRACE_OK:
    return 0;
  case TERRACE_CONFLICT:
  case TERRACE_DEADLOCK:
    if (thd)
      thd->mark_transaction_to_rollback(true);
    return HA_ERR_LOCK_DEADLOCK;
  case TERRACE_TIMEOUT:
    // A statement that is killed does not wait.
    return thd && thd_kill_level(thd) != THD_IS_NOT_KILLED ? HA_ERR_ABORTED_BY_USER
                                                           : HA_ERR_LOCK_WAIT_TIMEOUT;
  case TERRACE_FULL:
    sql_print_error("Terrace: %s", message());
    return HA_ERR_RECORD_FILE_FULL;
  case TERRACE_CORRUPT:
    sql_print_error("Terrace: %s", message());
    return HA_ERR_CRASHED;
  case TERRACE_CLOSED:
    // The only way for a transaction to end without its connection is a kill.
    if (!thd)
      break;
    thd->mark_transaction_to_rollback(true);
    if (thd_kill_level(thd) != THD_IS_NOT_KILLED)
      return HA_ERR_ABORTED_BY_USER;
    break;
  case TERRACE_UNAVAILABLE:
  case TERRACE_BUSY:
  case TERRACE_FENCED:
  case TERRACE_UNKNOWN_OUTCOME:
  case TERRACE_INTERNAL:
    sql_print_error("Terrace: %s", message());
    break;
  default:
    break;
  }
  return fail_with(message());
}
