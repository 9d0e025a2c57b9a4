/*
  The server's headers, in the order that they need, and the C interface of Terrace.
*/
#ifndef TERRACE_HANDLER_SERVER_H
#define TERRACE_HANDLER_SERVER_H

#ifndef MYSQL_SERVER
#define MYSQL_SERVER 1
#endif

#include "my_global.h"
#include "sql_class.h"
#include "sql_priv.h"
#include "handler.h"
#include "key.h"
#include "log.h"
#include "my_bit.h"
#include "sql_lex.h"
#include "sql_table.h"
#include <mysql/plugin.h>

#undef min
#undef max

#include "terrace.h"

#include <string>

/* A key or a row in bytes. */
typedef std::string Bytes;

/* A value that a read has found, without a copy, until it goes out of scope. */
class Found_value
{
public:
  Found_value() : found() {}
  ~Found_value() { terrace_value_release(&found); }
  Found_value(const Found_value &) = delete;
  Found_value &operator=(const Found_value &) = delete;

  /* Where a read puts it; once. */
  terrace_value *out() { return &found; }
  const char *data() const { return found.data; }
  size_t length() const { return found.len; }

private:
  terrace_value found;
};

/* A table of the library until it goes out of scope; none where the call that made it has failed. */
class Table_ref
{
public:
  explicit Table_ref(terrace_table *made) : table(made) {}
  ~Table_ref() { terrace_table_free(table); }
  Table_ref(const Table_ref &) = delete;
  Table_ref &operator=(const Table_ref &) = delete;
  operator terrace_table *() const { return table; }

private:
  terrace_table *table;
};

#endif
