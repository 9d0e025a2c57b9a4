/*
  A table that handlers have open: the library's handle, and the counters of hidden row ids and of
  AUTO_INCREMENT.

  Counters are kept in the table itself, in blocks: the stored value is at least what any row has,
  also a row of a transaction that is prepared. So a crash leaves a gap, and never gives a number
  twice.

  Thread safety: any thread. The registry has a lock, and each table has one for its counters.
*/
#ifndef TERRACE_HANDLER_OPEN_TABLE_H
#define TERRACE_HANDLER_OPEN_TABLE_H

#include "errors.h"
#include "layout.h"
#include "server.h"

#include <atomic>
#include <mutex>

class Open_table
{
public:
  /* The table of a name, opened if no handler has it open. NULL after an error. */
  static Open_table *acquire(const Bytes &name, Failure *failure);
  static void release(Open_table *table);
  /* Forgets what is known of a table that is dropped; keeps it under another name. */
  static void forget(const Bytes &name);
  static void rename(const Bytes &from, const Bytes &to);

  const Bytes &name_at_opening() const { return name; }

  /* The next hidden row id. */
  int next_row_id(THD *thd, ulonglong *id);
  /* Takes count numbers of AUTO_INCREMENT. *first is ULONGLONG_MAX where there are none left. */
  int take_auto_increment(THD *thd, ulonglong offset, ulonglong step, ulonglong count,
                          ulonglong *first);
  /* A row has this number. */
  int saw_auto_increment(THD *thd, ulonglong value);
  int set_auto_increment(THD *thd, ulonglong next);
  ulonglong auto_increment();

  /* What its layout says; none where it was never altered in place. */
  Layout_ref layout();
  int set_layout(THD *thd, const Layout &layout);
  int drop_layout(THD *thd);
  /* Indexes were built: views from before do not see their entries. */
  void note_new_indexes(const std::vector<uint> &numbers);
  ulonglong built_at(uint number);

  /* The number of rows, about, and the bytes they take; renewed once a second, or now. */
  void estimate(bool now, ulonglong *rows, ulonglong *row_bytes,
                ulonglong *index_bytes);

  /* How many values the first parts of an index have, by number of parts; empty for unknown, or
     where the table has grown to more than twice the rows since. */
  std::vector<ulonglong> values_of(uint index, ulonglong rows);
  void set_values_of(uint index, ulonglong rows, const std::vector<ulonglong> &values);

  terrace_table *table = nullptr;
  /* An ALTER TABLE in place is under way: the layout has names that no definition has. */
  std::atomic<bool> is_altered{false};

private:
  struct Counter
  {
    ulonglong next = 1;
    ulonglong stored = 1;
    ulonglong block = 1;
  };

  int load(Failure *failure);
  int load_layout(Failure *failure);
  int store(THD *thd);
  int reserve(THD *thd, Counter *counter);

  Bytes name;
  uint users = 0;
  std::mutex lock;
  Counter row_ids, numbers;
  Layout_ref layout_now;
  struct Values
  {
    ulonglong rows;
    std::vector<ulonglong> of_parts;
  };
  std::map<uint, Values> values;
  ulonglong estimated_at = 0, rows = 0, row_bytes = 0, index_bytes = 0;
};

#endif
