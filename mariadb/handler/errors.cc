#include "errors.h"
#include "role.h"

static thread_local std::string message_of_thread;

Bytes take_message()
{
  Bytes message;
  message.swap(message_of_thread);
  return message;
}

int tell(int error)
{
  if (error == HA_ERR_TERRACE && !message_of_thread.empty())
    my_printf_error(ER_GET_ERRMSG, "Got error %d '%s' from Terrace", MYF(0), error,
                    take_message().c_str());
  return error;
}

int fail_with(const char *message)
{
  message_of_thread = message;
  return HA_ERR_TERRACE;
}

/* Whether the library has rolled the transaction back. */
bool Failure::ends_transaction() const
{
  return status() == TERRACE_CONFLICT || status() == TERRACE_DEADLOCK || status() == TERRACE_CLOSED;
}

int Failure::handler_error(THD *thd) const
{
  if (thd && status() != TERRACE_OK)
    thd->mark_transaction_to_rollback(thd->transaction_rollback_request || ends_transaction());
  switch (status())
  {
  case TERRACE_OK:
    return 0;
  case TERRACE_CONFLICT:
  case TERRACE_DEADLOCK:
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
    if (thd && thd_kill_level(thd) != THD_IS_NOT_KILLED)
      return HA_ERR_ABORTED_BY_USER;
    break;
  case TERRACE_MISSING_TABLE:
  case TERRACE_INVALID:
    // The writer has dropped or emptied the table since the view, or the open handle, was taken.
    if (follows())
      return HA_ERR_TABLE_DEF_CHANGED;
    break;
  case TERRACE_FENCED:
    // Another opening may have the store of tables with TERRACE_TIER alone: then it stops.
    if (has_role())
      begin_fenced(message());
    [[fallthrough]];
  case TERRACE_UNAVAILABLE:
  case TERRACE_BUSY:
  case TERRACE_UNKNOWN_OUTCOME:
  case TERRACE_INTERNAL:
    sql_print_error("Terrace: %s", message());
    break;
  default:
    break;
  }
  return fail_with(message());
}
