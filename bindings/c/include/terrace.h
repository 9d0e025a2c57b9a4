/*
 * Terrace: an embedded, transactional key-value store. The C interface.
 *
 * This file is made out of the source of the library by `cargo xtask header`. Do not change it.
 *
 *     terrace_error *error = NULL;
 *     terrace_database *database = terrace_open("people.db", NULL, &error);
 *     terrace_table *table = database ? terrace_database_table(database, "users", &error) : NULL;
 *     terrace_value value;
 *     if (table &&
 *         terrace_table_put(table, "ada", 3, "1815", 4, TERRACE_DURABLE, &error) == TERRACE_OK &&
 *         terrace_table_get(table, "ada", 3, &value, &error) == TERRACE_OK) {
 *         printf("%.*s\n", (int)value.len, value.data);
 *         terrace_value_release(&value);
 *     }
 *     if (error)
 *         fprintf(stderr, "%s\n", terrace_error_message(error));
 *     terrace_close(database, NULL);
 *     terrace_table_free(table);
 *     terrace_database_free(database);
 *     terrace_error_free(error);
 *
 * bindings/c/examples has whole programs: a beginning, cursors, transactions that run again.
 *
 * Names. A function is called terrace_<type>_<verb>, and its first argument has that type.
 *
 * Ownership. A function that returns a pointer to a handle gives the handle to its caller, which
 * frees it with the function that its documentation names. Handles may be freed in any order: what
 * one of them needs of another stays until both are freed. To free NULL does nothing. To use a
 * handle after it was freed, or to free it twice, is undefined, as with free().
 * Keys, values, text and structures that are passed to a function stay the caller's. The library
 * copies what it keeps.
 * What a function lends (text of an error, a row of a cursor) belongs to the handle that its
 * documentation names, and is not freed.
 *
 * Lengths are in bytes, times in milliseconds. Keys and values may hold any bytes and need not end
 * with a zero. Bytes are NULL only with a length of 0. Names, options and messages are UTF-8 and
 * end with a zero; paths end with a zero.
 *
 * Errors. A function returns a terrace_status, or a handle that is NULL after an error. The last
 * argument of each function that can fail is a terrace_error **. NULL for it is allowed. Otherwise
 * the pointer that it points to must be NULL, or an error of an earlier call, which is freed and
 * replaced. After a success it is left as it was. TERRACE_NOT_FOUND and TERRACE_BUFFER_TOO_SMALL are
 * no errors, and set none. The library never aborts the process: a bug in it is TERRACE_INTERNAL.
 * Where a handle or an output must be there and is NULL, the call fails with TERRACE_INVALID.
 *
 * Threads. One thread at a time may use a terrace_cursor, terrace_batch, terrace_bulk_load,
 * terrace_value, or one of the three kinds of options; it need not be the same thread each time.
 * Any threads may use all other handles at once. A handle is freed when no other thread uses it.
 * The library calls back functions of the program that it was given: terrace_merge_function,
 * terrace_progress_function, terrace_lock_wait_function, terrace_commit_function,
 * terrace_event_function, terrace_call, terrace_write_function, terrace_read_function. It holds locks
 * of its own while it calls the first three. So these call no function of the library but
 * terrace_merged_append.
 *
 * Closing. After terrace_close calls through handles of the database fail with TERRACE_CLOSED. A
 * cursor may first give rows that it has read ahead, or the end of a range in which no key can be.
 * Values and rows that were read stay valid until they are released.
 *
 * Forks. A child of a process with an open database must not use it. Calls fail there with
 * TERRACE_UNAVAILABLE; those that end a transaction or its wait by number find none. The child may
 * free its handles.
 *
 * Versions. terrace_version() and terrace_abi_version() say what the library has, and
 * TERRACE_VERSION_MAJOR, TERRACE_VERSION_MINOR, TERRACE_VERSION_PATCH and TERRACE_ABI_VERSION what
 * this header has. Structures that may grow are passed with their size.
 */


#ifndef TERRACE_H
#define TERRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * The version of the interface, with which the name of the shared library ends: libterrace.so.3.
 * A release that removes a function or changes an argument raises it. Programs must be compiled
 * again then.
 * TERRACE_VERSION_MAJOR, _MINOR and _PATCH tell what was added.
 */
#define TERRACE_ABI_VERSION 3

/**
 * The version of the library that this header belongs to: 0 in 0.1.2.
 */
#define TERRACE_VERSION_MAJOR 0

/**
 * As TERRACE_VERSION_MAJOR: 1 in 0.1.2.
 */
#define TERRACE_VERSION_MINOR 1

/**
 * As TERRACE_VERSION_MAJOR: 2 in 0.1.2.
 */
#define TERRACE_VERSION_PATCH 0

/**
 * No bound: the range goes on to the first or the last key. It is zero, so that a range of zeros
 * is the whole table.
 */
#define TERRACE_UNBOUNDED 0

/**
 * A bound that belongs to the range.
 */
#define TERRACE_INCLUDED 1

/**
 * A bound that does not belong to the range.
 */
#define TERRACE_EXCLUDED 2

/**
 * As the lower bound: all keys that begin with it. The upper bound must be TERRACE_UNBOUNDED.
 */
#define TERRACE_PREFIX 3

/**
 * As a kind of options: those of terrace_options_set.
 */
#define TERRACE_DATABASE_OPTIONS 0

/**
 * As a kind of options: those of terrace_table_options_set.
 */
#define TERRACE_TABLE_OPTIONS 1

/**
 * As a kind of options: those of terrace_transaction_options_set.
 */
#define TERRACE_TRANSACTION_OPTIONS 2

/**
 * A commit survives a power cut once its call has returned.
 */
#define TERRACE_DURABLE 0

/**
 * A commit survives the death of the process, not a power cut. Commits keep their order.
 */
#define TERRACE_RELAXED 1

/**
 * A commit survives the machine once its call has returned: the shared store has it.
 */
#define TERRACE_REMOTE 2

/**
 * A cursor of a transaction reads, and locks what its isolation level says.
 */
#define TERRACE_READ 0

/**
 * A cursor locks its whole range at once, with the gaps between rows.
 */
#define TERRACE_FOR_UPDATE 1

/**
 * A cursor locks each row that it moves to, and leaves out rows that others have locked.
 */
#define TERRACE_SKIP_LOCKED 2

/**
 * A cursor reads what is committed when it is sent somewhere, whatever view the transaction holds,
 * and locks nothing. It is for callers that lock rows one by one, and read them with the lock.
 */
#define TERRACE_READ_NEWEST 3

/**
 * A cursor locks its whole range at once, with the gaps between rows. Others may do so too.
 */
#define TERRACE_FOR_SHARE 4

/**
 * As a wait for locks: not at all. A call that would have to wait fails with TERRACE_TIMEOUT.
 */
#define TERRACE_NO_WAIT 0

/**
 * As a wait for locks: until the lock is free. Deadlocks are found all the same.
 */
#define TERRACE_WAIT_ENDLESS UINT64_MAX

/**
 * How a call ended. Programs decide on it, and people read the message of the error.
 */
typedef enum terrace_status {
  /**
   * It did what it says.
   */
  TERRACE_OK = 0,
  /**
   * The key is not there, or the cursor has no row that way. There is no error object.
   */
  TERRACE_NOT_FOUND = 1,
  /**
   * The buffer is too small. The call says how many bytes it takes. There is no error object.
   */
  TERRACE_BUFFER_TOO_SMALL = 2,
  /**
   * The request can never succeed as it stands: a NULL pointer, an option out of bounds, a write
   * to a database that is open read-only. Change the request.
   */
  TERRACE_INVALID = 16,
  /**
   * Another transaction changed what this one read or wrote. It was rolled back; run it again.
   */
  TERRACE_CONFLICT = 17,
  /**
   * Two transactions waited for each other. This one was rolled back; run it again.
   */
  TERRACE_DEADLOCK = 18,
  /**
   * A deadline passed. Try later or wait longer.
   */
  TERRACE_TIMEOUT = 19,
  /**
   * Space ran out: disk, persistent memory or memory. Free some; reads go on meanwhile.
   */
  TERRACE_FULL = 20,
  /**
   * Something outside failed, or the database stopped after an earlier failure. Mend the cause,
   * then open again. A forked child gets this for a database of its parent.
   */
  TERRACE_UNAVAILABLE = 21,
  /**
   * A commit was under way when something failed; the message says which of two cases it is. The
   * device failed and the database stopped: the commit may or may not be there after the next
   * opening. Or a TERRACE_REMOTE commit is durable on this machine, and the shared store has not
   * acknowledged it: it is here, and the database goes on.
   */
  TERRACE_UNKNOWN_OUTCOME = 22,
  /**
   * Stored bytes are not what was written. terrace_error_damage has the place.
   */
  TERRACE_CORRUPT = 23,
  /**
   * The database was closed, or what the handle stood for has ended.
   */
  TERRACE_CLOSED = 24,
  /**
   * The library has a bug. Close the database, and report the message.
   */
  TERRACE_INTERNAL = 25,
  /**
   * Another opening took the object store of the database over. Close this one.
   */
  TERRACE_FENCED = 26,
  /**
   * There is no database in the directory. Name another one, or create a database.
   */
  TERRACE_MISSING_DATABASE = 27,
  /**
   * There is no table of that name, or the table of the handle was dropped.
   */
  TERRACE_MISSING_TABLE = 28,
  /**
   * What was to be made is there already: a database, a table, a file, a key of a bulk load, a
   * prepared transaction.
   */
  TERRACE_EXISTS = 29,
  /**
   * A key, a value, a name, a batch or a transaction is over its limit. Split it, or raise the
   * limit where there is an option.
   */
  TERRACE_TOO_LARGE = 30,
  /**
   * A typed table was opened with other types than it was written with.
   */
  TERRACE_WRONG_TYPE = 31,
  /**
   * Another process has the database open, or another caller changes the backup set. Close it
   * there, or try later.
   */
  TERRACE_BUSY = 32,
  /**
   * The function of terrace_options_set_progress ended the call.
   */
  TERRACE_CANCELLED = 33,
} terrace_status;

/**
 * The backups of a set, as of the call that made the list.
 */
typedef struct terrace_backup_list terrace_backup_list;

/**
 * A directory of backups of one database. Any thread may use it.
 */
typedef struct terrace_backup_set terrace_backup_set;

/**
 * Writes to any tables of one database, which become visible and durable together or not at all.
 * Not for several threads at once. terrace_database_write and terrace_database_enqueue commit it.
 */
typedef struct terrace_batch terrace_batch;

/**
 * A load of keys in ascending order, each once, into one table: straight to disk, all of them or
 * none. Not for several threads at once.
 */
typedef struct terrace_bulk_load terrace_bulk_load;

/**
 * A position in a range of a table, all as of one moment. Not for several threads at once; it may
 * move between them. It is on a row, before the first one, behind the last one, or nowhere. A new
 * cursor is nowhere: its first step goes to the first row, or backwards to the last one.
 */
typedef struct terrace_cursor terrace_cursor;

/**
 * An open database. Any thread may use it, several at once.
 */
typedef struct terrace_database terrace_database;

/**
 * Why a call failed: a status, a message, and perhaps a damaged place.
 *
 * Thread safety: it never changes, and any thread may read it.
 */
typedef struct terrace_error terrace_error;

/**
 * A database that shows what the writer of a shared store commits: a follower, or a standby, which
 * can become the writer. Any thread may use it, several at once.
 */
typedef struct terrace_follower terrace_follower;

/**
 * Where a merge operator puts its result.
 */
typedef struct terrace_merged terrace_merged;

/**
 * Numbers with the names that they have in terrace_database_metrics_text.
 */
typedef struct terrace_metrics terrace_metrics;

/**
 * A page that is served. Any thread may use it.
 */
typedef struct terrace_monitor terrace_monitor;

/**
 * How to open a database. Not for several threads at once; any number of openings may use it, one
 * after the other.
 */
typedef struct terrace_options terrace_options;

/**
 * Text that C owns.
 */
typedef struct terrace_string terrace_string;

/**
 * A commit that has its place in the order. Any thread may wait for it. Commits become visible in
 * the order in which they were enqueued.
 */
typedef struct terrace_pending terrace_pending;

/**
 * A list of prepared transactions, as of the call that made it.
 */
typedef struct terrace_prepared_list terrace_prepared_list;

/**
 * What was checked or rescued, and each damage that was found. It never changes; any thread may
 * read it.
 */
typedef struct terrace_report terrace_report;

/**
 * Every table as it was at one moment. Any thread may use it, several at once. While it lives, the
 * versions that it sees are kept.
 */
typedef struct terrace_snapshot terrace_snapshot;

/**
 * A list of text.
 */
typedef struct terrace_strings terrace_strings;

/**
 * A named, ordered map from bytes to bytes. Any thread may use it, several at once. It follows its
 * table through renaming and truncation, and keeps its database open.
 */
typedef struct terrace_table terrace_table;

/**
 * How a table is laid out. Not for several threads at once.
 */
typedef struct terrace_table_options terrace_table_options;

/**
 * Reads and writes that become visible and durable together, or not at all. Any thread may use it;
 * calls of several threads come one after the other. A call that fails with TERRACE_CONFLICT or
 * TERRACE_DEADLOCK has rolled it back; after any other error it goes on as before the call. Once
 * it has ended its calls fail with TERRACE_CLOSED.
 */
typedef struct terrace_transaction terrace_transaction;

/**
 * A list of transactions that run, as of the call that made it.
 */
typedef struct terrace_transaction_list terrace_transaction_list;

/**
 * How transactions behave. Any number of transactions may begin with it, from any thread, as long
 * as no call changes it meanwhile.
 */
typedef struct terrace_transaction_options terrace_transaction_options;

/**
 * Where stored bytes turned out wrong, and how. The text belongs to what the damage came from, an
 * error or a report, and lives as long.
 */
typedef struct terrace_damage {
  /**
   * The tier that holds the bytes: "pm", "journal", "ssd" or "backup".
   */
  const char *tier;
  /**
   * The file.
   */
  const char *file;
  /**
   * The structure, in the words of docs/format.md.
   */
  const char *what;
  /**
   * What a sound structure would hold.
   */
  const char *expected;
  /**
   * What was found.
   */
  const char *got;
  /**
   * Where the structure begins in the file, in bytes.
   */
  uint64_t offset;
} terrace_damage;

/**
 * A value that a read has found, kept alive without a copy. The structure is the caller's. It may
 * be moved, and not copied; terrace_value_release ends it. It keeps a block of memory, so copy
 * bytes that are kept for long. It stays valid when its table or its database is closed.
 */
typedef struct terrace_value {
  /**
   * The bytes; NULL when there is no value. A value of no bytes has another address.
   */
  const char *data;
  /**
   * How many bytes.
   */
  size_t len;
  /**
   * For the library.
   */
  const void *owner[4];
} terrace_value;

/**
 * Some bytes: an element of an array of keys.
 */
typedef struct terrace_slice {
  /**
   * Where they begin. NULL only without bytes.
   */
  const void *data;
  /**
   * How many bytes.
   */
  size_t len;
} terrace_slice;

/**
 * One end of a range.
 */
typedef struct terrace_bound {
  /**
   * The key; NULL only without bytes.
   */
  const void *key;
  /**
   * How many bytes it has.
   */
  size_t key_len;
  /**
   * TERRACE_UNBOUNDED, TERRACE_INCLUDED, TERRACE_EXCLUDED or TERRACE_PREFIX.
   */
  uint32_t kind;
} terrace_bound;

/**
 * A range of keys. It belongs to the caller, and a call copies what it needs. Where a range is
 * asked for, NULL stands for all keys.
 */
typedef struct terrace_range {
  /**
   * Where it begins.
   */
  struct terrace_bound lower;
  /**
   * Where it ends.
   */
  struct terrace_bound upper;
} terrace_range;

/**
 * A merge operator of the caller's. It makes the value of a key out of value, the one before, or
 * NULL if there is none, and operand. It gives the result to terrace_merged_append, and returns
 * true. If it returns false, the operation that needs the value fails with TERRACE_INVALID, and
 * the operands stay as they are.
 *
 * An operand has the form of a value, and the function is associative. It gives the same result
 * for the same input, always. Threads of the library and every thread that reads call it, several
 * at once. It calls no function of the library but terrace_merged_append, and returns normally: no
 * longjmp, and no exception of C++. What it is passed is valid until it returns.
 */
typedef bool (*terrace_merge_function)(void *context,
                                       const void *key,
                                       size_t key_len,
                                       const void *value,
                                       size_t value_len,
                                       const void *operand,
                                       size_t operand_len,
                                       struct terrace_merged *result);

/**
 * A row that a cursor has lent. It is valid until the next call on the cursor.
 */
typedef struct terrace_row {
  /**
   * The key.
   */
  const char *key;
  /**
   * How many bytes it has.
   */
  size_t key_len;
  /**
   * The value.
   */
  const char *value;
  /**
   * How many bytes it has.
   */
  size_t value_len;
} terrace_row;

/**
 * A prepared transaction. What it points to belongs to the list.
 */
typedef struct terrace_prepared {
  /**
   * The id that it was prepared under.
   */
  const char *id;
  /**
   * How many bytes the id has.
   */
  size_t id_len;
  /**
   * How many keys it has written.
   */
  uint64_t writes;
  /**
   * How many locks it holds.
   */
  uint64_t locks;
} terrace_prepared;

/**
 * A transaction that has not ended. What it points to belongs to the list.
 */
typedef struct terrace_transaction_info {
  /**
   * Its number.
   */
  uint64_t id;
  /**
   * How many milliseconds ago it began.
   */
  uint64_t age_ms;
  /**
   * How many locks it held after its last call.
   */
  uint64_t locks;
  /**
   * How many keys it had written after its last call.
   */
  uint64_t writes;
  /**
   * How many bytes these took in memory.
   */
  uint64_t memory;
  /**
   * How many bytes were spilled to disk.
   */
  uint64_t spilled;
  /**
   * The lock that it waits for, in words; NULL when it waits for none.
   */
  const char *waits_for;
  /**
   * Its isolation level, as terrace_transaction_isolation says it.
   */
  const char *isolation;
} terrace_transaction_info;

/**
 * Numbers of an open database. Counters start at its opening. Later versions of the library add
 * numbers at the end.
 */
typedef struct terrace_statistics {
  /**
   * The last commit that readers see.
   */
  uint64_t visible;
  /**
   * The last commit that survives a power cut.
   */
  uint64_t durable;
  /**
   * Commit groups.
   */
  uint64_t commit_groups;
  /**
   * Records in them.
   */
  uint64_t commit_records;
  /**
   * Syncs of the region's file.
   */
  uint64_t commit_syncs;
  /**
   * Milliseconds that writers were slowed down because the region was filling.
   */
  uint64_t throttled_ms;
  /**
   * Bytes of the region.
   */
  uint64_t pm_capacity;
  /**
   * Zones of the region, in units.
   */
  uint64_t pm_zones;
  /**
   * Zones that are taken, in units.
   */
  uint64_t pm_zones_used;
  /**
   * Records of the region that count.
   */
  uint64_t pm_live_records;
  /**
   * Bytes of extent files on the device.
   */
  uint64_t disk_file_bytes;
  /**
   * Of these, bytes that hold extents.
   */
  uint64_t disk_extent_bytes;
  /**
   * Bytes written to extents.
   */
  uint64_t disk_written_bytes;
  /**
   * Bytes read from extents.
   */
  uint64_t disk_read_bytes;
  /**
   * In so many reads.
   */
  uint64_t disk_reads;
  /**
   * Bytes that the block cache may hold.
   */
  uint64_t cache_capacity;
  /**
   * Bytes that it holds.
   */
  uint64_t cache_used;
  /**
   * Blocks found in it.
   */
  uint64_t cache_hits;
  /**
   * Blocks that had to be read.
   */
  uint64_t cache_misses;
  /**
   * The limit of memory in bytes; 0 without one.
   */
  uint64_t memory_limit;
  /**
   * Bytes of memory that the database holds.
   */
  uint64_t memory_held;
  /**
   * Columns drained to level 1.
   */
  uint64_t drains;
  /**
   * Merges between levels.
   */
  uint64_t compactions;
  /**
   * Jobs of the background that failed and were tried again.
   */
  uint64_t background_failures;
  /**
   * Snapshots held, those of cursors included.
   */
  uint64_t snapshots;
  /**
   * Tables.
   */
  uint64_t tables;
} terrace_statistics;

/**
 * Numbers of a table. Versions, deletes and expired records that were not compacted yet count.
 */
typedef struct terrace_table_statistics {
  /**
   * Records in the region: memtables and level 0.
   */
  uint64_t pm_records;
  /**
   * Bytes they take there.
   */
  uint64_t pm_bytes;
  /**
   * Records on disk, in levels.
   */
  uint64_t disk_records;
  /**
   * Bytes they take there, compressed; large values and spilled runs included.
   */
  uint64_t disk_bytes;
  /**
   * How long records live, in milliseconds; 0 for ever.
   */
  uint64_t ttl_ms;
} terrace_table_statistics;

/**
 * One backup of a set.
 */
typedef struct terrace_backup {
  /**
   * Its number in the set, from 1; a later one has a greater number.
   */
  uint64_t number;
  /**
   * The last commit that is in it.
   */
  uint64_t commit;
  /**
   * When it was begun, in seconds since 1970.
   */
  uint64_t created;
  /**
   * Tables in it.
   */
  uint64_t tables;
  /**
   * Extents in it.
   */
  uint64_t extents;
  /**
   * Bytes of them, and of values that lie apart.
   */
  uint64_t bytes;
  /**
   * Of these, bytes that the set had not from an earlier backup.
   */
  uint64_t added_bytes;
} terrace_backup;

/**
 * Takes the next bytes of a dump; whether it has taken all of them. They are valid until it
 * returns. The thread of the call calls it, and it returns normally.
 */
typedef bool (*terrace_write_function)(void *context, const void *data, size_t len);

/**
 * What a dump or a load has taken.
 */
typedef struct terrace_dump_report {
  /**
   * Tables, with all their rows.
   */
  uint64_t tables;
  /**
   * Rows of these tables.
   */
  uint64_t rows;
} terrace_dump_report;

/**
 * Gives the next bytes of a dump: it writes some to buffer, at most capacity, and returns how
 * many. 0 is the end of the dump, and SIZE_MAX a failure. The thread of the call calls it, and it
 * returns normally.
 */
typedef size_t (*terrace_read_function)(void *context, void *buffer, size_t capacity);

/**
 * A function that runs under a deadline. It returns normally: no longjmp, and no exception of C++.
 */
typedef void (*terrace_call)(void *context);

/**
 * Is told how far work is, and says whether it goes on. operation is "open", "verify", "backup",
 * "restore", "salvage" or "close"; done of total bytes are done, or steps of a closing. total is 0
 * as long as nothing is known. The thread of the call and threads of the library call it, for one
 * piece of work one at a time. Several pieces may be under way at once. Calls of the same database
 * in it fail with TERRACE_INVALID. It returns normally. The text is valid until then.
 */
typedef bool (*terrace_progress_function)(void *context,
                                          const char *operation,
                                          uint64_t done,
                                          uint64_t total);

/**
 * Is told that the transaction waiter is about to wait for a lock that holder has, or has asked
 * for before; once for each of them. A plain write has a number too. The waiting thread calls it:
 * it calls no function of the library, and returns normally.
 */
typedef void (*terrace_lock_wait_function)(void *context, uint64_t waiter, uint64_t holder);

/**
 * Is told of an event of a database. name is that of its kind, such as "drain" or "stall_begin".
 * json is an object without a line break: "event" is the name, "at_ms" the time in milliseconds
 * since 1970, "number" rises, "dropped" counts events that were left out right before. The other
 * fields are those of the kind. docs/operations.md has the kinds. Both texts are valid until the
 * function returns. A thread of the library calls it, which holds no lock; where a database is
 * promoted or taken over, that before may still tell its last events. It may take long, call the
 * library, and close the database. It returns normally.
 */
typedef void (*terrace_event_function)(void *context, const char *name, const char *json);

/**
 * Is told how a commit has ended, as terrace_pending_wait says it. The error is NULL after
 * TERRACE_OK, and valid until the function returns. A thread of the library calls it, which other
 * commits wait for, or one that is in terrace_pending_wait. It returns soon, and normally. It
 * waits for no commit and closes no database.
 */
typedef void (*terrace_commit_function)(void *context,
                                        enum terrace_status status,
                                        const struct terrace_error *error);

/**
 * How far a follower or a standby is.
 */
typedef struct terrace_node_status {
  /**
   * Its last commit, by the numbers of the writer. It only grows.
   */
  uint64_t commit;
  /**
   * The last entry of the log that it has applied.
   */
  uint64_t entry;
  /**
   * Milliseconds since it last knew that there is no more; UINT64_MAX until it has come to the
   * end once.
   */
  uint64_t lag_ms;
  /**
   * How often it has started from a checkpoint.
   */
  uint64_t restarts;
  /**
   * How often the writer had deleted what it had not yet applied, or what it reads.
   */
  uint64_t missed;
  /**
   * Reads of the store.
   */
  uint64_t gets;
} terrace_node_status;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the interface that the library has. It is TERRACE_ABI_VERSION of the header that
 * the program was compiled with, unless the program was linked with another library.
 */
uint32_t terrace_abi_version(void);

/**
 * The version of the library as text, such as "0.1.0". It is static.
 */
const char *terrace_version(void);

/**
 * The name of a status, such as "TERRACE_NOT_FOUND": static text. "unknown status" for a number
 * that is none, such as that of a later library.
 */
const char *terrace_status_name(int32_t status);

/**
 * The status of an error, from TERRACE_INVALID on. TERRACE_OK for NULL.
 */
enum terrace_status terrace_error_status(const struct terrace_error *error);

/**
 * What happened and what to do about it, with names and numbers: UTF-8 that ends with a zero byte.
 * It belongs to the error. Empty text for NULL.
 */
const char *terrace_error_message(const struct terrace_error *error);

/**
 * Whether the transaction that failed was rolled back and is best run again: a conflict or a
 * deadlock.
 */
bool terrace_error_is_retryable(const struct terrace_error *error);

/**
 * The damaged place of an error with TERRACE_CORRUPT; whether it has one. The text belongs to the
 * error. Nothing is written to *damage without a place.
 */
bool terrace_error_damage(const struct terrace_error *error, struct terrace_damage *damage);

/**
 * Frees an error. NULL is no error.
 */
void terrace_error_free(struct terrace_error *error);

/**
 * Frees text that a function has given away. NULL is no error.
 */
void terrace_string_free(struct terrace_string *string);

/**
 * The bytes of an owned text, which ends with a zero byte. It belongs to the object. Empty text
 * for NULL.
 */
const char *terrace_string_text(const struct terrace_string *string);

/**
 * Ends a value. It is empty afterwards, and may be released again. NULL is no error.
 */
void terrace_value_release(struct terrace_value *value);

/**
 * All options of a kind, two texts for each: its name, and behind it what it takes, in words. NULL
 * after an error. Free them with terrace_strings_free.
 *
 * Errors: TERRACE_INVALID for a kind that is none of TERRACE_DATABASE_OPTIONS,
 * TERRACE_TABLE_OPTIONS and TERRACE_TRANSACTION_OPTIONS.
 */
struct terrace_strings *terrace_option_names(uint32_t kind, struct terrace_error **error);

/**
 * Options with their defaults. Free them with terrace_options_free.
 */
struct terrace_options *terrace_options_new(void);

/**
 * Sets an option by its name, as text: "pm_size" to "256MiB", "mode" to "dax".
 * terrace_option_names has the names, each with what it takes. The documentation of the Rust type
 * Options has their meaning.
 *
 * Errors: TERRACE_INVALID for an unknown name, with the names there are, and for a value that the
 * option does not take, with what it takes. Nothing is changed then. Bounds are checked when a
 * database is opened.
 */
enum terrace_status terrace_options_set(struct terrace_options *options,
                                        const char *name,
                                        const char *value,
                                        struct terrace_error **error);

/**
 * Frees options. Databases that were opened with them stay as they are. NULL is no error.
 */
void terrace_options_free(struct terrace_options *options);

/**
 * Options of a table with their defaults. Free them with terrace_table_options_free.
 */
struct terrace_table_options *terrace_table_options_new(void);

/**
 * Sets an option of a table by its name, as text: block_size, filter_bits, ttl (such as "7d", or
 * "none"), large_values (such as "4KiB", or "none"), cold (ssd or object), merge_operator (the
 * name of one, or "none"), compression (such as "zstd", "lz4,zstd" for level 1 and deeper ones, or
 * "database"), level0 (global-index, matrix or triangle). With large_values, values of so many
 * bytes and more lie apart from their keys.
 *
 * Every database knows these merge operators: "counter" adds 64-bit integers in two's complement,
 * big-endian. "append" appends. "max" keeps the greater, in the order of bytes. "set_union" unites
 * sets: members in ascending order, each once and behind its length of four bytes, little-endian.
 * terrace_options_add_merge_operator registers others.
 *
 * Errors: as terrace_options_set. Bounds are checked when a table is created.
 */
enum terrace_status terrace_table_options_set(struct terrace_table_options *options,
                                              const char *name,
                                              const char *value,
                                              struct terrace_error **error);

/**
 * The value of an option of a table by its name, as text that terrace_table_options_set takes.
 * NULL after an error. Free it with terrace_string_free.
 *
 * Errors: TERRACE_INVALID for an unknown name, with the names there are.
 */
struct terrace_string *terrace_table_options_get(const struct terrace_table_options *options,
                                                 const char *name,
                                                 struct terrace_error **error);

/**
 * Frees options of a table. NULL is no error.
 */
void terrace_table_options_free(struct terrace_table_options *options);

/**
 * Options of transactions with their defaults: snapshot isolation with row locks, durable, 10 s of
 * waiting for a lock. Free them with terrace_transaction_options_free.
 */
struct terrace_transaction_options *terrace_transaction_options_new(void);

/**
 * Sets an option of transactions by its name, as text: isolation (read_committed, snapshot,
 * serializable), optimistic (on, off), lock_wait (such as "500ms"; no_wait, endless), durability
 * (durable, relaxed, remote), write_limit, spill_at and lock_limit (sizes).
 *
 * Errors: as terrace_options_set. What contradicts is refused when a transaction begins.
 */
enum terrace_status terrace_transaction_options_set(struct terrace_transaction_options *options,
                                                    const char *name,
                                                    const char *value,
                                                    struct terrace_error **error);

/**
 * Frees options of transactions. NULL is no error.
 */
void terrace_transaction_options_free(struct terrace_transaction_options *options);

/**
 * Opens the database in the directory path, and creates one where the directory is missing or
 * empty. Options may be NULL for the defaults. NULL after an error. Close the database with
 * terrace_close, then free it with terrace_database_free.
 *
 * Errors: TERRACE_EXISTS when the directory holds other files but no database; TERRACE_INVALID for
 * options out of bounds; TERRACE_BUSY when another process has it open; TERRACE_UNAVAILABLE;
 * TERRACE_FULL; TERRACE_CORRUPT.
 */
struct terrace_database *terrace_open(const char *path,
                                      const struct terrace_options *options,
                                      struct terrace_error **error);

/**
 * Creates a database in the directory path, which must be missing or empty. As terrace_open.
 *
 * Errors: TERRACE_EXISTS when there is something; otherwise as terrace_open.
 */
struct terrace_database *terrace_create(const char *path,
                                        const struct terrace_options *options,
                                        struct terrace_error **error);

/**
 * Opens an existing database. As terrace_open, but a directory without one is an error.
 *
 * Errors: TERRACE_MISSING_DATABASE when there is none; otherwise as terrace_open.
 */
struct terrace_database *terrace_open_existing(const char *path,
                                               const struct terrace_options *options,
                                               struct terrace_error **error);

/**
 * Opens an existing database to read. Several processes may do so at once, also
 * beside the one that has it open to write: it shows what was committed then, and
 * terrace_database_refresh what is committed later. As terrace_open.
 *
 * Errors: TERRACE_MISSING_DATABASE when there is none; otherwise as terrace_open.
 */
struct terrace_database *terrace_open_read_only(const char *path,
                                                const struct terrace_options *options,
                                                struct terrace_error **error);

/**
 * Opens a database once more that is open to read beside a process that writes: the new handle
 * shows what is committed by now. The old one goes on showing what it showed, and keeps disk space
 * until it is freed. Of any other database it is one more handle. NULL after an error. Free it
 * with terrace_database_free.
 *
 * Errors: as terrace_open_read_only; TERRACE_CLOSED.
 */
struct terrace_database *terrace_database_refresh(const struct terrace_database *database,
                                                  struct terrace_error **error);

/**
 * Closes a database. From then on calls through handles of it fail with TERRACE_CLOSED.
 * The handles stay valid and are freed as always, in any order. A second call does nothing.
 *
 * Errors: TERRACE_UNAVAILABLE when the last sync failed, or the database had stopped before. It is
 * closed all the same.
 */
enum terrace_status terrace_close(const struct terrace_database *database,
                                  struct terrace_error **error);

/**
 * Frees the handle. A database that was not closed stays open until its last handle of any kind is
 * freed; an error of that closing is lost. NULL is no error.
 */
void terrace_database_free(struct terrace_database *database);

/**
 * The directory that the database lies in, as its opening was given it. NULL after an error. Free
 * it with terrace_string_free.
 *
 * Errors: TERRACE_INVALID for NULL.
 */
struct terrace_string *terrace_database_path(const struct terrace_database *database,
                                             struct terrace_error **error);

/**
 * The table called name; creates it when there is none. NULL after an error. Free it with
 * terrace_table_free.
 *
 * Errors: TERRACE_INVALID for a name that is empty, longer than 255 bytes or has control
 * characters; otherwise as terrace_table_put.
 */
struct terrace_table *terrace_database_table(const struct terrace_database *database,
                                             const char *name,
                                             struct terrace_error **error);

/**
 * The table called name, which has the options; creates it with them when there is none, in one
 * step. With NULL for options it is terrace_database_table. NULL after an error. Free it with
 * terrace_table_free.
 *
 * Errors: TERRACE_EXISTS when it has other options; the message lists those that differ.
 * TERRACE_INVALID for options out of bounds; otherwise as terrace_database_table.
 */
struct terrace_table *terrace_database_table_with_options(const struct terrace_database *database,
                                                          const char *name,
                                                          const struct terrace_table_options *options,
                                                          struct terrace_error **error);

/**
 * The table called name, which must be there. NULL after an error. Free it with
 * terrace_table_free.
 *
 * Errors: TERRACE_MISSING_TABLE when there is none, with the names there are; TERRACE_CLOSED.
 */
struct terrace_table *terrace_database_existing_table(const struct terrace_database *database,
                                                      const char *name,
                                                      struct terrace_error **error);

/**
 * Creates a table called name with options, which it keeps for as long as it lives. Options may be
 * NULL for the defaults. NULL after an error. Free it with terrace_table_free.
 *
 * Errors: TERRACE_EXISTS when there is one already; TERRACE_INVALID for options out of bounds;
 * otherwise as terrace_database_table.
 */
struct terrace_table *terrace_database_create_table(const struct terrace_database *database,
                                                    const char *name,
                                                    const struct terrace_table_options *options,
                                                    struct terrace_error **error);

/**
 * Drops a table and all that is in it. Calls on its handles fail from then on.
 *
 * Errors: TERRACE_MISSING_TABLE when there is none; otherwise as terrace_table_put.
 */
enum terrace_status terrace_database_drop_table(const struct terrace_database *database,
                                                const char *name,
                                                struct terrace_error **error);

/**
 * Gives a table another name. Handles follow it.
 *
 * Errors: TERRACE_MISSING_TABLE when there is no table from; TERRACE_EXISTS when there is to;
 * otherwise as terrace_table_put.
 */
enum terrace_status terrace_database_rename_table(const struct terrace_database *database,
                                                  const char *from,
                                                  const char *to,
                                                  struct terrace_error **error);

/**
 * Empties a table, at no cost for each row. Handles stay valid; snapshots and cursors from before
 * fail on it.
 *
 * Errors: TERRACE_MISSING_TABLE when there is none; otherwise as terrace_table_put.
 */
enum terrace_status terrace_database_truncate_table(const struct terrace_database *database,
                                                    const char *name,
                                                    struct terrace_error **error);

/**
 * Sets how long records of a table live, in milliseconds; 0 for ever.
 *
 * Errors: TERRACE_MISSING_TABLE when there is none; TERRACE_INVALID for a time out of bounds;
 * otherwise as terrace_table_put.
 */
enum terrace_status terrace_database_set_ttl(const struct terrace_database *database,
                                             const char *name,
                                             uint64_t ttl_ms,
                                             struct terrace_error **error);

/**
 * Gives a table all of these options in place of its own: of two calls at once one counts.
 * terrace_table_set_option changes one option and keeps the others. What is on disk stays as it is
 * until a compaction rewrites it.
 *
 * Errors: TERRACE_MISSING_TABLE when there is none; TERRACE_INVALID for options NULL or out of
 * bounds; otherwise as terrace_table_put.
 */
enum terrace_status terrace_database_set_table_options(const struct terrace_database *database,
                                                       const char *name,
                                                       const struct terrace_table_options *options,
                                                       struct terrace_error **error);

/**
 * The names of all tables, sorted. NULL after an error. Free them with terrace_strings_free.
 *
 * Errors: TERRACE_INVALID for NULL.
 */
struct terrace_strings *terrace_database_table_names(const struct terrace_database *database,
                                                     struct terrace_error **error);

/**
 * Commits a batch, all of it or nothing, with the durability that is named. The batch is empty
 * afterwards, also after an error, and can be filled again.
 *
 * Errors: TERRACE_INVALID when the batch mixes databases; otherwise as terrace_table_put.
 */
enum terrace_status terrace_database_write(const struct terrace_database *database,
                                           struct terrace_batch *batch,
                                           uint32_t durability,
                                           struct terrace_error **error);

/**
 * Commits a batch, durably, unless that would have to wait for its turn for more than wait_ms
 * milliseconds. The batch is empty afterwards, also after an error.
 *
 * Errors: TERRACE_TIMEOUT, and nothing was written; otherwise as terrace_database_write.
 */
enum terrace_status terrace_database_try_write(const struct terrace_database *database,
                                               struct terrace_batch *batch,
                                               uint64_t wait_ms,
                                               struct terrace_error **error);

/**
 * All tables as they are now. NULL after an error. Free it with terrace_snapshot_free; until then
 * versions that it sees are kept.
 *
 * Errors: TERRACE_CLOSED; TERRACE_UNAVAILABLE in a forked child.
 */
struct terrace_snapshot *terrace_database_snapshot(const struct terrace_database *database,
                                                   struct terrace_error **error);

/**
 * The blob of the last visible commit that had one, also from before the opening.
 * TERRACE_NOT_FOUND when there was none, and *value is empty then. Release it with
 * terrace_value_release.
 *
 * Errors: TERRACE_INVALID for NULL.
 */
enum terrace_status terrace_database_last_blob(const struct terrace_database *database,
                                               struct terrace_value *value,
                                               struct terrace_error **error);

/**
 * Makes the region larger while the database is open. *new_size gets its length in bytes, and may
 * be NULL. It can grow to sixteen times the size that it was made with.
 *
 * Errors: TERRACE_INVALID for a size that is not larger, or too large; TERRACE_FULL when the
 * device has no space; otherwise as terrace_table_put.
 */
enum terrace_status terrace_database_grow_pm(const struct terrace_database *database,
                                             uint64_t size,
                                             uint64_t *new_size,
                                             struct terrace_error **error);

/**
 * Changes how commits are grouped, from the next ones on. The numbers mean what the options
 * group_batches, group_bytes and own_streams of terrace_options_set mean.
 *
 * Errors: TERRACE_INVALID for NULL.
 */
enum terrace_status terrace_database_tune_commits(const struct terrace_database *database,
                                                  uint32_t group_batches,
                                                  uint64_t group_bytes,
                                                  uint32_t own_streams,
                                                  struct terrace_error **error);

/**
 * Changes what the background may use of the machine: how many threads, and how many bytes a
 * second compactions may write, 0 for no bound.
 *
 * Errors: TERRACE_UNAVAILABLE when a thread cannot be started; TERRACE_CLOSED.
 */
enum terrace_status terrace_database_tune_background(const struct terrace_database *database,
                                                     size_t threads,
                                                     uint64_t bytes_per_second,
                                                     struct terrace_error **error);

/**
 * For how many milliseconds the oldest snapshot has been held, those of transactions and cursors
 * included. TERRACE_NOT_FOUND when there is none.
 *
 * Errors: TERRACE_INVALID for NULL.
 */
enum terrace_status terrace_database_oldest_snapshot_age(const struct terrace_database *database,
                                                         uint64_t *age_ms,
                                                         struct terrace_error **error);

/**
 * How many locks transactions hold at present: on keys, and on ranges.
 *
 * Errors: TERRACE_INVALID for NULL.
 */
enum terrace_status terrace_database_locks_held(const struct terrace_database *database,
                                                size_t *keys,
                                                size_t *ranges,
                                                struct terrace_error **error);

/**
 * Ends the wait for a lock of the transaction with this number, from another thread. The call
 * that waits fails with TERRACE_TIMEOUT, and so does one that passes many keys which the
 * transaction has deleted. The transaction goes on, and later calls do not wait either, until
 * terrace_transaction_allow_waits. Waits for nothing. TERRACE_NOT_FOUND when its handle is freed.
 *
 * Errors: TERRACE_INVALID for NULL.
 */
enum terrace_status terrace_database_end_lock_wait(const struct terrace_database *database,
                                                   uint64_t id,
                                                   struct terrace_error **error);

/**
 * Frees the handle. The table stays. NULL is no error.
 */
void terrace_table_free(struct terrace_table *table);

/**
 * The name of a table at present. NULL after an error. Free it with terrace_string_free.
 *
 * Errors: TERRACE_INVALID for NULL.
 */
struct terrace_string *terrace_table_name(const struct terrace_table *table,
                                          struct terrace_error **error);

/**
 * The value of a key, without a copy: TERRACE_OK with *value, or TERRACE_NOT_FOUND with an empty
 * one. Release it with terrace_value_release. What *value held before is not read.
 *
 * Errors: TERRACE_CORRUPT when the block is damaged; TERRACE_UNAVAILABLE when a file could not be
 * read; TERRACE_MISSING_TABLE when the table was dropped; TERRACE_CLOSED. *value is empty then.
 */
enum terrace_status terrace_table_get(const struct terrace_table *table,
                                      const void *key,
                                      size_t key_len,
                                      struct terrace_value *value,
                                      struct terrace_error **error);

/**
 * The value of a key, copied into a buffer of the caller's. *value_len gets its length.
 * TERRACE_BUFFER_TOO_SMALL when the value is longer than capacity, and nothing is copied then.
 * TERRACE_NOT_FOUND when there is none. With a capacity of 0 the buffer may be NULL: the call says
 * whether the key is there, and how long its value is.
 *
 * Errors: as terrace_table_get.
 */
enum terrace_status terrace_table_get_into(const struct terrace_table *table,
                                           const void *key,
                                           size_t key_len,
                                           void *buffer,
                                           size_t capacity,
                                           size_t *value_len,
                                           struct terrace_error **error);

/**
 * The values of several keys, all as of one moment, in the order of the keys. values is an array
 * of count structures, and each is written: a missing one is empty. Release each. What they held
 * before is not read. After an error all are empty.
 *
 * Errors: as terrace_table_get.
 */
enum terrace_status terrace_table_multi_get(const struct terrace_table *table,
                                            const struct terrace_slice *keys,
                                            struct terrace_value *values,
                                            size_t count,
                                            struct terrace_error **error);

/**
 * Sets a key to a value, with the durability that is named. A row that a transaction has locked is
 * waited for. Keys have up to 64 KiB, values up to 1 MiB.
 *
 * Errors: TERRACE_TOO_LARGE when key or value are too long; TERRACE_MISSING_TABLE when the table
 * was dropped; TERRACE_INVALID when the database is open read-only; TERRACE_FULL;
 * TERRACE_UNKNOWN_OUTCOME when the device failed while the commit was under way;
 * TERRACE_UNAVAILABLE when the database stopped after an earlier failure; TERRACE_CLOSED.
 */
enum terrace_status terrace_table_put(const struct terrace_table *table,
                                      const void *key,
                                      size_t key_len,
                                      const void *value,
                                      size_t value_len,
                                      uint32_t durability,
                                      struct terrace_error **error);

/**
 * Sets a key to a value, durably, unless that would have to wait for its turn for more than
 * wait_ms milliseconds: for a drain, or for a row that a transaction has locked.
 *
 * Errors: TERRACE_TIMEOUT, and nothing was written; otherwise as terrace_table_put.
 */
enum terrace_status terrace_table_try_put(const struct terrace_table *table,
                                          const void *key,
                                          size_t key_len,
                                          const void *value,
                                          size_t value_len,
                                          uint64_t wait_ms,
                                          struct terrace_error **error);

/**
 * Removes a key, with the durability that is named. It is no error if the key is not there.
 *
 * Errors: as terrace_table_put.
 */
enum terrace_status terrace_table_delete(const struct terrace_table *table,
                                         const void *key,
                                         size_t key_len,
                                         uint32_t durability,
                                         struct terrace_error **error);

/**
 * Removes every key of a range, durably. It costs one small record, whatever lies in the range.
 *
 * Errors: as terrace_table_put, for the bounds as for keys.
 */
enum terrace_status terrace_table_delete_range(const struct terrace_table *table,
                                               const struct terrace_range *range,
                                               struct terrace_error **error);

/**
 * About how many keys lie in a range. Versions, deletes and expired records that were not
 * compacted yet count. It reads the block indexes at the ends of the range, and of a small range
 * the blocks there. All keys cost no I/O.
 *
 * Errors: TERRACE_MISSING_TABLE when the table was dropped; otherwise as terrace_table_get.
 */
enum terrace_status terrace_table_approximate_len(const struct terrace_table *table,
                                                  const struct terrace_range *range,
                                                  uint64_t *keys,
                                                  struct terrace_error **error);

/**
 * About how many bytes the keys and values of a range have, before compression. As
 * terrace_table_approximate_len.
 *
 * Errors: as terrace_table_approximate_len.
 */
enum terrace_status terrace_table_approximate_size(const struct terrace_table *table,
                                                   const struct terrace_range *range,
                                                   uint64_t *bytes,
                                                   struct terrace_error **error);

/**
 * A cursor over a range of the table, as of now. NULL after an error. It reads nothing before its
 * first step. Free it with terrace_cursor_free.
 *
 * Errors: TERRACE_INVALID for a range with bounds of an unknown kind; TERRACE_CLOSED;
 * TERRACE_UNAVAILABLE in a forked child.
 */
struct terrace_cursor *terrace_table_cursor(const struct terrace_table *table,
                                            const struct terrace_range *range,
                                            struct terrace_error **error);

/**
 * The row with the least key. TERRACE_NOT_FOUND when the table is empty, and *key and *value are
 * empty then. Release both with terrace_value_release.
 *
 * Errors: as terrace_table_get.
 */
enum terrace_status terrace_table_first(const struct terrace_table *table,
                                        struct terrace_value *key,
                                        struct terrace_value *value,
                                        struct terrace_error **error);

/**
 * The row with the greatest key. As terrace_table_first.
 *
 * Errors: as terrace_table_get.
 */
enum terrace_status terrace_table_last(const struct terrace_table *table,
                                       struct terrace_value *key,
                                       struct terrace_value *value,
                                       struct terrace_error **error);

/**
 * A copy of the options that a table has at present. NULL after an error. Free it with
 * terrace_table_options_free.
 *
 * Errors: TERRACE_INVALID for NULL.
 */
struct terrace_table_options *terrace_table_get_options(const struct terrace_table *table,
                                                        struct terrace_error **error);

/**
 * Changes one option of a table, with a name and a value of terrace_table_options_set, and keeps
 * the others, also those that another thread changes at the same time. What is on disk stays as it
 * is until a compaction rewrites it.
 *
 * Errors: as terrace_table_options_set; TERRACE_MISSING_TABLE when the table was dropped;
 * TERRACE_INVALID for a value out of bounds; otherwise as terrace_table_put.
 */
enum terrace_status terrace_table_set_option(const struct terrace_table *table,
                                             const char *name,
                                             const char *value,
                                             struct terrace_error **error);

/**
 * Empties a table, at no cost for each row. Handles stay valid; snapshots and cursors from before
 * fail on it.
 *
 * Errors: TERRACE_MISSING_TABLE when the table was dropped, also where another one has its name;
 * otherwise as terrace_table_put.
 */
enum terrace_status terrace_table_truncate(const struct terrace_table *table,
                                           struct terrace_error **error);

/**
 * Drops a table and all that is in it. Calls on its handles fail from then on. The handles are
 * freed as always.
 *
 * Errors: as terrace_table_truncate.
 */
enum terrace_status terrace_table_drop(const struct terrace_table *table,
                                       struct terrace_error **error);

/**
 * Gives a table another name. Handles follow it.
 *
 * Errors: TERRACE_EXISTS when there is a table called to; otherwise as terrace_table_truncate.
 */
enum terrace_status terrace_table_rename(const struct terrace_table *table,
                                         const char *to,
                                         struct terrace_error **error);

/**
 * Compacts a range until its last level has all of it, and waits until that is done. It is not
 * needed: the background compacts what is worth it. It is for the time before a load of reads,
 * and for disk space at once. terrace_close in another thread ends it.
 *
 * Errors: TERRACE_MISSING_TABLE when the table was dropped; TERRACE_INVALID when the database is
 * open read-only;
 * TERRACE_FULL when the disk has no room, and what was done stays done; TERRACE_CORRUPT;
 * TERRACE_UNAVAILABLE; TERRACE_CLOSED.
 */
enum terrace_status terrace_table_compact_range(const struct terrace_table *table,
                                                const struct terrace_range *range,
                                                struct terrace_error **error);

/**
 * Whether a table has a key: TERRACE_OK, or TERRACE_NOT_FOUND. A value that lies apart is not
 * read.
 *
 * Errors: as terrace_table_get.
 */
enum terrace_status terrace_table_contains_key(const struct terrace_table *table,
                                               const void *key,
                                               size_t key_len,
                                               struct terrace_error **error);

/**
 * Sets a key to a value, durably, if it has none. *inserted says whether it had none.
 *
 * Errors: TERRACE_TIMEOUT when others had the row locked for 10 s; otherwise as
 * terrace_table_get and terrace_table_put.
 */
enum terrace_status terrace_table_insert_if_absent(const struct terrace_table *table,
                                                   const void *key,
                                                   size_t key_len,
                                                   const void *value,
                                                   size_t value_len,
                                                   bool *inserted,
                                                   struct terrace_error **error);

/**
 * Gives a key another value, durably, if it has the expected one. NULL stands for no value: as
 * expected for a key that is not there, as new_value for its removal. *changed says whether the
 * key had what was expected.
 *
 * To compute a value from the old one, get the old one, compute, and call this with both, until
 * *changed is true. terrace_transaction_get_for_update is the other way: it locks the row first.
 *
 * Errors: as terrace_table_insert_if_absent.
 */
enum terrace_status terrace_table_compare_and_set(const struct terrace_table *table,
                                                  const void *key,
                                                  size_t key_len,
                                                  const struct terrace_slice *expected,
                                                  const struct terrace_slice *new_value,
                                                  bool *changed,
                                                  struct terrace_error **error);

/**
 * Removes the row with the least key, durably, and gives it to the caller. No two callers get the
 * same row. TERRACE_NOT_FOUND when the table is empty, and *key and *value are empty then. Release
 * both with terrace_value_release.
 *
 * Errors: as terrace_table_insert_if_absent.
 */
enum terrace_status terrace_table_pop_first(const struct terrace_table *table,
                                            struct terrace_value *key,
                                            struct terrace_value *value,
                                            struct terrace_error **error);

/**
 * Removes the row with the greatest key, durably, and gives it to the caller. As
 * terrace_table_pop_first.
 *
 * Errors: as terrace_table_insert_if_absent.
 */
enum terrace_status terrace_table_pop_last(const struct terrace_table *table,
                                           struct terrace_value *key,
                                           struct terrace_value *value,
                                           struct terrace_error **error);

/**
 * Registers a merge operator for databases that are opened with these options. A table that has it
 * names it in its option merge_operator. The name has 1 to 31 bytes. One with a dot is never that
 * of a built-in operator: "example.least". Each opening registers the operators that its tables
 * name. The function is called as terrace_merge_function says. It and its context, which may be
 * NULL, stay valid until the options and all handles of these databases are freed.
 *
 * Errors: TERRACE_INVALID for NULL. A name that is out of bounds or taken makes openings fail.
 */
enum terrace_status terrace_options_add_merge_operator(struct terrace_options *options,
                                                       const char *name,
                                                       terrace_merge_function function,
                                                       void *context,
                                                       struct terrace_error **error);

/**
 * Appends bytes to the result of a merge operator. For merge operators alone.
 *
 * Errors: TERRACE_INVALID for NULL.
 */
enum terrace_status terrace_merged_append(struct terrace_merged *result,
                                          const void *data,
                                          size_t len,
                                          struct terrace_error **error);

/**
 * Merges an operand into the value of a key, with the merge operator of the table and the
 * durability that is named. It writes the operand and reads no value; reads merge. An operand that
 * the operator refuses is written all the same: reads of the key fail then.
 *
 * Errors: TERRACE_INVALID when the table has no merge operator, or one that is not registered;
 * otherwise as terrace_table_put.
 */
enum terrace_status terrace_table_merge(const struct terrace_table *table,
                                        const void *key,
                                        size_t key_len,
                                        const void *operand,
                                        size_t operand_len,
                                        uint32_t durability,
                                        struct terrace_error **error);

/**
 * An empty batch. Free it with terrace_batch_free.
 */
struct terrace_batch *terrace_batch_new(void);

/**
 * Frees a batch. What was not committed is not written. NULL is no error.
 */
void terrace_batch_free(struct terrace_batch *batch);

/**
 * Sets a key of a table to a value. Of several operations on one key the last counts, and
 * merges go on with what is before them.
 *
 * Errors: TERRACE_INVALID for NULL. A key or a value that is too long, or a table of another
 * database, makes the commit fail.
 */
enum terrace_status terrace_batch_put(struct terrace_batch *batch,
                                      const struct terrace_table *table,
                                      const void *key,
                                      size_t key_len,
                                      const void *value,
                                      size_t value_len,
                                      struct terrace_error **error);

/**
 * Merges an operand into the value of a key, with the merge operator of the table. What the batch
 * does to the key before counts. As terrace_table_merge.
 *
 * Errors: as terrace_batch_put. Without a merge operator that is registered the commit fails.
 */
enum terrace_status terrace_batch_merge(struct terrace_batch *batch,
                                        const struct terrace_table *table,
                                        const void *key,
                                        size_t key_len,
                                        const void *operand,
                                        size_t operand_len,
                                        struct terrace_error **error);

/**
 * Removes a key of a table. It is no error if the key is not there.
 *
 * Errors: as terrace_batch_put.
 */
enum terrace_status terrace_batch_delete(struct terrace_batch *batch,
                                         const struct terrace_table *table,
                                         const void *key,
                                         size_t key_len,
                                         struct terrace_error **error);

/**
 * Removes every key of a range of a table: those there at the commit, and those that the batch has
 * put before.
 *
 * Errors: as terrace_batch_put; TERRACE_INVALID also for bounds of an unknown kind.
 */
enum terrace_status terrace_batch_delete_range(struct terrace_batch *batch,
                                               const struct terrace_table *table,
                                               const struct terrace_range *range,
                                               struct terrace_error **error);

/**
 * Sets the blob of the commit: up to 4 KiB of the caller's, such as a position in another log.
 * terrace_database_last_blob gives it back, also after a restart.
 *
 * Errors: TERRACE_INVALID for NULL. One that is too long makes the commit fail.
 */
enum terrace_status terrace_batch_set_blob(struct terrace_batch *batch,
                                           const void *blob,
                                           size_t blob_len,
                                           struct terrace_error **error);

/**
 * How many operations a batch holds; 0 for NULL.
 */
size_t terrace_batch_len(const struct terrace_batch *batch);

/**
 * How many bytes of the region a batch will take at most; 0 for NULL.
 */
size_t terrace_batch_stored_bytes(const struct terrace_batch *batch);

/**
 * Forgets all that is in a batch. NULL is no error.
 */
void terrace_batch_clear(struct terrace_batch *batch);

/**
 * Gives a batch its place in the order of commits, without waiting until it is visible and
 * durable. NULL after an error. Wait with terrace_pending_wait, then free with
 * terrace_pending_free. The batch is empty afterwards, also after an error.
 *
 * Errors: as terrace_database_write, but never TERRACE_UNKNOWN_OUTCOME: nothing was done then.
 */
struct terrace_pending *terrace_database_enqueue(const struct terrace_database *database,
                                                 struct terrace_batch *batch,
                                                 uint32_t durability,
                                                 struct terrace_error **error);

/**
 * Makes durable all that was acknowledged or enqueued before the call: relaxed commits survive a
 * power cut from then on. It costs one sync for any number of them, and nothing where all is
 * durable already.
 *
 * Errors: TERRACE_UNAVAILABLE when the device failed; TERRACE_INVALID for a database that is open
 * read-only; TERRACE_CLOSED.
 */
enum terrace_status terrace_database_sync(const struct terrace_database *database,
                                          struct terrace_error **error);

/**
 * The number of a commit; one that was enqueued later has a greater number. 0 for NULL.
 */
uint64_t terrace_pending_number(const struct terrace_pending *pending);

/**
 * Waits until a commit is visible and as durable as was asked for. It gives its row locks back
 * before it waits for a shared store. Several threads may wait, and a call may come again: each
 * has the same outcome.
 *
 * Errors: TERRACE_UNKNOWN_OUTCOME when the device failed meanwhile, or the shared store did not
 * acknowledge a TERRACE_REMOTE commit, which is here then; TERRACE_UNAVAILABLE in a forked child;
 * TERRACE_INVALID inside of a merge operator. After the last two the commit goes on.
 */
enum terrace_status terrace_pending_wait(const struct terrace_pending *pending,
                                         struct terrace_error **error);

/**
 * Frees the handle. It undoes nothing: the commit becomes visible, and durable if that was asked
 * for, a moment later. Rows that it has locked are given back once it is as durable as this
 * machine makes it. This waits for that only where no thread can be started. NULL is no error.
 */
void terrace_pending_free(struct terrace_pending *pending);

/**
 * Frees a snapshot. Cursors of it go on. NULL is no error.
 */
void terrace_snapshot_free(struct terrace_snapshot *snapshot);

/**
 * The number of the last commit that a snapshot sees; 0 for NULL.
 */
uint64_t terrace_snapshot_number(const struct terrace_snapshot *snapshot);

/**
 * The value of a key at the snapshot. As terrace_table_get.
 *
 * Errors: as terrace_table_get; TERRACE_INVALID also when the table is of another database, or was
 * truncated after the snapshot.
 */
enum terrace_status terrace_snapshot_get(const struct terrace_snapshot *snapshot,
                                         const struct terrace_table *table,
                                         const void *key,
                                         size_t key_len,
                                         struct terrace_value *value,
                                         struct terrace_error **error);

/**
 * The value of a key at the snapshot, copied into a buffer. As terrace_table_get_into.
 *
 * Errors: as terrace_snapshot_get.
 */
enum terrace_status terrace_snapshot_get_into(const struct terrace_snapshot *snapshot,
                                              const struct terrace_table *table,
                                              const void *key,
                                              size_t key_len,
                                              void *buffer,
                                              size_t capacity,
                                              size_t *value_len,
                                              struct terrace_error **error);

/**
 * A cursor over a range of a table at the snapshot. NULL after an error. Free it with
 * terrace_cursor_free.
 *
 * Errors: TERRACE_INVALID for a range with bounds of an unknown kind. What terrace_snapshot_get
 * fails with comes with the first step.
 */
struct terrace_cursor *terrace_snapshot_cursor(const struct terrace_snapshot *snapshot,
                                               const struct terrace_table *table,
                                               const struct terrace_range *range,
                                               struct terrace_error **error);

/**
 * Whether a table has a key at the snapshot. As terrace_table_contains_key.
 *
 * Errors: as terrace_snapshot_get.
 */
enum terrace_status terrace_snapshot_contains_key(const struct terrace_snapshot *snapshot,
                                                  const struct terrace_table *table,
                                                  const void *key,
                                                  size_t key_len,
                                                  struct terrace_error **error);

/**
 * The values of several keys at the snapshot. As terrace_table_multi_get.
 *
 * Errors: as terrace_snapshot_get.
 */
enum terrace_status terrace_snapshot_multi_get(const struct terrace_snapshot *snapshot,
                                               const struct terrace_table *table,
                                               const struct terrace_slice *keys,
                                               struct terrace_value *values,
                                               size_t count,
                                               struct terrace_error **error);

/**
 * The row with the least key at the snapshot. As terrace_table_first.
 *
 * Errors: as terrace_snapshot_get.
 */
enum terrace_status terrace_snapshot_first(const struct terrace_snapshot *snapshot,
                                           const struct terrace_table *table,
                                           struct terrace_value *key,
                                           struct terrace_value *value,
                                           struct terrace_error **error);

/**
 * The row with the greatest key at the snapshot. As terrace_table_first.
 *
 * Errors: as terrace_snapshot_get.
 */
enum terrace_status terrace_snapshot_last(const struct terrace_snapshot *snapshot,
                                          const struct terrace_table *table,
                                          struct terrace_value *key,
                                          struct terrace_value *value,
                                          struct terrace_error **error);

/**
 * Begins a transaction. Options may be NULL for the defaults. NULL after an error. Free it with
 * terrace_transaction_free.
 *
 * Errors: TERRACE_INVALID when the options contradict each other; TERRACE_CLOSED;
 * TERRACE_UNAVAILABLE in a forked child.
 */
struct terrace_transaction *terrace_database_begin(const struct terrace_database *database,
                                                   const struct terrace_transaction_options *options,
                                                   struct terrace_error **error);

/**
 * Frees the handle, and rolls the transaction back if it has not ended. Its cursors fail from then
 * on. NULL is no error.
 */
void terrace_transaction_free(struct terrace_transaction *transaction);

/**
 * The number of a transaction, as errors and lists name it; 0 for NULL.
 */
uint64_t terrace_transaction_id(const struct terrace_transaction *transaction);

/**
 * How many bytes of memory the locks of a transaction took after its last call; 0 for NULL.
 */
size_t terrace_transaction_lock_memory(const struct terrace_transaction *transaction);

/**
 * The isolation level of a transaction, in the words of terrace_transaction_options_set: static
 * text. NULL for NULL.
 */
const char *terrace_transaction_isolation(const struct terrace_transaction *transaction);

/**
 * The value of a key as the transaction sees it, its own writes included. As terrace_table_get.
 *
 * Errors: as terrace_table_get; serializable also those of terrace_transaction_get_for_update.
 */
enum terrace_status terrace_transaction_get(const struct terrace_transaction *transaction,
                                            const struct terrace_table *table,
                                            const void *key,
                                            size_t key_len,
                                            struct terrace_value *value,
                                            struct terrace_error **error);

/**
 * The value of a key as the transaction sees it, copied into a buffer. As terrace_table_get_into.
 *
 * Errors: as terrace_transaction_get.
 */
enum terrace_status terrace_transaction_get_into(const struct terrace_transaction *transaction,
                                                 const struct terrace_table *table,
                                                 const void *key,
                                                 size_t key_len,
                                                 void *buffer,
                                                 size_t capacity,
                                                 size_t *value_len,
                                                 struct terrace_error **error);

/**
 * The value of a key, which is locked: nothing else changes it until the transaction ends. A key
 * that is not there is locked too. As terrace_table_get.
 *
 * Errors: TERRACE_CONFLICT when it was changed after the transaction's snapshot; TERRACE_DEADLOCK;
 * TERRACE_TIMEOUT when another transaction has had it locked for as long as this one may wait;
 * otherwise as terrace_transaction_get.
 */
enum terrace_status terrace_transaction_get_for_update(const struct terrace_transaction *transaction,
                                                       const struct terrace_table *table,
                                                       const void *key,
                                                       size_t key_len,
                                                       struct terrace_value *value,
                                                       struct terrace_error **error);

/**
 * The value of a key, which nothing changes until the transaction ends. Other transactions may
 * lock it in this way too. A key that is not there is locked too. As terrace_table_get.
 *
 * Errors: as terrace_transaction_get_for_update.
 */
enum terrace_status terrace_transaction_get_for_share(const struct terrace_transaction *transaction,
                                                      const struct terrace_table *table,
                                                      const void *key,
                                                      size_t key_len,
                                                      struct terrace_value *value,
                                                      struct terrace_error **error);

/**
 * Takes a view of what is committed now. Plain reads see that and the transaction's own writes,
 * until the next call or terrace_transaction_drop_view. Locking reads and writes see the newest
 * rows all the same, and a row that changed after the view is no conflict.
 *
 * Errors: TERRACE_INVALID unless the transaction is at read_committed; TERRACE_CLOSED once it has
 * ended.
 */
enum terrace_status terrace_transaction_take_view(const struct terrace_transaction *transaction,
                                                  struct terrace_error **error);

/**
 * As terrace_transaction_take_view, with the commit that has the number commit, and all before it,
 * also where they are not visible yet. The call does not wait: the first plain read waits until
 * they are visible, and makes them durable if nothing else does. The number is that of
 * terrace_pending_number.
 *
 * Errors: TERRACE_INVALID when no commit has the number; otherwise as
 * terrace_transaction_take_view.
 */
enum terrace_status terrace_transaction_take_view_with(const struct terrace_transaction *transaction,
                                                       uint64_t commit,
                                                       struct terrace_error **error);

/**
 * Gives the view of a transaction back. Plain reads see what is committed when they are made.
 *
 * Errors: TERRACE_CLOSED once it has ended.
 */
enum terrace_status terrace_transaction_drop_view(const struct terrace_transaction *transaction,
                                                  struct terrace_error **error);

/**
 * Sets a key to a value, for this transaction until it commits. The row is locked.
 *
 * Errors: TERRACE_TOO_LARGE when the key, the value or all of the transaction's writes are over
 * their limit; otherwise as terrace_transaction_get_for_update.
 */
enum terrace_status terrace_transaction_put(const struct terrace_transaction *transaction,
                                            const struct terrace_table *table,
                                            const void *key,
                                            size_t key_len,
                                            const void *value,
                                            size_t value_len,
                                            struct terrace_error **error);

/**
 * Removes a key, for this transaction until it commits. The row is locked.
 *
 * Errors: as terrace_transaction_put.
 */
enum terrace_status terrace_transaction_delete(const struct terrace_transaction *transaction,
                                               const struct terrace_table *table,
                                               const void *key,
                                               size_t key_len,
                                               struct terrace_error **error);

/**
 * Removes every key of a range, for this transaction until it commits. The whole range is locked.
 *
 * Errors: as terrace_transaction_put; TERRACE_CONFLICT also when a key was put into the range
 * after the transaction's snapshot.
 */
enum terrace_status terrace_transaction_delete_range(const struct terrace_transaction *transaction,
                                                     const struct terrace_table *table,
                                                     const struct terrace_range *range,
                                                     struct terrace_error **error);

/**
 * A cursor over a range of a table as the transaction sees it: TERRACE_READ, TERRACE_FOR_UPDATE,
 * TERRACE_SKIP_LOCKED, TERRACE_READ_NEWEST or TERRACE_FOR_SHARE. NULL after an error. Free it with
 * terrace_cursor_free; it may outlive the transaction, and its calls fail with TERRACE_CLOSED
 * then.
 *
 * Rows that the transaction writes later, and the cursor has not reached, come as they were
 * written. A serializable transaction locks what is to come when the cursor is sent somewhere.
 *
 * Errors: TERRACE_INVALID for bounds or a way of an unknown kind; for update or share, those of
 * terrace_transaction_get_for_update; TERRACE_CLOSED.
 */
struct terrace_cursor *terrace_transaction_cursor(const struct terrace_transaction *transaction,
                                                  const struct terrace_table *table,
                                                  const struct terrace_range *range,
                                                  uint32_t scan,
                                                  struct terrace_error **error);

/**
 * How long later calls of a transaction wait for a lock, in milliseconds; TERRACE_NO_WAIT or
 * TERRACE_WAIT_ENDLESS.
 *
 * Errors: TERRACE_CLOSED once it has ended.
 */
enum terrace_status terrace_transaction_set_lock_wait(const struct terrace_transaction *transaction,
                                                      uint64_t wait_ms,
                                                      struct terrace_error **error);

/**
 * Sets a savepoint. One of the same name stays, hidden by this one.
 *
 * Errors: TERRACE_CLOSED once the transaction has ended.
 */
enum terrace_status terrace_transaction_set_savepoint(const struct terrace_transaction *transaction,
                                                      const char *name,
                                                      struct terrace_error **error);

/**
 * Undoes what was written since the newest savepoint of that name. The savepoint stays, later ones
 * go. Locks are kept until the transaction ends.
 *
 * Errors: TERRACE_INVALID when there is none of that name; TERRACE_CLOSED once it has ended.
 */
enum terrace_status terrace_transaction_roll_back_to(const struct terrace_transaction *transaction,
                                                     const char *name,
                                                     struct terrace_error **error);

/**
 * Forgets the newest savepoint of that name, and those set after it. What was written stays.
 *
 * Errors: as terrace_transaction_roll_back_to.
 */
enum terrace_status terrace_transaction_release_savepoint(const struct terrace_transaction *transaction,
                                                          const char *name,
                                                          struct terrace_error **error);

/**
 * Sets the blob of the commit. As terrace_batch_set_blob.
 *
 * Errors: TERRACE_TOO_LARGE when it is longer than 4 KiB; TERRACE_CLOSED once it has ended.
 */
enum terrace_status terrace_transaction_set_blob(const struct terrace_transaction *transaction,
                                                 const void *blob,
                                                 size_t blob_len,
                                                 struct terrace_error **error);

/**
 * Commits: all that was written becomes visible, and as durable as the options say. The
 * transaction has ended then, also after an error. Free the handle.
 *
 * Errors: TERRACE_CONFLICT for an optimistic one when something that it relies on has changed;
 * TERRACE_UNKNOWN_OUTCOME; otherwise as terrace_database_write. But for TERRACE_UNKNOWN_OUTCOME it
 * was rolled back.
 */
enum terrace_status terrace_transaction_commit(const struct terrace_transaction *transaction,
                                               struct terrace_error **error);

/**
 * Gives the commit its place in the order, without waiting until it is visible and durable. NULL
 * after an error. The transaction has ended then, also after an error. Its locks are held until
 * terrace_pending_wait has found the commit visible, and as durable as this machine makes it. Free
 * the result with terrace_pending_free.
 *
 * Errors: as terrace_transaction_commit, but never TERRACE_UNKNOWN_OUTCOME.
 */
struct terrace_pending *terrace_transaction_enqueue(const struct terrace_transaction *transaction,
                                                    struct terrace_error **error);

/**
 * Prepares the transaction under an id of 1 to 140 bytes: the first phase of a commit in two. Once
 * this returns it survives everything, with its locks, until terrace_database_commit_prepared or
 * terrace_database_roll_back_prepared. The transaction has ended for its handle, also after an
 * error, which rolls it back. But after TERRACE_UNKNOWN_OUTCOME of a TERRACE_REMOTE one it is
 * prepared here, and either call ends it. After TERRACE_FENCED it is void: the new writer does not
 * have it.
 *
 * Errors: TERRACE_EXISTS when the id is taken; TERRACE_INVALID when there is a blob; TERRACE_FULL
 * when those that are prepared keep as much of the region as they may; otherwise as
 * terrace_transaction_commit.
 */
enum terrace_status terrace_transaction_prepare(const struct terrace_transaction *transaction,
                                                const void *id,
                                                size_t id_len,
                                                struct terrace_error **error);

/**
 * Rolls the transaction back. The handle is still to be freed. After a conflict, a deadlock or a
 * cancelling there is nothing left to do, and the call succeeds.
 *
 * Errors: TERRACE_CLOSED when it was committed, enqueued, prepared or rolled back before.
 */
enum terrace_status terrace_transaction_roll_back(const struct terrace_transaction *transaction,
                                                  struct terrace_error **error);

/**
 * Rolls the transaction back from another thread. A call of it that waits for a lock stops waiting
 * and fails with TERRACE_CLOSED. A commit under way is waited for, and not undone.
 * TERRACE_NOT_FOUND when it had ended before.
 *
 * Errors: TERRACE_INVALID for NULL.
 */
enum terrace_status terrace_transaction_cancel(const struct terrace_transaction *transaction,
                                               struct terrace_error **error);

/**
 * Has calls wait for locks again, after terrace_database_end_lock_wait. It takes back what was
 * asked before it.
 *
 * Errors: TERRACE_CLOSED once the transaction has ended.
 */
enum terrace_status terrace_transaction_allow_waits(const struct terrace_transaction *transaction,
                                                    struct terrace_error **error);

/**
 * As terrace_transaction_cancel, by number.
 *
 * Errors: TERRACE_INVALID for NULL.
 */
enum terrace_status terrace_database_cancel_transaction(const struct terrace_database *database,
                                                        uint64_t id,
                                                        struct terrace_error **error);

/**
 * Whether a table has a key, as the transaction sees it: TERRACE_OK, or TERRACE_NOT_FOUND.
 *
 * Errors: as terrace_transaction_get.
 */
enum terrace_status terrace_transaction_contains_key(const struct terrace_transaction *transaction,
                                                     const struct terrace_table *table,
                                                     const void *key,
                                                     size_t key_len,
                                                     struct terrace_error **error);

/**
 * The values of several keys as the transaction sees them. At read_committed each is read as of
 * its own moment. As terrace_table_multi_get.
 *
 * Errors: as terrace_transaction_get.
 */
enum terrace_status terrace_transaction_multi_get(const struct terrace_transaction *transaction,
                                                  const struct terrace_table *table,
                                                  const struct terrace_slice *keys,
                                                  struct terrace_value *values,
                                                  size_t count,
                                                  struct terrace_error **error);

/**
 * The values of several keys, which are locked in the order of the array. Where all callers name
 * keys in one order, they do not wait for each other in a circle. As terrace_table_multi_get.
 *
 * Errors: as terrace_transaction_get_for_update. Keys that were locked before stay locked.
 */
enum terrace_status terrace_transaction_multi_get_for_update(const struct terrace_transaction *transaction,
                                                             const struct terrace_table *table,
                                                             const struct terrace_slice *keys,
                                                             struct terrace_value *values,
                                                             size_t count,
                                                             struct terrace_error **error);

/**
 * The row with the least key, as the transaction sees it. As terrace_table_first. A serializable
 * transaction locks the whole table.
 *
 * Errors: as terrace_transaction_get.
 */
enum terrace_status terrace_transaction_first(const struct terrace_transaction *transaction,
                                              const struct terrace_table *table,
                                              struct terrace_value *key,
                                              struct terrace_value *value,
                                              struct terrace_error **error);

/**
 * The row with the greatest key, as the transaction sees it. As terrace_transaction_first.
 *
 * Errors: as terrace_transaction_get.
 */
enum terrace_status terrace_transaction_last(const struct terrace_transaction *transaction,
                                             const struct terrace_table *table,
                                             struct terrace_value *key,
                                             struct terrace_value *value,
                                             struct terrace_error **error);

/**
 * Sets a key to a value, for this transaction until it commits, if it has none. *inserted says
 * whether it had none. The row is locked either way.
 *
 * Errors: as terrace_transaction_put.
 */
enum terrace_status terrace_transaction_insert_if_absent(const struct terrace_transaction *transaction,
                                                         const struct terrace_table *table,
                                                         const void *key,
                                                         size_t key_len,
                                                         const void *value,
                                                         size_t value_len,
                                                         bool *inserted,
                                                         struct terrace_error **error);

/**
 * Gives a key another value, for this transaction until it commits, if it has the expected one.
 * NULL stands for no value, and *changed says what became of it, as in
 * terrace_table_compare_and_set. The row is locked either way.
 *
 * Errors: as terrace_transaction_put.
 */
enum terrace_status terrace_transaction_compare_and_set(const struct terrace_transaction *transaction,
                                                        const struct terrace_table *table,
                                                        const void *key,
                                                        size_t key_len,
                                                        const struct terrace_slice *expected,
                                                        const struct terrace_slice *new_value,
                                                        bool *changed,
                                                        struct terrace_error **error);

/**
 * Merges an operand into the value of a key, for this transaction until it commits, with the merge
 * operator of the table. The row is locked, and the value is made at once.
 *
 * Errors: TERRACE_INVALID when the table has no merge operator, when it is not registered, and
 * when it fails; nothing is written then. Otherwise as terrace_transaction_put.
 */
enum terrace_status terrace_transaction_merge(const struct terrace_transaction *transaction,
                                              const struct terrace_table *table,
                                              const void *key,
                                              size_t key_len,
                                              const void *operand,
                                              size_t operand_len,
                                              struct terrace_error **error);

/**
 * Removes the row with the least key, for this transaction until it commits, and gives it to the
 * caller. The keys up to it are locked. As terrace_table_pop_first.
 *
 * Errors: as terrace_transaction_put.
 */
enum terrace_status terrace_transaction_pop_first(const struct terrace_transaction *transaction,
                                                  const struct terrace_table *table,
                                                  struct terrace_value *key,
                                                  struct terrace_value *value,
                                                  struct terrace_error **error);

/**
 * Removes the row with the greatest key, for this transaction until it commits, and gives it to
 * the caller. The keys from it on are locked. As terrace_table_pop_first.
 *
 * Errors: as terrace_transaction_put.
 */
enum terrace_status terrace_transaction_pop_last(const struct terrace_transaction *transaction,
                                                 const struct terrace_table *table,
                                                 struct terrace_value *key,
                                                 struct terrace_value *value,
                                                 struct terrace_error **error);

/**
 * Moves to the first row and lends it. TERRACE_NOT_FOUND when there is none, and nothing is
 * written to *row then. row may be NULL in this call and those that follow.
 *
 * Errors: as terrace_table_get; of a transaction's cursor also those of
 * terrace_transaction_get_for_update. The position stays, and the call can be repeated.
 */
enum terrace_status terrace_cursor_first(struct terrace_cursor *cursor,
                                         struct terrace_row *row,
                                         struct terrace_error **error);

/**
 * Moves to the last row and lends it. As terrace_cursor_first.
 *
 * Errors: as terrace_cursor_first.
 */
enum terrace_status terrace_cursor_last(struct terrace_cursor *cursor,
                                        struct terrace_row *row,
                                        struct terrace_error **error);

/**
 * Moves to the first row whose key is not less, and lends it. A cursor can be sent anywhere in its
 * range, any number of times. TERRACE_NOT_FOUND when there is no such row; the cursor is behind
 * the last row then. As terrace_cursor_first.
 *
 * Errors: as terrace_cursor_first.
 */
enum terrace_status terrace_cursor_seek(struct terrace_cursor *cursor,
                                        const void *key,
                                        size_t key_len,
                                        struct terrace_row *row,
                                        struct terrace_error **error);

/**
 * Moves to the last row whose key is not greater, and lends it. TERRACE_NOT_FOUND when there is no
 * such row; the cursor is before the first row then. As terrace_cursor_first.
 *
 * Errors: as terrace_cursor_first.
 */
enum terrace_status terrace_cursor_seek_for_prev(struct terrace_cursor *cursor,
                                                 const void *key,
                                                 size_t key_len,
                                                 struct terrace_row *row,
                                                 struct terrace_error **error);

/**
 * Moves to the next row and lends it; from nowhere, to the first. TERRACE_NOT_FOUND at the end,
 * and the cursor is behind the last row then. As terrace_cursor_first.
 *
 * Errors: as terrace_cursor_first.
 */
enum terrace_status terrace_cursor_next(struct terrace_cursor *cursor,
                                        struct terrace_row *row,
                                        struct terrace_error **error);

/**
 * Moves to the row before and lends it; from nowhere, to the last. TERRACE_NOT_FOUND at the
 * beginning, and the cursor is before the first row then. As terrace_cursor_first.
 *
 * Errors: as terrace_cursor_first.
 */
enum terrace_status terrace_cursor_prev(struct terrace_cursor *cursor,
                                        struct terrace_row *row,
                                        struct terrace_error **error);

/**
 * Limits how many rows come from each terrace_cursor_first, last, seek and seek_for_prev on, the
 * row of that call included; 0 for no limit. Behind the last of them comes TERRACE_NOT_FOUND. The
 * library reads no row beyond the limit. A new limit holds from the next of these calls on, or at
 * once where the cursor is nowhere.
 *
 * Errors: TERRACE_INVALID for NULL.
 */
enum terrace_status terrace_cursor_set_limit(struct terrace_cursor *cursor,
                                             size_t rows,
                                             struct terrace_error **error);

/**
 * Leaves values unread, or reads them again, from the next row on. A row without its value has one
 * of no bytes. Values that lie apart cost no reads then.
 *
 * Errors: TERRACE_INVALID for NULL.
 */
enum terrace_status terrace_cursor_set_keys_only(struct terrace_cursor *cursor,
                                                 bool keys_only,
                                                 struct terrace_error **error);

/**
 * Gives a cursor another range of its table, as of the same moment. It is nowhere then. NULL
 * stands for all keys.
 *
 * Errors: TERRACE_INVALID for bounds of an unknown kind, and nothing is changed; of a cursor for
 * update, those of terrace_transaction_cursor.
 */
enum terrace_status terrace_cursor_set_range(struct terrace_cursor *cursor,
                                             const struct terrace_range *range,
                                             struct terrace_error **error);

/**
 * Lets a cursor of a table see what is committed by now. It is nowhere then. A cursor that lives
 * long keeps versions from being dropped; this lets them go. One of a transaction goes on as its
 * isolation level says.
 *
 * Errors: TERRACE_INVALID for a cursor of a snapshot; TERRACE_CLOSED.
 */
enum terrace_status terrace_cursor_refresh(struct terrace_cursor *cursor,
                                           struct terrace_error **error);

/**
 * Frees a cursor. The row that it has lent is gone. NULL is no error.
 */
void terrace_cursor_free(struct terrace_cursor *cursor);

/**
 * The transactions that are prepared and not resolved, by id. NULL after an error. Free the list
 * with terrace_prepared_list_free.
 *
 * Errors: TERRACE_INVALID for NULL.
 */
struct terrace_prepared_list *terrace_database_list_prepared(const struct terrace_database *database,
                                                             struct terrace_error **error);

/**
 * How many transactions a list has; 0 for NULL.
 */
size_t terrace_prepared_list_len(const struct terrace_prepared_list *list);

/**
 * A prepared transaction of a list, counted from 0.
 *
 * Errors: TERRACE_INVALID when there is none at that place.
 */
enum terrace_status terrace_prepared_list_at(const struct terrace_prepared_list *list,
                                             size_t at,
                                             struct terrace_prepared *prepared,
                                             struct terrace_error **error);

/**
 * Frees a list. NULL is no error.
 */
void terrace_prepared_list_free(struct terrace_prepared_list *list);

/**
 * Commits the transaction that was prepared under an id, durably.
 *
 * Errors: TERRACE_INVALID when there is none; otherwise as terrace_database_write. Unless it is
 * TERRACE_UNKNOWN_OUTCOME, it is still prepared.
 */
enum terrace_status terrace_database_commit_prepared(const struct terrace_database *database,
                                                     const void *id,
                                                     size_t id_len,
                                                     struct terrace_error **error);

/**
 * Commits the transaction that was prepared under an id as terrace_database_enqueue commits a
 * batch. The blob may be NULL with a length of 0, for none. NULL after an error.
 *
 * Errors: as terrace_database_commit_prepared, but never TERRACE_UNKNOWN_OUTCOME.
 */
struct terrace_pending *terrace_database_enqueue_prepared(const struct terrace_database *database,
                                                          const void *id,
                                                          size_t id_len,
                                                          const void *blob,
                                                          size_t blob_len,
                                                          uint32_t durability,
                                                          struct terrace_error **error);

/**
 * Rolls the transaction back that was prepared under an id, durably.
 *
 * Errors: as terrace_database_commit_prepared.
 */
enum terrace_status terrace_database_roll_back_prepared(const struct terrace_database *database,
                                                        const void *id,
                                                        size_t id_len,
                                                        struct terrace_error **error);

/**
 * As terrace_database_roll_back_prepared, and as durable as asked: TERRACE_REMOTE waits for the
 * shared store, so that no takeover finds the transaction prepared.
 *
 * Errors: as terrace_database_commit_prepared.
 */
enum terrace_status terrace_database_roll_back_prepared_with(const struct terrace_database *database,
                                                             const void *id,
                                                             size_t id_len,
                                                             uint32_t durability,
                                                             struct terrace_error **error);

/**
 * The transactions that have not ended, the oldest first. NULL after an error. Free the list with
 * terrace_transaction_list_free.
 *
 * Errors: TERRACE_INVALID for NULL.
 */
struct terrace_transaction_list *terrace_database_list_transactions(const struct terrace_database *database,
                                                                    struct terrace_error **error);

/**
 * How many transactions a list has; 0 for NULL.
 */
size_t terrace_transaction_list_len(const struct terrace_transaction_list *list);

/**
 * A transaction of a list, counted from 0.
 *
 * Errors: TERRACE_INVALID when there is none at that place.
 */
enum terrace_status terrace_transaction_list_at(const struct terrace_transaction_list *list,
                                                size_t at,
                                                struct terrace_transaction_info *transaction,
                                                struct terrace_error **error);

/**
 * Frees a list. NULL is no error.
 */
void terrace_transaction_list_free(struct terrace_transaction_list *list);

/**
 * Begins a bulk load. Keys that the table has already are replaced if replace is true; otherwise
 * they make terrace_bulk_load_finish fail. NULL after an error. Free it with
 * terrace_bulk_load_free.
 *
 * Errors: TERRACE_MISSING_TABLE when the table was dropped; TERRACE_INVALID when the database is
 * open read-only;
 * TERRACE_UNAVAILABLE; TERRACE_CLOSED.
 */
struct terrace_bulk_load *terrace_table_bulk_load(const struct terrace_table *table,
                                                  bool replace,
                                                  struct terrace_error **error);

/**
 * Adds a key with its value.
 *
 * Errors: TERRACE_INVALID when the key is not greater than the one before; TERRACE_TOO_LARGE when
 * key or value are too long; the load goes on without it. TERRACE_FULL and TERRACE_UNAVAILABLE end
 * the load, and nothing is left of it.
 */
enum terrace_status terrace_bulk_load_put(struct terrace_bulk_load *load,
                                          const void *key,
                                          size_t key_len,
                                          const void *value,
                                          size_t value_len,
                                          struct terrace_error **error);

/**
 * Makes all of it visible, durably, at once. The load has ended then.
 *
 * Errors: TERRACE_EXISTS when the table has one of the keys and they are not to be replaced;
 * TERRACE_MISSING_TABLE when it was dropped or truncated; TERRACE_TIMEOUT when a transaction has
 * had one of the keys locked for 10 s; TERRACE_DEADLOCK; TERRACE_UNKNOWN_OUTCOME; otherwise as
 * terrace_table_put. After a key that was there, a timeout and a deadlock it can be called again.
 */
enum terrace_status terrace_bulk_load_finish(struct terrace_bulk_load *load,
                                             struct terrace_error **error);

/**
 * Frees a bulk load. One that was not finished leaves nothing. NULL is no error.
 */
void terrace_bulk_load_free(struct terrace_bulk_load *load);

/**
 * Writes statistics to *statistics. Pass sizeof(terrace_statistics) as the size: a library that
 * has more numbers than the structure leaves out the last ones, and one that has fewer writes
 * zeros.
 *
 * Errors: TERRACE_INVALID for NULL, and for a size that cannot be.
 */
enum terrace_status terrace_database_get_statistics(const struct terrace_database *database,
                                                    struct terrace_statistics *statistics,
                                                    size_t size,
                                                    struct terrace_error **error);

/**
 * All statistics as a JSON object, with the names of the Rust type Stats. NULL after an error.
 * Free it with terrace_string_free.
 *
 * Errors: TERRACE_INVALID for NULL.
 */
struct terrace_string *terrace_database_get_statistics_json(const struct terrace_database *database,
                                                            struct terrace_error **error);

/**
 * Statistics, and histograms of how long things take, in the text format of OpenMetrics, which
 * Prometheus reads. docs/operations.md has what to watch. NULL after an error. Free it with
 * terrace_string_free.
 *
 * Errors: TERRACE_INVALID for NULL.
 */
struct terrace_string *terrace_database_metrics_text(const struct terrace_database *database,
                                                     struct terrace_error **error);

/**
 * What terrace_database_metrics_text has, as numbers in the order of their names, which have their
 * labels as there. Those of several tables are added up. NULL after an error. Free it with
 * terrace_metrics_free.
 *
 * Errors: TERRACE_INVALID for NULL.
 */
struct terrace_metrics *terrace_database_metrics(const struct terrace_database *database,
                                                 struct terrace_error **error);

/**
 * How many there are; 0 for NULL.
 */
size_t terrace_metrics_len(const struct terrace_metrics *metrics);

/**
 * The name of one of them, counted from 0: UTF-8 that ends with a zero byte and belongs to the
 * list. Its value is written to *value, if that is not NULL. NULL when there is none there.
 */
const char *terrace_metrics_at(const struct terrace_metrics *metrics, size_t at, double *value);

/**
 * Frees them. NULL is no error.
 */
void terrace_metrics_free(struct terrace_metrics *metrics);

/**
 * The numbers of a table. A table that was renamed is the same one.
 *
 * Errors: TERRACE_INVALID for NULL; TERRACE_MISSING_TABLE when the table was dropped.
 */
enum terrace_status terrace_table_get_statistics(const struct terrace_table *table,
                                                 struct terrace_table_statistics *statistics,
                                                 struct terrace_error **error);

/**
 * Checks every structure of an open database, on every tier, against its checksum. Writers wait
 * meanwhile. NULL after an error. Free the report with terrace_report_free.
 *
 * Errors: TERRACE_CLOSED; TERRACE_UNAVAILABLE when a file could not be read without which nothing
 * else can be checked. Damage is no error; it is in the report, and so is an extent that could not
 * be read.
 */
struct terrace_report *terrace_database_verify(const struct terrace_database *database,
                                               struct terrace_error **error);

/**
 * Checks the database in a directory, which must not be open to write. The options are those of
 * terrace_open, and may be NULL for the defaults: they name the region and the store where the
 * database has them elsewhere. As terrace_database_verify.
 *
 * Errors: TERRACE_MISSING_DATABASE when there is none; TERRACE_BUSY when it is open elsewhere.
 */
struct terrace_report *terrace_verify(const char *path,
                                      const struct terrace_options *options,
                                      struct terrace_error **error);

/**
 * Writes what can be read of the damaged database in the directory from to a new one in the
 * directory to, which must be missing or empty. The options are as of terrace_verify. NULL after
 * an error. The report has what was lost.
 *
 * Errors: TERRACE_MISSING_DATABASE when there is none; TERRACE_EXISTS for something in to;
 * otherwise as terrace_open.
 */
struct terrace_report *terrace_salvage(const char *from,
                                       const char *to,
                                       const struct terrace_options *options,
                                       struct terrace_error **error);

/**
 * How many structures were checked, or records written to the new database; 0 for NULL.
 */
uint64_t terrace_report_checked(const struct terrace_report *report);

/**
 * How many tables a salvage has written; 0 for a verification, and for NULL.
 */
uint64_t terrace_report_tables(const struct terrace_report *report);

/**
 * How many damages were found, with what could not be read: terrace_report_unreadable says how
 * many of them that is. 0 for NULL.
 */
size_t terrace_report_damages(const struct terrace_report *report);

/**
 * How many structures could not be read: an I/O error, or a store that does not answer. They are
 * the last of the damages, and their got is the error. Nothing is known of what is stored there. 0
 * for NULL.
 */
size_t terrace_report_unreadable(const struct terrace_report *report);

/**
 * One of the damages, counted from 0. Its text belongs to the report.
 *
 * Errors: TERRACE_INVALID when there is none at that place.
 */
enum terrace_status terrace_report_damage(const struct terrace_report *report,
                                          size_t at,
                                          struct terrace_damage *damage,
                                          struct terrace_error **error);

/**
 * Frees a report. NULL is no error.
 */
void terrace_report_free(struct terrace_report *report);

/**
 * Serves a page at an address such as 127.0.0.1:8080, with a thread of its own; port 0 takes a
 * free one. It shows what lies where, what moves, and what writers wait for. token may be NULL:
 * then every user of this machine may look, and the address has to be a loopback one. With a token
 * of 16 to 128 letters, digits and -._~ the address may be any. The page does not keep the
 * database open. NULL after an error. It ends with terrace_monitor_free.
 *
 * Errors: TERRACE_INVALID when the address cannot be had, for a token that is not so, and where
 * the library was built without the feature monitor.
 */
struct terrace_monitor *terrace_monitor_serve(const struct terrace_database *database,
                                              const char *address,
                                              const char *token,
                                              struct terrace_error **error);

/**
 * The port of a page; 0 for NULL.
 */
uint16_t terrace_monitor_port(const struct terrace_monitor *monitor);

/**
 * Ends a page and its connections at once. NULL is no error.
 */
void terrace_monitor_free(struct terrace_monitor *monitor);

/**
 * Adds a backup to the set in a directory, which is made if it is missing, while writers go on.
 * Extents that the set has are not copied again. *backup gets what was made, and may be NULL.
 *
 * Errors: TERRACE_INVALID when the directory holds something else, or backups of another database;
 * TERRACE_CORRUPT; TERRACE_FULL; TERRACE_BUSY when another process uses the set;
 * TERRACE_CLOSED.
 */
enum terrace_status terrace_database_backup(const struct terrace_database *database,
                                            const char *set,
                                            struct terrace_backup *backup,
                                            struct terrace_error **error);

/**
 * Opens the set of backups in a directory. Databases are restored with the options, which may be
 * NULL for the defaults. NULL after an error. Free it with terrace_backup_set_free.
 *
 * Errors: TERRACE_INVALID when there is none; TERRACE_UNAVAILABLE.
 */
struct terrace_backup_set *terrace_backup_set_open(const char *path,
                                                   const struct terrace_options *options,
                                                   struct terrace_error **error);

/**
 * The backups of a set, the oldest first. NULL after an error. Free the list with
 * terrace_backup_list_free.
 *
 * Errors: TERRACE_CORRUPT when a manifest is damaged; TERRACE_BUSY when another process
 * adds to the set or deletes from it.
 */
struct terrace_backup_list *terrace_backup_set_list(const struct terrace_backup_set *set,
                                                    struct terrace_error **error);

/**
 * How many backups a list has; 0 for NULL.
 */
size_t terrace_backup_list_len(const struct terrace_backup_list *list);

/**
 * A backup of a list, counted from 0.
 *
 * Errors: TERRACE_INVALID when there is none at that place.
 */
enum terrace_status terrace_backup_list_at(const struct terrace_backup_list *list,
                                           size_t at,
                                           struct terrace_backup *backup,
                                           struct terrace_error **error);

/**
 * Frees a list. NULL is no error.
 */
void terrace_backup_list_free(struct terrace_backup_list *list);

/**
 * Makes a database of a backup in the directory to, which must be missing or empty.
 *
 * Errors: TERRACE_INVALID when there is no such backup; TERRACE_EXISTS when there is something in
 * to; TERRACE_CORRUPT when the backup is damaged; TERRACE_FULL; otherwise as
 * terrace_backup_set_list.
 */
enum terrace_status terrace_backup_set_restore(const struct terrace_backup_set *set,
                                               uint64_t number,
                                               const char *to,
                                               struct terrace_error **error);

/**
 * Deletes a backup, and gives back space that no other one needs.
 *
 * Errors: TERRACE_INVALID when there is none; otherwise as terrace_backup_set_list.
 */
enum terrace_status terrace_backup_set_delete(const struct terrace_backup_set *set,
                                              uint64_t number,
                                              struct terrace_error **error);

/**
 * Reads all that a set has, and checks it. NULL after an error. Free the report with
 * terrace_report_free.
 *
 * Errors: TERRACE_UNAVAILABLE. Damage is no error; it is in the report.
 */
struct terrace_report *terrace_backup_set_verify(const struct terrace_backup_set *set,
                                                 struct terrace_error **error);

/**
 * Frees the handle. The backups stay. NULL is no error.
 */
void terrace_backup_set_free(struct terrace_backup_set *set);

/**
 * Gives all tables with their options, their rows, and the last blob to write, as one snapshot
 * shows them, while writers go on. terrace_database_load takes the bytes in, which have checksums
 * and an end. With tables, table_count names, only these are dumped, and no blob; NULL and 0 mean
 * all of them. Merged values stand for operands. Ages of rows are left out: in a table with a ttl
 * they live that long from the load on. It reads all rows, and holds one and a block of 256 KiB.
 * *report gets what was dumped, and may be NULL.
 *
 * What prepared transactions have written is in no dump. While some are prepared the call fails,
 * unless without_prepared is true: then their writes and locks are left out.
 *
 * Errors: TERRACE_INVALID while transactions are prepared, or when tables has no names;
 * TERRACE_MISSING_TABLE; TERRACE_CONFLICT when a table was dropped or truncated meanwhile;
 * TERRACE_UNAVAILABLE when write has returned false; otherwise as terrace_cursor_next. What was
 * written by then has no end, and no load takes it for whole.
 */
enum terrace_status terrace_database_dump(const struct terrace_database *database,
                                          const struct terrace_slice *tables,
                                          size_t table_count,
                                          bool without_prepared,
                                          terrace_write_function write,
                                          void *context,
                                          struct terrace_dump_report *report,
                                          struct terrace_error **error);

/**
 * Takes in a dump, which read gives: makes its tables, with their options and rows. A merge
 * operator need not be known to the opening. The blob becomes the last one where the database has
 * none. With tables, table_count names, only these are loaded, and no blob. It holds a few MiB of
 * memory. *report gets what was loaded, and may be NULL.
 *
 * Errors: TERRACE_EXISTS when the database has a table of the dump already, and
 * TERRACE_MISSING_TABLE when the dump lacks one that was named: nothing was loaded then, unless
 * another thread has made the table since the load began. TERRACE_CORRUPT when the dump is damaged
 * or was cut off; TERRACE_INVALID when it is no dump, or tables has no names; TERRACE_UNAVAILABLE
 * when read has failed; otherwise as terrace_bulk_load_finish. After an error each table has all
 * rows of the dump or is not there, and the message counts them.
 */
enum terrace_status terrace_database_load(const struct terrace_database *database,
                                          const struct terrace_slice *tables,
                                          size_t table_count,
                                          terrace_read_function read,
                                          void *context,
                                          struct terrace_dump_report *report,
                                          struct terrace_error **error);

/**
 * Calls call(context) on this thread. Waits of the library inside of it end with TERRACE_TIMEOUT
 * once wait_ms milliseconds are over: those for row locks, for space and for turns of commits. Of
 * two such deadlines, one inside of the other, the earlier one counts. A commit that has its place
 * in the order is waited for all the same.
 *
 * Errors: TERRACE_INVALID for NULL.
 */
enum terrace_status terrace_with_deadline(uint64_t wait_ms,
                                          terrace_call call,
                                          void *context,
                                          struct terrace_error **error);

/**
 * Has openings, verifications, backups, restores, salvages and closings with these options, or of
 * a database or set that was opened with them, tell function how far they are: first, last, and
 * some ten times a second between them. Where it returns false the call ends with
 * TERRACE_CANCELLED. An opening leaves all rows, as a power cut does. A verification gives no
 * report. A backup is not in its set. What a restore or salvage has begun cannot be opened, and
 * the next one to the same directory starts over. A closing goes on to its end. Nothing is told of
 * what followers, standbys and takeovers open and close by themselves. The function and its
 * context, which may be NULL, stay valid until the options are freed, the databases, followers and
 * standbys are closed, and the sets of backups are freed.
 *
 * Errors: TERRACE_INVALID for NULL.
 */
enum terrace_status terrace_options_set_progress(struct terrace_options *options,
                                                 terrace_progress_function function,
                                                 void *context,
                                                 struct terrace_error **error);

/**
 * Has databases that are opened with these options tell function of waits for locks. The function
 * and its context, which may be NULL, stay valid until the options are freed and the databases are
 * closed.
 *
 * Errors: TERRACE_INVALID for NULL.
 */
enum terrace_status terrace_options_set_lock_waits(struct terrace_options *options,
                                                   terrace_lock_wait_function function,
                                                   void *context,
                                                   struct terrace_error **error);

/**
 * Has databases that are opened with these options tell function of their events, in their order.
 * NULL removes it. Of several functions the last one counts. terrace_close returns when all is
 * told, unless function calls it; no other call waits for that. So the function and its context,
 * which may be NULL, stay valid until the program ends. Events wait for the function: 1,024 at
 * most, 512 for slow operations, and later ones are left out.
 *
 * Errors: TERRACE_INVALID where options is NULL.
 */
enum terrace_status terrace_options_on_event(struct terrace_options *options,
                                             terrace_event_function function,
                                             void *context,
                                             struct terrace_error **error);

/**
 * Has function called once when a commit has ended, also where the handle was freed before. A
 * commit that has ended by now is told of at once, on this thread. Each call adds a function.
 * The function and its context, which may be NULL, stay valid until it was called.
 *
 * Errors: TERRACE_INVALID for NULL; TERRACE_UNAVAILABLE in a forked child.
 */
enum terrace_status terrace_pending_on_end(const struct terrace_pending *pending,
                                           terrace_commit_function function,
                                           void *context,
                                           struct terrace_error **error);

/**
 * Takes the shared database of the store url over, whichever machine writes to it, and opens it to
 * write in the directory path, which is missing or empty. The other writer stops with
 * TERRACE_FENCED. It has every TERRACE_REMOTE commit, and of the rest what had been shipped. Later
 * openings of path need the options share and object_store. As terrace_open.
 *
 * Errors: TERRACE_INVALID when there is no shared database; TERRACE_EXISTS when path is not empty;
 * TERRACE_BUSY when it is open elsewhere; TERRACE_UNAVAILABLE when the store does not answer;
 * TERRACE_CORRUPT; TERRACE_FULL.
 */
struct terrace_database *terrace_open_shared(const char *url,
                                             const char *path,
                                             const struct terrace_options *options,
                                             struct terrace_error **error);

/**
 * Follows the shared database of the store url, with data of its own in the directory path, or in
 * the store with the option object_cache. It costs two requests a second while nothing is
 * committed. Options may be NULL for the defaults. NULL after an error. End it with
 * terrace_follower_close, then free it with terrace_follower_free.
 *
 * Errors: as terrace_open_shared; TERRACE_UNAVAILABLE also where the shared database has no
 * checkpoint yet.
 */
struct terrace_follower *terrace_follow(const char *url,
                                        const char *path,
                                        const struct terrace_options *options,
                                        struct terrace_error **error);

/**
 * Stands by for the shared database of the store url, with all of its data in the directory path.
 * As terrace_follow; terrace_follower_promote makes it the writer.
 *
 * Errors: as terrace_follow.
 */
struct terrace_follower *terrace_standby(const char *url,
                                         const char *path,
                                         const struct terrace_options *options,
                                         struct terrace_error **error);

/**
 * The database of a follower or a standby, to read. Its handles keep what they show where the
 * follower had to start from a checkpoint: ask again now and then, and when a read fails with
 * TERRACE_UNAVAILABLE. terrace_close does nothing to it: the follower closes it. NULL after an
 * error. Free it with terrace_database_free.
 *
 * Errors: TERRACE_CLOSED; TERRACE_UNAVAILABLE when it has to start from a checkpoint, and the
 * store has none or does not answer.
 */
struct terrace_database *terrace_follower_database(const struct terrace_follower *follower,
                                                   struct terrace_error **error);

/**
 * Writes how far a follower or a standby is to *status.
 *
 * Errors: TERRACE_INVALID for NULL.
 */
enum terrace_status terrace_follower_get_status(const struct terrace_follower *follower,
                                                struct terrace_node_status *status,
                                                struct terrace_error **error);

/**
 * Why a follower or a standby does not go on, though it tries again; empty text while it goes on.
 * NULL after an error. Free it with terrace_string_free.
 *
 * Errors: TERRACE_INVALID for NULL.
 */
struct terrace_string *terrace_follower_note(const struct terrace_follower *follower,
                                             struct terrace_error **error);

/**
 * Makes a standby the writer: it applies what is left, claims the shared store, and opens the
 * database to write, in the directory that terrace_database_path names. Handles of the standby's
 * database are closed by it, and the standby too. As terrace_open_shared.
 *
 * Errors: TERRACE_INVALID for a follower, which may lack data, and inside of a merge function:
 * both go on then. Otherwise as terrace_open_shared. Those close the standby. Open it again and
 * promote that.
 */
struct terrace_database *terrace_follower_promote(const struct terrace_follower *follower,
                                                  struct terrace_error **error);

/**
 * Ends following. The next follower in the same directory goes on where it was. A second call does
 * nothing.
 *
 * Errors: as terrace_close.
 */
enum terrace_status terrace_follower_close(const struct terrace_follower *follower,
                                           struct terrace_error **error);

/**
 * Frees the handle, and ends following if it was not closed; an error of that is lost. NULL is no
 * error.
 */
void terrace_follower_free(struct terrace_follower *follower);

/**
 * How far the shared database of the store url is, as a JSON object with the names of the Rust
 * type SharedStatus. It costs about twenty small requests, and changes nothing. Options may be
 * NULL. NULL after an error. Free it with terrace_string_free.
 *
 * Errors: TERRACE_INVALID when there is none; TERRACE_UNAVAILABLE when the store does not answer.
 */
struct terrace_string *terrace_shared_status_json(const char *url,
                                                  const struct terrace_options *options,
                                                  struct terrace_error **error);

/**
 * Forgets a follower that was registered by the option follower_name: the store keeps nothing for
 * it any more. A name that is not registered is no error. Options may be NULL.
 *
 * Errors: TERRACE_INVALID for a name that follower_name does not take; TERRACE_UNAVAILABLE when
 * the store does not answer.
 */
enum terrace_status terrace_forget_follower(const char *url,
                                            const char *name,
                                            const struct terrace_options *options,
                                            struct terrace_error **error);

/**
 * How many there are; 0 for NULL.
 */
size_t terrace_strings_len(const struct terrace_strings *strings);

/**
 * One of them, counted from 0: UTF-8 that ends with a zero byte and belongs to the list. NULL when
 * there is none at that place.
 */
const char *terrace_strings_at(const struct terrace_strings *strings, size_t at);

/**
 * Frees a list. NULL is no error.
 */
void terrace_strings_free(struct terrace_strings *strings);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TERRACE_H */
