/*
  Tables that a statement uses because of a foreign key, and that the server has not opened for it:
  parents that are looked into, and children that are looked into or changed.

  A statement takes the server's lock of the table's metadata first, until the end of its transaction.
  So no statement of DDL changes or drops the table while the transaction counts on its rows. The
  table is one of the server's cache where one is free there. Otherwise it is opened for the statement
  alone, because what lies in the cache has its triggers, and a foreign key fires none.

  A cascade may come back to a table that it is at. It gets another opening of it then: each has its
  own records.

  Thread safety: the connection's thread.
*/
#ifndef TERRACE_HANDLER_LINKED_H
#define TERRACE_HANDLER_LINKED_H

#include "errors.h"
#include "server.h"

#include <memory>
#include <vector>

class ha_terrace;

/* One opening. */
class Linked_table
{
public:
  Linked_table() = default;
  ~Linked_table();
  Linked_table(const Linked_table &) = delete;
  Linked_table &operator=(const Linked_table &) = delete;

  /* Locks its metadata until the end of the transaction. It need not be there. */
  int lock(THD *thd, const Bytes &name, enum_mdl_type of_lock);
  /* As lock(). False where the engine has no such table, or where its error is set. */
  bool open(THD *thd, const Bytes &name, enum_mdl_type of_lock, int *error);
  /* As open(), for a look at its definition: waits for nothing, and keeps no lock. */
  bool look(THD *thd, const Bytes &name);
  /* As a statement does that changes rows. */
  int begin(THD *thd);
  ha_terrace *handler_of() const;

  TABLE *table = nullptr;
  Bytes name;
  bool is_busy = false;
  bool writes = false;

private:
  void name_it(THD *thd, const Bytes &name, enum_mdl_type of_lock, enum_mdl_duration until);
  bool open_locked(THD *thd, int *error);
  void close();

  TABLE_LIST list;
  bool has_begun = false, is_look = false;
};

/* Those of a statement. */
class Linked_tables
{
public:
  /* One that nobody uses, until its is_busy is taken back. NULL as for open(). */
  Linked_table *take(THD *thd, const Bytes &name, bool writes, int *error);
  void close() { all.clear(); }

private:
  std::vector<std::unique_ptr<Linked_table>> all;
};

#endif
