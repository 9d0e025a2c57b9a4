/* What callers do wrong, and what they get for it. */

#define _POSIX_C_SOURCE 200809L

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static void nulls(void) {
    terrace_error *error = NULL;
    terrace_value value;
    size_t len;
    NO_HANDLE(TERRACE_INVALID, terrace_open(NULL, NULL, &error));
    NO_HANDLE(TERRACE_INVALID, terrace_create(NULL, NULL, &error));
    NO_HANDLE(TERRACE_INVALID, terrace_open_read_only(NULL, NULL, &error));
    NO_HANDLE(TERRACE_INVALID, terrace_database_table(NULL, "t", &error));
    NO_HANDLE(TERRACE_INVALID, terrace_database_snapshot(NULL, &error));
    NO_HANDLE(TERRACE_INVALID, terrace_database_begin(NULL, NULL, &error));
    NO_HANDLE(TERRACE_INVALID, terrace_table_cursor(NULL, NULL, &error));
    NO_HANDLE(TERRACE_INVALID, terrace_table_bulk_load(NULL, false, &error));
    NO_HANDLE(TERRACE_INVALID, terrace_verify(NULL, NULL, &error));
    FAILS(TERRACE_INVALID, terrace_close(NULL, &error));
    FAILS(TERRACE_INVALID, terrace_table_get(NULL, "k", 1, &value, &error));
    CHECK(strstr(terrace_error_message(error), "table is NULL") != NULL);
    FAILS(TERRACE_INVALID, terrace_table_get_into(NULL, "k", 1, NULL, 0, &len, &error));
    FAILS(TERRACE_INVALID, terrace_table_put(NULL, "k", 1, "v", 1, TERRACE_DURABLE, &error));
    FAILS(TERRACE_INVALID, terrace_cursor_next(NULL, NULL, &error));
    FAILS(TERRACE_INVALID, terrace_pending_wait(NULL, &error));
    FAILS(TERRACE_INVALID, terrace_transaction_commit(NULL, &error));
    FAILS(TERRACE_INVALID, terrace_options_set(NULL, "pm_size", "1", &error));

    /* To free nothing does nothing. */
    terrace_error_free(error);
    terrace_error_free(NULL);
    terrace_string_free(NULL);
    terrace_strings_free(NULL);
    terrace_options_free(NULL);
    terrace_table_options_free(NULL);
    terrace_transaction_options_free(NULL);
    terrace_database_free(NULL);
    terrace_table_free(NULL);
    terrace_batch_free(NULL);
    terrace_batch_clear(NULL);
    terrace_pending_free(NULL);
    terrace_snapshot_free(NULL);
    terrace_cursor_free(NULL);
    terrace_transaction_free(NULL);
    terrace_prepared_list_free(NULL);
    terrace_transaction_list_free(NULL);
    terrace_bulk_load_free(NULL);
    terrace_report_free(NULL);
    terrace_backup_list_free(NULL);
    terrace_backup_set_free(NULL);
    terrace_value_release(NULL);
    CHECK(terrace_error_status(NULL) == TERRACE_OK && !terrace_error_is_retryable(NULL));
    CHECK(terrace_error_message(NULL)[0] == 0 && terrace_string_text(NULL)[0] == 0);
    CHECK(terrace_batch_len(NULL) == 0 && terrace_batch_stored_bytes(NULL) == 0);
    CHECK(terrace_strings_len(NULL) == 0 && terrace_strings_at(NULL, 0) == NULL);
    CHECK(terrace_pending_number(NULL) == 0 && terrace_snapshot_number(NULL) == 0);
    CHECK(terrace_transaction_id(NULL) == 0 && terrace_report_damages(NULL) == 0);
    CHECK(terrace_report_unreadable(NULL) == 0);
    CHECK(terrace_report_checked(NULL) == 0 && terrace_report_tables(NULL) == 0);
    CHECK(terrace_prepared_list_len(NULL) == 0 && terrace_backup_list_len(NULL) == 0);
}

/* Bug: a call that was refused for a table or a key left the value of its caller as it was, which is
 * often uninitialised; to release it freed what was never there. Cause: other arguments were looked
 * at before the value was emptied. Fix: the value is emptied first. */
static void values_are_empty_after_an_error(terrace_database *database) {
    terrace_error *error = NULL;
    terrace_table *table = terrace_database_table(database, "t", &error);
    terrace_snapshot *snapshot = terrace_database_snapshot(database, &error);
    terrace_transaction *transaction = terrace_database_begin(database, NULL, &error);
    HANDLE(table);
    HANDLE(snapshot);
    HANDLE(transaction);
    terrace_value key, value, values[1];
    size_t len;
    terrace_slice keys[1] = {{"k", 1}};
#define LEAVES_NONE(call)                                                            \
    do {                                                                             \
        memset(&key, 7, sizeof key);                                                 \
        memset(&value, 7, sizeof value);                                             \
        memset(values, 7, sizeof values);                                            \
        FAILS(TERRACE_INVALID, call);                                                \
    } while (0)
    LEAVES_NONE(terrace_table_get(NULL, "k", 1, &value, &error));
    CHECK(value.data == NULL);
    LEAVES_NONE(terrace_snapshot_get(NULL, table, "k", 1, &value, &error));
    CHECK(value.data == NULL);
    LEAVES_NONE(terrace_snapshot_get(snapshot, NULL, "k", 1, &value, &error));
    CHECK(value.data == NULL);
    LEAVES_NONE(terrace_transaction_get(NULL, table, "k", 1, &value, &error));
    CHECK(value.data == NULL);
    LEAVES_NONE(terrace_transaction_get(transaction, table, NULL, 1, &value, &error));
    CHECK(value.data == NULL);
    LEAVES_NONE(terrace_transaction_get_for_update(transaction, NULL, "k", 1, &value, &error));
    CHECK(value.data == NULL);
    LEAVES_NONE(terrace_transaction_get_for_share(NULL, table, "k", 1, &value, &error));
    CHECK(value.data == NULL);
    LEAVES_NONE(terrace_table_multi_get(NULL, keys, values, 1, &error));
    CHECK(values[0].data == NULL);
    LEAVES_NONE(terrace_snapshot_multi_get(NULL, table, keys, values, 1, &error));
    CHECK(values[0].data == NULL);
    LEAVES_NONE(terrace_transaction_multi_get(NULL, table, keys, values, 1, &error));
    CHECK(values[0].data == NULL);
    LEAVES_NONE(terrace_table_first(NULL, &key, &value, &error));
    CHECK(key.data == NULL && value.data == NULL);
    LEAVES_NONE(terrace_snapshot_last(snapshot, NULL, &key, &value, &error));
    CHECK(key.data == NULL && value.data == NULL);
    LEAVES_NONE(terrace_table_pop_first(table, &key, NULL, &error));
    CHECK(key.data == NULL);
    LEAVES_NONE(terrace_database_last_blob(NULL, &value, &error));
    CHECK(value.data == NULL);
    FAILS(TERRACE_INVALID, terrace_table_get_into(NULL, "k", 1, NULL, 0, &len, &error));
    CHECK(len == 0);
    FAILS(TERRACE_INVALID, terrace_snapshot_get_into(NULL, table, "k", 1, NULL, 0, &len, &error));
    CHECK(len == 0);
#undef LEAVES_NONE
    terrace_transaction_free(transaction);
    terrace_snapshot_free(snapshot);
    terrace_table_free(table);
    terrace_error_free(error);
}

static void wrong_sizes(terrace_database *database) {
    terrace_error *error = NULL;
    terrace_table *table = terrace_database_table(database, "t", &error);
    HANDLE(table);
    terrace_value value;
    size_t len;
    FAILS(TERRACE_INVALID, terrace_table_get(table, NULL, 3, &value, &error));
    CHECK(value.data == NULL);
    FAILS(TERRACE_INVALID, terrace_table_get(table, "k", SIZE_MAX, &value, &error));
    FAILS(TERRACE_INVALID, terrace_table_get(table, "k", 1, NULL, &error));
    FAILS(TERRACE_INVALID, terrace_table_put(table, "k", 1, NULL, 5, TERRACE_DURABLE, &error));
    FAILS(TERRACE_INVALID, terrace_table_put(table, "k", 1, "v", 1, 7, &error));
    put(table, "k", "value");
    FAILS(TERRACE_INVALID, terrace_table_get_into(table, "k", 1, NULL, 9, &len, &error));
    FAILS(TERRACE_INVALID, terrace_table_get_into(table, "k", 1, NULL, 9, NULL, &error));
    FAILS(TERRACE_INVALID, terrace_table_multi_get(table, NULL, &value, 1, &error));
    FAILS(TERRACE_INVALID, terrace_table_multi_get(table, NULL, NULL, 1, &error));
    FAILS(TERRACE_INVALID, terrace_table_multi_get(table, NULL, &value, SIZE_MAX, &error));
    NO_HANDLE(TERRACE_INVALID, terrace_database_table(database, "", &error));
    NO_HANDLE(TERRACE_INVALID, terrace_database_table(database, NULL, &error));
    NO_HANDLE(TERRACE_INVALID, terrace_database_table(database, "\xff\xfe", &error));
    char *long_key = calloc(1, 65537);
    CHECK(long_key != NULL);
    FAILS(TERRACE_TOO_LARGE,
          terrace_table_put(table, long_key, 65537, "v", 1, TERRACE_DURABLE, &error));
    free(long_key);
    /* Lengths that no array can have, also inside of structures. */
    terrace_slice slices[2] = {{"k", 1}, {NULL, 3}};
    terrace_value values[2];
    FAILS(TERRACE_INVALID, terrace_table_multi_get(table, slices, values, 2, &error));
    CHECK(values[0].data == NULL && values[1].data == NULL);
    slices[1] = (terrace_slice){"k", SIZE_MAX};
    FAILS(TERRACE_INVALID, terrace_table_multi_get(table, slices, values, 2, &error));
    FAILS(TERRACE_INVALID, terrace_table_put(table, "k", 1, "v", SIZE_MAX, TERRACE_DURABLE, &error));
    FAILS(TERRACE_INVALID, terrace_table_delete(table, NULL, 1, TERRACE_DURABLE, &error));
    terrace_range range = {{"k", SIZE_MAX, TERRACE_INCLUDED}, {NULL, 0, TERRACE_UNBOUNDED}};
    FAILS(TERRACE_INVALID, terrace_table_delete_range(table, &range, &error));
    NO_HANDLE(TERRACE_INVALID, terrace_table_cursor(table, &range, &error));
    range.lower = (terrace_bound){NULL, 1, TERRACE_PREFIX};
    NO_HANDLE(TERRACE_INVALID, terrace_table_cursor(table, &range, &error));
    range.lower = (terrace_bound){"k", 1, 77};
    NO_HANDLE(TERRACE_INVALID, terrace_table_cursor(table, &range, &error));
    terrace_cursor *cursor = terrace_table_cursor(table, NULL, &error);
    HANDLE(cursor);
    terrace_row row;
    FAILS(TERRACE_INVALID, terrace_cursor_seek(cursor, NULL, 1, &row, &error));
    FAILS(TERRACE_INVALID, terrace_cursor_seek_for_prev(cursor, "k", SIZE_MAX, &row, &error));
    OK(terrace_cursor_next(cursor, &row, &error));
    terrace_cursor_free(cursor);
    terrace_batch *batch = terrace_batch_new();
    FAILS(TERRACE_INVALID, terrace_batch_put(batch, table, NULL, 1, "v", 1, &error));
    FAILS(TERRACE_INVALID, terrace_batch_put(batch, table, "k", 1, "v", SIZE_MAX, &error));
    FAILS(TERRACE_INVALID, terrace_batch_delete(batch, NULL, "k", 1, &error));
    FAILS(TERRACE_INVALID, terrace_batch_set_blob(batch, NULL, 1, &error));
    CHECK(terrace_batch_len(batch) == 0);
    char *long_blob = calloc(1, 4097);
    CHECK(long_blob != NULL);
    OK(terrace_batch_put(batch, table, TEXT("k"), TEXT("v"), &error));
    OK(terrace_batch_set_blob(batch, long_blob, 4097, &error));
    FAILS(TERRACE_TOO_LARGE, terrace_database_write(database, batch, TERRACE_DURABLE, &error));
    free(long_blob);
    terrace_batch_free(batch);
    terrace_statistics statistics;
    FAILS(TERRACE_INVALID, terrace_database_get_statistics(database, &statistics, SIZE_MAX, &error));
    FAILS(TERRACE_INVALID, terrace_database_grow_pm(database, UINT64_MAX, NULL, &error));
    CHECK(has(table, "k", "value"));
    /* The same without an error to fill in. */
    CHECK(terrace_table_get(table, NULL, 3, &value, NULL) == TERRACE_INVALID);
    terrace_table_free(table);
    terrace_error_free(error);
}

/* A table of another database. */
static void foreign(terrace_database *database) {
    terrace_error *error = NULL;
    terrace_database *other = open_small("other");
    terrace_table *mine = terrace_database_table(database, "t", &error);
    terrace_table *foreign = terrace_database_table(other, "t", &error);
    HANDLE(mine);
    HANDLE(foreign);
    terrace_batch *batch = terrace_batch_new();
    OK(terrace_batch_put(batch, mine, TEXT("k"), TEXT("v"), &error));
    OK(terrace_batch_put(batch, foreign, TEXT("k"), TEXT("v"), &error));
    FAILS(TERRACE_INVALID, terrace_database_write(database, batch, TERRACE_DURABLE, &error));
    OK(terrace_batch_put(batch, foreign, TEXT("k"), TEXT("v"), &error));
    NO_HANDLE(TERRACE_INVALID,
              terrace_database_enqueue(database, batch, TERRACE_DURABLE, &error));
    terrace_batch_free(batch);
    CHECK(has(foreign, "k", NULL));
    terrace_value value;
    terrace_snapshot *snapshot = terrace_database_snapshot(database, &error);
    FAILS(TERRACE_INVALID, terrace_snapshot_get(snapshot, foreign, "k", 1, &value, &error));
    terrace_cursor *cursor = terrace_snapshot_cursor(snapshot, foreign, NULL, &error);
    HANDLE(cursor);
    FAILS(TERRACE_INVALID, terrace_cursor_next(cursor, NULL, &error));
    terrace_cursor_free(cursor);
    terrace_snapshot_free(snapshot);
    terrace_transaction *transaction = terrace_database_begin(database, NULL, &error);
    FAILS(TERRACE_INVALID,
          terrace_transaction_put(transaction, foreign, TEXT("k"), TEXT("v"), &error));
    terrace_value key;
    FAILS(TERRACE_INVALID, terrace_transaction_first(transaction, foreign, &key, &value, &error));
    FAILS(TERRACE_INVALID, terrace_transaction_pop_first(transaction, foreign, &key, &value, &error));
    FAILS(TERRACE_INVALID,
          terrace_transaction_get_for_update(transaction, foreign, "k", 1, &value, &error));
    OK(terrace_transaction_put(transaction, mine, TEXT("k"), TEXT("v"), &error));
    OK(terrace_transaction_commit(transaction, &error));
    terrace_transaction_free(transaction);
    terrace_table_free(mine);
    terrace_table_free(foreign);
    close_and_free(other);
    terrace_error_free(error);
}

/* Bug: statistics of a dropped table were those of the table that had its name by then. Cause: the
 * call looked for the name. Fix: it looks at the table of the handle, as all calls with one do. */
static void stale(terrace_database *database) {
    terrace_error *error = NULL;
    terrace_table *old = terrace_database_table(database, "orders", &error);
    HANDLE(old);
    OK(terrace_table_drop(old, &error));
    terrace_table *new = terrace_database_table_with_options(database, "orders", NULL, &error);
    HANDLE(new);
    put(new, "k", "precious");
    terrace_table_statistics statistics;
    FAILS(TERRACE_MISSING_TABLE, terrace_table_get_statistics(old, &statistics, &error));
    FAILS(TERRACE_MISSING_TABLE, terrace_table_truncate(old, &error));
    FAILS(TERRACE_MISSING_TABLE, terrace_table_drop(old, &error));
    FAILS(TERRACE_MISSING_TABLE, terrace_table_rename(old, "other", &error));
    FAILS(TERRACE_MISSING_TABLE, terrace_table_set_option(old, "ttl", "1s", &error));
    CHECK(has(new, "k", "precious"));
    OK(terrace_table_rename(new, "renamed", &error));
    terrace_table *other = terrace_database_table(database, "orders", &error);
    HANDLE(other);
    put(other, "k", "other");
    OK(terrace_table_truncate(new, &error));
    CHECK(has(new, "k", NULL) && has(other, "k", "other"));
    OK(terrace_table_set_option(new, "block_size", "16KiB", &error));
    FAILS(TERRACE_INVALID, terrace_table_set_option(new, "block_size", "soft", &error));
    OK(terrace_table_get_statistics(new, &statistics, &error));
    CHECK(statistics.pm_records == 0);
    OK(terrace_table_drop(new, &error));
    OK(terrace_table_drop(other, &error));
    terrace_table_free(old);
    terrace_table_free(new);
    terrace_table_free(other);
}

static void forked(terrace_database *database) {
    terrace_error *error = NULL;
    terrace_table *table = terrace_database_table(database, "t", &error);
    HANDLE(table);
    terrace_batch *batch = terrace_batch_new();
    OK(terrace_batch_put(batch, table, TEXT("k"), TEXT("v"), &error));
    terrace_pending *pending =
        terrace_database_enqueue(database, batch, TERRACE_DURABLE, &error);
    HANDLE(pending);
    /* Each wait has the same outcome, but in a child: a thread of the parent may be in one. */
    OK(terrace_pending_wait(pending, &error));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        terrace_value value;
        FAILS(TERRACE_UNAVAILABLE, terrace_table_get(table, "k", 1, &value, &error));
        FAILS(TERRACE_UNAVAILABLE,
              terrace_table_put(table, "k", 1, "v", 1, TERRACE_DURABLE, &error));
        NO_HANDLE(TERRACE_UNAVAILABLE, terrace_database_begin(database, NULL, &error));
        NO_HANDLE(TERRACE_UNAVAILABLE, terrace_database_snapshot(database, &error));
        FAILS(TERRACE_UNAVAILABLE, terrace_pending_wait(pending, &error));
        terrace_pending_free(pending);
        terrace_batch_free(batch);
        terrace_table_free(table);
        terrace_database_free(database);
        /* The stacks of the other threads are gone here, and what they held is no leak to look for:
         * another program ends the child. */
        execlp("true", "true", (char *)NULL);
        _exit(1);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    put(table, "k", "the parent goes on");
    terrace_pending_free(pending);
    terrace_batch_free(batch);
    terrace_table_free(table);
}

static void closed(terrace_database *database) {
    terrace_error *error = NULL;
    terrace_table *table = terrace_database_table(database, "t", &error);
    terrace_snapshot *snapshot = terrace_database_snapshot(database, &error);
    terrace_bulk_load *load = terrace_table_bulk_load(table, true, &error);
    terrace_batch *batch = terrace_batch_new();
    OK(terrace_batch_put(batch, table, TEXT("k"), TEXT("v"), &error));
    terrace_transaction *transaction = terrace_database_begin(database, NULL, &error);
    terrace_cursor *cursor = terrace_table_cursor(table, NULL, &error);
    HANDLE(transaction);
    HANDLE(cursor);
    OK(terrace_transaction_put(transaction, table, TEXT("x"), TEXT("v"), &error));
    OK(terrace_close(database, &error));
    terrace_value key, value;
    FAILS(TERRACE_CLOSED, terrace_transaction_get(transaction, table, "k", 1, &value, &error));
    FAILS(TERRACE_CLOSED, terrace_transaction_commit(transaction, &error));
    FAILS(TERRACE_CLOSED, terrace_cursor_next(cursor, NULL, &error));
    FAILS(TERRACE_CLOSED, terrace_cursor_refresh(cursor, &error));
    FAILS(TERRACE_CLOSED, terrace_table_first(table, &key, &value, &error));
    FAILS(TERRACE_CLOSED, terrace_table_compact_range(table, NULL, &error));
    FAILS(TERRACE_CLOSED, terrace_table_get(table, "k", 1, &value, &error));
    FAILS(TERRACE_CLOSED, terrace_snapshot_get(snapshot, table, "k", 1, &value, &error));
    FAILS(TERRACE_CLOSED, terrace_bulk_load_put(load, TEXT("k"), TEXT("v"), &error));
    FAILS(TERRACE_CLOSED, terrace_database_write(database, batch, TERRACE_DURABLE, &error));
    NO_HANDLE(TERRACE_CLOSED, terrace_database_table(database, "t", &error));
    NO_HANDLE(TERRACE_CLOSED, terrace_database_snapshot(database, &error));
    NO_HANDLE(TERRACE_CLOSED, terrace_database_begin(database, NULL, &error));
    NO_HANDLE(TERRACE_CLOSED, terrace_table_cursor(table, NULL, &error));
    NO_HANDLE(TERRACE_CLOSED, terrace_database_verify(database, &error));
    FAILS(TERRACE_CLOSED, terrace_database_sync(database, &error));
    OK(terrace_close(database, &error));
    terrace_database_free(database);
    terrace_cursor_free(cursor);
    terrace_transaction_free(transaction);
    terrace_bulk_load_free(load);
    terrace_batch_free(batch);
    terrace_table_free(table);
    terrace_snapshot_free(snapshot);
    terrace_error_free(error);
}

int main(int count, char **arguments) {
    begin_test(count, arguments);
    nulls();
    terrace_database *database = open_small("misused");
    values_are_empty_after_an_error(database);
    wrong_sizes(database);
    foreign(database);
    stale(database);
    forked(database);
    closed(database);
    return 0;
}
