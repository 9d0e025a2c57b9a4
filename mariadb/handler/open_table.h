/*
  A table that handlers have open: the library's handle, and the counters of hidden row ids and of
  AUTO_INCREMENT.

  Counters are kept in the table itself, in blocks: the stored value is at least what any row has,
  also a row of a transaction that is prepared. So a crash leaves a gap, and never gives a number
  twice.

  In a table whose rows expire they would expire too, and so would its layout. Then a table of the
  library's own keeps them, under a tag of the table, which renaming and TRUNCATE leave as it is, and
  which is the same on each machine that has a shared database. Which one
  has them is said by the time to live: they are copied before it is set, and written once it is taken
  away. Until that has succeeded the table has a mark there, and an opening reads them there.

  Thread safety: any thread. The registry has a lock, and each table has two: one is held while it
  stores what it keeps, the other one, taken behind it, for a look at memory alone. So nobody who
  reads waits for a disk.
*/
#ifndef TERRACE_HANDLER_OPEN_TABLE_H
#define TERRACE_HANDLER_OPEN_TABLE_H

#include "attributes.h"
#include "errors.h"
#include "follower.h"
#include "layout.h"
#include "online.h"
#include "server.h"

#include <atomic>
#include <mutex>

/* What to do with a table of another version. */
static const char HOW_TO_BRING[] = "Start the version that has written it, dump the table there with "
                                   "mariadb-dump, and load the dump here. DROP TABLE works here";

class Open_table
{
public:
  /* The table of a name, opened if no handler has it open. NULL after an error. */
  static Open_table *acquire(const Bytes &name, Failure *failure);
  /*
    The same on a server that follows another one, for a definition: where the table has got another one
    since, or changes meanwhile, it is HA_ERR_TABLE_DEF_CHANGED.
  */
  static int follow(const Bytes &name, const TABLE_SHARE *definition, Open_table **open,
                    Failure *failure);
  static void release(Open_table *table);
  /* When the plugin starts: looks for the table that keeps what others cannot. */
  static void find_keeper();
  /* Forgets what is known of a table that is dropped; keeps it under another name. */
  static void forget(const Bytes &name);
  static void rename(const Bytes &from, const Bytes &to);

  /* As of now: a rename has the table for itself. */
  const Bytes &name_of_table() const { return name; }

  /* The next hidden row id. */
  int next_row_id(THD *thd, ulonglong *id);
  /* Takes count numbers of AUTO_INCREMENT. *first is ULONGLONG_MAX where there are none left. */
  int take_auto_increment(THD *thd, ulonglong offset, ulonglong step, ulonglong count,
                          ulonglong *first);
  /* A row has this number. */
  int saw_auto_increment(THD *thd, ulonglong value);
  int set_auto_increment(THD *thd, ulonglong next);
  ulonglong auto_increment();

  /*
    Gives the table the attributes of a definition: once for its opening, or now. A shorter life
    waits for the opening if the definition is not durable yet: rows that expire do not come back.
  */
  int reconcile(THD *thd, const ha_table_option_struct *attributes);
  int set_attributes(THD *thd, const ha_table_option_struct *attributes, bool is_durable = false);
  /* Whether rows expire. A row and its entries are written together then, so that they agree. */
  bool expires() const { return has_ttl_now; }
  /* The table was dropped: what is kept of it elsewhere goes too. */
  void drop_own();
  /* After the table was emptied. */
  int begin_anew(THD *thd);

  /* What its layout says; none where it was never altered in place. */
  Layout_ref layout();
  int set_layout(THD *thd, const Layout &layout, uint durability = TERRACE_DURABLE);
  /* Gives a table that has neither rows nor a layout the one of its definition. */
  int begin_layout(THD *thd, const Layout &of_definition);
  /* Before a row is written: what is kept beside rows is stored, where that has failed. */
  int before_write(THD *thd);
  /* The table was made or emptied: views from before do not see its rows. */
  void note_made();
  /* The moment of that; 0 for before the server started, and for temporary tables. */
  ulonglong made_at() const { return made; }
  /* Indexes were built: views from before do not see their entries. */
  void note_new_indexes(const std::vector<uint> &numbers);
  /* The moment from which on views see the entries of an index. */
  ulonglong built_at(uint number);

  /* What an ALTER TABLE builds while others write; none mostly. builds() changes with it. */
  Build_ref build();
  void set_build(const Build_ref &of_change);
  ulonglong builds() const { return builds_so_far; }

  /* The number of rows, about, and the bytes they take; renewed once a second, or now. */
  void estimate(bool now, ulonglong *rows, ulonglong *row_bytes,
                ulonglong *index_bytes);

  /* How many values the first parts of an index have, by number of parts; empty for unknown, or
     where the table has grown to more than twice the rows since. */
  std::vector<ulonglong> values_of(uint index, ulonglong rows);
  void set_values_of(uint index, ulonglong rows, const std::vector<ulonglong> &values);
  /* Keeps them beside the rows, for later openings. The entries of an index are no longer its. */
  int keep_values(THD *thd);
  void forget_values_of(uint index);

  terrace_table *table = nullptr;
  /* What it was opened as, on a server that follows another one. */
  Stamp stamp;
  /* An ALTER TABLE in place is under way: the layout has names that no definition has. */
  std::atomic<bool> is_altered{false};

private:
  struct Counter
  {
    ulonglong next = 1;
    ulonglong stored = 1;
    ulonglong block = 1;
  };

  /* The keys of what a table keeps beside its rows. */
  static const Bytes COUNTERS, LAYOUT, VALUES;

  /* What SHOW TABLE STATUS and the optimizer ask for. */
  struct Sizes
  {
    ulonglong rows, row_bytes, index_bytes;
  };

  void give_numbers_back();
  int load(Failure *failure);
  int load_layout(Failure *failure);
  int load_values(Failure *failure);
  int store(THD *thd);
  int put_counters(THD *thd, ulonglong of_ids, ulonglong of_numbers);
  terrace_table *place_of(bool of_expiring, const Bytes &key, Bytes *placed, Failure *failure);
  int put_own(THD *thd, const Bytes &key, const Bytes &value, uint durability);
  terrace_status get_own(const Bytes &key, Bytes *value, Failure *failure);
  int move_own(THD *thd, const terrace_table_options *wanted);
  int write_own(THD *thd);
  Bytes record_of_values();
  ulonglong former_number(Failure *failure) const;
  int find_number(Failure *failure);
  int find_number(const terrace_table_options *options, Failure *failure);
  int take_tag(terrace_table_options *options, Failure *failure);
  int set_mark(THD *thd, bool is_set);
  int find_mark(Failure *failure);
  int reserve(THD *thd, Counter *counter);

  /*
    Have the lock of the registry. One that gives numbers back is a user until it has done so. One that
    is loaded has a place in the registry, and others who want it wait.
  */
  Bytes name;
  uint users = 0;
  bool is_loading = true;
  std::atomic<ulonglong> made{0};
  /* Where rows expire, and the table that keeps its counters. */
  std::atomic<bool> has_ttl_now{false};
  std::atomic<bool> is_reconciled{false};
  /*
    What is kept may not be stored: it was kept elsewhere before rows stopped to expire, or a
    TRUNCATE or a crash has removed it.
  */
  std::atomic<bool> is_unwritten{false};
  /* What is kept lies elsewhere still, though rows do not expire any more. No row is written before
     it lies here. */
  bool is_marked = false;
  /* The tag of the table, or the library's number of it where it has none. 0 while it is not known. */
  ulonglong number = 0;
  terrace_table *keeper = nullptr;
  /* Held while what is kept is stored, and what is above changes. */
  std::mutex storing;
  /* Of all below, and over no call of the library. What `stored` says changes with both. */
  std::mutex lock;
  Counter row_ids, numbers;
  Layout_ref layout_now;
  Build_ref build_now;
  std::atomic<ulonglong> builds_so_far{0};
  struct Values
  {
    ulonglong rows;
    std::vector<ulonglong> of_parts;
  };
  std::map<uint, Values> values;
  ulonglong estimated_at = 0;
  Sizes sizes = {0, 0, 0};
};

#endif
