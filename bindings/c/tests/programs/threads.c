/* One database and one table for many threads; handles that are freed while others work. */

#include <pthread.h>

#include "check.h"

enum { THREADS = 4, ROUNDS = 200 };

static terrace_database *database;
static terrace_table *table;
static terrace_snapshot *snapshot;
static uint64_t last_number[THREADS];

static void *works(void *argument) {
    terrace_error *error = NULL;
    uint64_t *last = argument;
    long thread = (long)(last - last_number);
    terrace_cursor *cursor = terrace_table_cursor(table, NULL, &error);
    HANDLE(cursor);
    char key[32];
    for (int round = 0; round < ROUNDS; round++) {
        snprintf(key, sizeof key, "%ld %d", thread, round);
        put(table, key, "put");
        terrace_batch *batch = terrace_batch_new();
        OK(terrace_batch_put(batch, table, TEXT(key), TEXT("batch"), &error));
        terrace_pending *pending =
            terrace_database_enqueue(database, batch, TERRACE_RELAXED, &error);
        HANDLE(pending);
        CHECK(terrace_pending_number(pending) > *last);
        *last = terrace_pending_number(pending);
        OK(terrace_pending_wait(pending, &error));
        terrace_pending_free(pending);
        terrace_batch_free(batch);
        CHECK(has(table, key, "batch"));
        terrace_value value;
        CHECK(terrace_snapshot_get(snapshot, table, TEXT(key), &value, &error) ==
              TERRACE_NOT_FOUND);
        OK(terrace_cursor_refresh(cursor, &error));
        terrace_row row;
        OK(terrace_cursor_seek(cursor, TEXT(key), &row, &error));
        CHECK(is_text(row.key, row.key_len, key));
    }
    terrace_cursor_free(cursor);
    return NULL;
}

/* Adds to one row in transactions, which run again after conflicts. */
static void *counts(void *argument) {
    (void)argument;
    terrace_error *error = NULL;
    for (int round = 0; round < ROUNDS / 4;) {
        terrace_transaction *transaction = terrace_database_begin(database, NULL, &error);
        HANDLE(transaction);
        terrace_value value;
        uint64_t count = 0;
        terrace_status status = terrace_transaction_get_for_update(
            transaction, table, TEXT("count"), &value, &error);
        if (status == TERRACE_OK) {
            CHECK(value.len == sizeof count);
            memcpy(&count, value.data, sizeof count);
        }
        terrace_value_release(&value);
        if (status == TERRACE_OK || status == TERRACE_NOT_FOUND) {
            count++;
            OK(terrace_transaction_put(transaction, table, TEXT("count"), &count, sizeof count,
                                       &error));
            OK(terrace_transaction_commit(transaction, &error));
            round++;
        } else {
            CHECK(terrace_error_is_retryable(error));
        }
        terrace_transaction_free(transaction);
    }
    terrace_error_free(error);
    return NULL;
}

static void on_threads(void *(*work)(void *)) {
    pthread_t threads[THREADS];
    for (int at = 0; at < THREADS; at++) {
        CHECK(pthread_create(&threads[at], NULL, work, &last_number[at]) == 0);
    }
    for (int at = 0; at < THREADS; at++) {
        CHECK(pthread_join(threads[at], NULL) == 0);
    }
}

int main(int count, char **arguments) {
    begin_test(count, arguments);
    terrace_error *error = NULL;
    database = open_small("threads");
    table = terrace_database_table(database, "t", &error);
    HANDLE(table);
    snapshot = terrace_database_snapshot(database, &error);
    HANDLE(snapshot);
    on_threads(works);
    on_threads(counts);
    terrace_value value;
    OK(terrace_table_get(table, TEXT("count"), &value, &error));
    uint64_t found;
    memcpy(&found, value.data, sizeof found);
    CHECK(found == THREADS * (ROUNDS / 4));
    terrace_value_release(&value);
    terrace_snapshot_free(snapshot);
    terrace_table_free(table);
    close_and_free(database);
    return 0;
}
