/*
  Indexes that an ALTER TABLE builds while others write to the table.

  The argument why the index is whole in the end:

  1. The build is published while the ALTER TABLE has the table for itself, and after it has waited
     for transactions that XA has prepared. So every transaction that writes a row later keeps the
     new index as well: it puts the entry that the row gets, and removes the one that it had.
  2. The builder goes through the rows in pieces. It locks a piece against writers, reads its newest
     rows, puts an entry for each, commits, and unlocks. So an entry that it puts is that of the row,
     and a writer that changes the row later finds it. A row that comes behind the builder, or before
     it, has its entry from its writer.
  3. An entry of a unique index holds its row's key. A writer removes it only if it is that of its
     own row: the row that has the value too may not have been built yet, or may have lost. A writer
     that finds another row's entry goes on, for it knows nothing of the index, and notes its row.
  4. The change is committed when the ALTER TABLE has the table for itself again. Each row that was
     noted is looked up then: it has no such value any more, or its entry is put, or the value is
     there twice and the change fails.

  After a kill the table has the old definition, and the next opening removes the entries (layout.h),
  or the new one: entries are committed before the change is, and commits keep their order. So does
  an opening after a rollback. A transaction under way may still put entries then. Nothing reads them,
  and the next index with the number removes them before it begins.

  Thread safety: any thread. What a build is of does not change; the rows noted have a lock.
*/
#ifndef TERRACE_HANDLER_ONLINE_H
#define TERRACE_HANDLER_ONLINE_H

#include "key_codec.h"
#include "server.h"

#include <memory>
#include <mutex>

class Build
{
public:
  /* An index that is built: the n-th of its definition, with a copy of what says so. */
  struct Index
  {
    uint number;
    KEY key;
    std::vector<KEY_PART_INFO> parts;
  };

  /* A row whose value another row has. */
  struct Noted
  {
    uint index;
    Bytes row;
  };

  void add(uint number, const KEY &key);
  /* Notes a row by the place of the index in the build. */
  void note(uint index, const Bytes &row);
  /* The rows noted. False if there are too many of them to look at. */
  bool noted(std::vector<Noted> *rows);

  std::vector<std::unique_ptr<Index>> indexes;

private:
  std::mutex lock;
  std::vector<Noted> rows;
  bool is_full = false;
};

typedef std::shared_ptr<Build> Build_ref;

/*
  Waits for all transactions that have locked rows, also for those that XA has prepared, as long as a
  statement waits for a lock. The caller keeps others from beginning.
*/
int wait_for_writers(THD *thd, terrace_table *table);

/* Whether a wait has gone on for so many seconds, or is to end. */
int fail_of_wait(THD *thd, ulonglong since, ulonglong seconds);

/*
  Removes all entries of an index. It waits for no lock: HA_ERR_LOCK_WAIT_TIMEOUT where a transaction
  has some of them locked. The next durable commit makes it durable.
*/
int remove_entries(THD *thd, terrace_table *table, uint number);

#endif
