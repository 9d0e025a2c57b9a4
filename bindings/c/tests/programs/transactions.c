/* Transactions: isolation, locks, savepoints, cursors, cancelling, ends. */

/* Barriers are of POSIX, and not of C. */
#define _POSIX_C_SOURCE 200809L

#include <pthread.h>

#include "check.h"

static terrace_database *database;
static terrace_table *table;

static terrace_transaction *begin(const char *name, const char *value) {
    terrace_error *error = NULL;
    terrace_transaction_options *options = terrace_transaction_options_new();
    HANDLE(options);
    if (name != NULL) {
        OK(terrace_transaction_options_set(options, name, value, &error));
    }
    terrace_transaction *transaction = terrace_database_begin(database, options, &error);
    HANDLE(transaction);
    terrace_transaction_options_free(options);
    return transaction;
}

static bool sees(const terrace_transaction *transaction, const char *key, const char *text) {
    terrace_error *error = NULL;
    char buffer[64];
    size_t len;
    terrace_status status = terrace_transaction_get_into(transaction, table, TEXT(key), buffer,
                                                         sizeof buffer, &len, &error);
    CHECK(error == NULL);
    return text == NULL ? status == TERRACE_NOT_FOUND
                        : status == TERRACE_OK && is_text(buffer, len, text);
}

static void commits(void) {
    terrace_error *error = NULL;
    terrace_transaction *transaction = begin(NULL, NULL);
    CHECK(terrace_transaction_id(transaction) > 0);
    OK(terrace_transaction_put(transaction, table, TEXT("ada"), TEXT("1815"), &error));
    OK(terrace_transaction_set_blob(transaction, TEXT("blob"), &error));
    CHECK(sees(transaction, "ada", "1815") && has(table, "ada", NULL));
    OK(terrace_transaction_commit(transaction, &error));
    CHECK(has(table, "ada", "1815"));
    FAILS(TERRACE_CLOSED, terrace_transaction_commit(transaction, &error));
    FAILS(TERRACE_CLOSED, terrace_transaction_roll_back(transaction, &error));
    FAILS(TERRACE_CLOSED,
          terrace_transaction_put(transaction, table, TEXT("ada"), TEXT("x"), &error));
    CHECK(terrace_transaction_cancel(transaction, &error) == TERRACE_NOT_FOUND);
    terrace_transaction_free(transaction);

    transaction = begin("durability", "relaxed");
    OK(terrace_transaction_delete(transaction, table, TEXT("ada"), &error));
    CHECK(sees(transaction, "ada", NULL));
    OK(terrace_transaction_roll_back(transaction, &error));
    terrace_transaction_free(transaction);
    CHECK(has(table, "ada", "1815"));

    transaction = begin(NULL, NULL);
    terrace_range range = {{"b", 1, TERRACE_INCLUDED}, {"c", 1, TERRACE_INCLUDED}};
    put(table, "bob", "x");
    terrace_transaction_free(transaction);
    transaction = begin(NULL, NULL);
    OK(terrace_transaction_delete_range(transaction, table, &range, &error));
    CHECK(sees(transaction, "bob", NULL));
    /* Freed without an end, it is rolled back. */
    terrace_transaction_free(transaction);
    CHECK(has(table, "bob", "x"));
    terrace_error_free(error);
}

static void savepoints(void) {
    terrace_error *error = NULL;
    terrace_transaction *transaction = begin(NULL, NULL);
    OK(terrace_transaction_put(transaction, table, TEXT("s"), TEXT("1"), &error));
    OK(terrace_transaction_set_savepoint(transaction, "one", &error));
    OK(terrace_transaction_put(transaction, table, TEXT("s"), TEXT("2"), &error));
    OK(terrace_transaction_roll_back_to(transaction, "one", &error));
    CHECK(sees(transaction, "s", "1"));
    OK(terrace_transaction_release_savepoint(transaction, "one", &error));
    FAILS(TERRACE_INVALID, terrace_transaction_roll_back_to(transaction, "one", &error));
    OK(terrace_transaction_commit(transaction, &error));
    terrace_transaction_free(transaction);
    CHECK(has(table, "s", "1"));
    terrace_error_free(error);
}

static void isolation(void) {
    terrace_error *error = NULL;
    put(table, "i", "old");
    terrace_transaction *snapshot = begin("isolation", "snapshot");
    terrace_transaction *committed = begin("isolation", "read_committed");
    put(table, "i", "new");
    CHECK(sees(snapshot, "i", "old") && sees(committed, "i", "new"));
    terrace_value value;
    FAILS(TERRACE_CONFLICT,
          terrace_transaction_get_for_update(snapshot, table, TEXT("i"), &value, &error));
    CHECK(value.data == NULL && terrace_error_is_retryable(error));
    FAILS(TERRACE_CLOSED, terrace_transaction_get(snapshot, table, TEXT("i"), &value, &error));
    OK(terrace_transaction_get_for_update(committed, table, TEXT("i"), &value, &error));
    CHECK(is_text(value.data, value.len, "new"));
    terrace_value_release(&value);
    terrace_transaction_free(snapshot);
    terrace_transaction_free(committed);

    terrace_transaction *optimistic = begin("optimistic", "on");
    OK(terrace_transaction_put(optimistic, table, TEXT("i"), TEXT("mine"), &error));
    put(table, "i", "theirs");
    FAILS(TERRACE_CONFLICT, terrace_transaction_commit(optimistic, &error));
    terrace_transaction_free(optimistic);
    CHECK(has(table, "i", "theirs"));

    terrace_transaction_options *options = terrace_transaction_options_new();
    OK(terrace_transaction_options_set(options, "optimistic", "on", &error));
    OK(terrace_transaction_options_set(options, "isolation", "read_committed", &error));
    NO_HANDLE(TERRACE_INVALID, terrace_database_begin(database, options, &error));
    terrace_transaction_options_free(options);
    terrace_error_free(error);
}

static void views(void) {
    terrace_error *error = NULL;
    terrace_value value;
    terrace_row row;
    put(table, "v", "old");
    terrace_transaction *reader = begin("isolation", "read_committed");
    OK(terrace_transaction_take_view(reader, &error));
    put(table, "v", "new");
    OK(terrace_transaction_get(reader, table, TEXT("v"), &value, &error));
    CHECK(is_text(value.data, value.len, "old"));
    terrace_value_release(&value);
    terrace_range range = {{"v", 1, TERRACE_PREFIX}, {NULL, 0, TERRACE_UNBOUNDED}};
    terrace_cursor *cursor =
        terrace_transaction_cursor(reader, table, &range, TERRACE_READ_NEWEST, &error);
    HANDLE(cursor);
    OK(terrace_cursor_next(cursor, &row, &error));
    CHECK(is_text(row.value, row.value_len, "new"));
    terrace_cursor_free(cursor);
    OK(terrace_transaction_get_for_share(reader, table, TEXT("v"), &value, &error));
    CHECK(is_text(value.data, value.len, "new"));
    terrace_value_release(&value);
    FAILS(TERRACE_TIMEOUT, terrace_table_try_put(table, TEXT("v"), TEXT("x"), 20, &error));
    OK(terrace_transaction_drop_view(reader, &error));
    OK(terrace_transaction_get(reader, table, TEXT("v"), &value, &error));
    CHECK(is_text(value.data, value.len, "new"));
    terrace_value_release(&value);
    terrace_transaction_free(reader);

    terrace_transaction *snapshot = begin(NULL, NULL);
    FAILS(TERRACE_INVALID, terrace_transaction_take_view(snapshot, &error));
    terrace_transaction_free(snapshot);
    terrace_error_free(error);
}

static void locks(void) {
    terrace_error *error = NULL;
    put(table, "l1", "");
    put(table, "l2", "");
    terrace_transaction *holder = begin(NULL, NULL), *other = begin(NULL, NULL);
    OK(terrace_transaction_put(holder, table, TEXT("l1"), TEXT("held"), &error));
    size_t keys = 0, ranges = 9;
    OK(terrace_database_locks_held(database, &keys, &ranges, &error));
    CHECK(keys == 1 && ranges == 0);
    OK(terrace_transaction_set_lock_wait(other, TERRACE_NO_WAIT, &error));
    FAILS(TERRACE_TIMEOUT,
          terrace_transaction_put(other, table, TEXT("l1"), TEXT("x"), &error));
    OK(terrace_transaction_set_lock_wait(other, 20, &error));
    FAILS(TERRACE_TIMEOUT,
          terrace_transaction_put(other, table, TEXT("l1"), TEXT("x"), &error));
    FAILS(TERRACE_TIMEOUT, terrace_table_try_put(table, TEXT("l1"), TEXT("x"), 20, &error));

    terrace_range range = {{"l", 1, TERRACE_PREFIX}, {NULL, 0, TERRACE_UNBOUNDED}};
    NO_HANDLE(TERRACE_TIMEOUT, terrace_transaction_cursor(other, table, &range,
                                                          TERRACE_FOR_UPDATE, &error));
    terrace_cursor *cursor =
        terrace_transaction_cursor(other, table, &range, TERRACE_SKIP_LOCKED, &error);
    HANDLE(cursor);
    terrace_row row;
    OK(terrace_cursor_next(cursor, &row, &error));
    CHECK(is_text(row.key, row.key_len, "l2"));
    CHECK(terrace_cursor_next(cursor, &row, &error) == TERRACE_NOT_FOUND);
    NO_HANDLE(TERRACE_INVALID, terrace_transaction_cursor(other, table, &range, 9, &error));
    terrace_transaction_free(other);
    FAILS(TERRACE_CLOSED, terrace_cursor_first(cursor, &row, &error));
    terrace_cursor_free(cursor);

    /* A cursor for update locks rows and gaps before it reads. */
    cursor = terrace_transaction_cursor(holder, table, &range, TERRACE_FOR_UPDATE, &error);
    HANDLE(cursor);
    FAILS(TERRACE_TIMEOUT, terrace_table_try_put(table, TEXT("l9"), TEXT(""), 20, &error));
    OK(terrace_cursor_next(cursor, &row, &error));
    CHECK(is_text(row.value, row.value_len, "held"));
    OK(terrace_transaction_put(holder, table, TEXT("l15"), TEXT("own"), &error));
    OK(terrace_cursor_next(cursor, &row, &error));
    CHECK(is_text(row.key, row.key_len, "l15"));
    OK(terrace_cursor_prev(cursor, &row, &error));
    CHECK(is_text(row.key, row.key_len, "l1"));
    OK(terrace_cursor_refresh(cursor, &error));
    OK(terrace_cursor_last(cursor, &row, &error));
    CHECK(is_text(row.key, row.key_len, "l2"));
    terrace_cursor_free(cursor);
    terrace_transaction_free(holder);

    /* One for share lets others lock the range in the same way, and nothing change it. */
    terrace_transaction *one = begin("lock_wait", "no_wait");
    terrace_transaction *two = begin("lock_wait", "no_wait");
    CHECK(terrace_transaction_lock_memory(NULL) == 0 && terrace_transaction_lock_memory(one) == 0);
    cursor = terrace_transaction_cursor(one, table, &range, TERRACE_FOR_SHARE, &error);
    HANDLE(cursor);
    CHECK(terrace_transaction_lock_memory(one) > 0);
    terrace_cursor_free(cursor);
    cursor = terrace_transaction_cursor(two, table, &range, TERRACE_FOR_SHARE, &error);
    HANDLE(cursor);
    OK(terrace_cursor_first(cursor, &row, &error));
    FAILS(TERRACE_TIMEOUT, terrace_transaction_put(two, table, TEXT("l5"), TEXT(""), &error));
    FAILS(TERRACE_TIMEOUT, terrace_table_try_put(table, TEXT("l5"), TEXT(""), 20, &error));
    terrace_cursor_free(cursor);
    terrace_transaction_free(one);
    terrace_transaction_free(two);

    terrace_transaction *reader = begin("isolation", "serializable");
    cursor = terrace_transaction_cursor(reader, table, NULL, TERRACE_READ, &error);
    HANDLE(cursor);
    OK(terrace_cursor_seek(cursor, "l2", 2, &row, &error));
    FAILS(TERRACE_TIMEOUT, terrace_table_try_put(table, TEXT("l3"), TEXT(""), 20, &error));
    terrace_cursor_free(cursor);
    terrace_transaction_free(reader);
    terrace_error_free(error);
}

static void *waits_for_a_lock(void *argument) {
    terrace_error *error = NULL;
    terrace_transaction *transaction = argument;
    FAILS(TERRACE_CLOSED,
          terrace_transaction_put(transaction, table, TEXT("c"), TEXT("x"), &error));
    terrace_error_free(error);
    return NULL;
}

/* Waits until a transaction waits for a lock. */
static void until_it_waits(uint64_t id) {
    for (;;) {
        terrace_error *error = NULL;
        terrace_transaction_list *list = terrace_database_list_transactions(database, &error);
        HANDLE(list);
        bool waits = false;
        terrace_transaction_info info;
        for (size_t at = 0; at < terrace_transaction_list_len(list); at++) {
            OK(terrace_transaction_list_at(list, at, &info, &error));
            waits |= info.id == id && info.waits_for != NULL;
        }
        FAILS(TERRACE_INVALID, terrace_transaction_list_at(
                                   list, terrace_transaction_list_len(list), &info, &error));
        terrace_transaction_list_free(list);
        terrace_error_free(error);
        if (waits) {
            return;
        }
    }
}

static void *waits_in_vain(void *argument) {
    terrace_error *error = NULL;
    terrace_transaction *transaction = argument;
    FAILS(TERRACE_TIMEOUT,
          terrace_transaction_put(transaction, table, TEXT("c"), TEXT("x"), &error));
    terrace_error_free(error);
    return NULL;
}

/* The wait ends, and the transaction goes on. */
static void wait_ended_from_another_thread(void) {
    terrace_error *error = NULL;
    terrace_transaction *holder = begin(NULL, NULL), *waiter = begin("lock_wait", "endless");
    OK(terrace_transaction_put(waiter, table, TEXT("before"), TEXT("x"), &error));
    OK(terrace_transaction_put(holder, table, TEXT("c"), TEXT("held"), &error));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, waits_in_vain, waiter) == 0);
    until_it_waits(terrace_transaction_id(waiter));
    OK(terrace_database_end_lock_wait(database, terrace_transaction_id(waiter), &error));
    CHECK(pthread_join(thread, NULL) == 0);
    FAILS(TERRACE_INVALID, terrace_database_end_lock_wait(NULL, 1, &error));
    FAILS(TERRACE_TIMEOUT, terrace_transaction_put(waiter, table, TEXT("c"), TEXT("x"), &error));
    OK(terrace_transaction_allow_waits(waiter, &error));
    terrace_transaction_free(holder);
    OK(terrace_transaction_put(waiter, table, TEXT("before2"), TEXT("x"), &error));
    const uint64_t id = terrace_transaction_id(waiter);
    OK(terrace_transaction_commit(waiter, &error));
    CHECK(terrace_database_end_lock_wait(database, id, &error) == TERRACE_NOT_FOUND);
    FAILS(TERRACE_CLOSED, terrace_transaction_allow_waits(waiter, &error));
    terrace_transaction_free(waiter);
    CHECK(has(table, "before", "x") && has(table, "before2", "x"));
    OK(terrace_table_delete(table, "before", 6, TERRACE_DURABLE, &error));
    OK(terrace_table_delete(table, "before2", 7, TERRACE_DURABLE, &error));
    terrace_error_free(error);
}

static void cancelled_from_another_thread(void) {
    terrace_error *error = NULL;
    terrace_transaction *holder = begin(NULL, NULL), *waiter = begin("lock_wait", "endless");
    OK(terrace_transaction_put(holder, table, TEXT("c"), TEXT("held"), &error));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, waits_for_a_lock, waiter) == 0);
    until_it_waits(terrace_transaction_id(waiter));
    OK(terrace_transaction_cancel(waiter, &error));
    CHECK(pthread_join(thread, NULL) == 0);
    terrace_transaction_free(waiter);

    OK(terrace_database_cancel_transaction(database, terrace_transaction_id(holder), &error));
    CHECK(terrace_database_cancel_transaction(database, 1u << 30, &error) == TERRACE_NOT_FOUND);
    FAILS(TERRACE_CLOSED, terrace_transaction_commit(holder, &error));
    terrace_transaction_free(holder);
    CHECK(has(table, "c", NULL));
    terrace_error_free(error);
}

static pthread_barrier_t both_hold;

static void *locks_crosswise(void *argument) {
    terrace_error *error = NULL;
    const char *first = argument, *second = *first == 'x' ? "y" : "x";
    terrace_transaction *transaction = begin("lock_wait", "endless");
    OK(terrace_transaction_put(transaction, table, TEXT(first), TEXT(""), &error));
    pthread_barrier_wait(&both_hold);
    terrace_status status =
        terrace_transaction_put(transaction, table, TEXT(second), TEXT(""), &error);
    CHECK(status == TERRACE_OK || status == TERRACE_DEADLOCK);
    terrace_transaction_free(transaction);
    terrace_error_free(error);
    return status == TERRACE_DEADLOCK ? argument : NULL;
}

static void deadlocks(void) {
    pthread_t threads[2];
    char *keys[2] = {"x", "y"};
    void *victims[2];
    CHECK(pthread_barrier_init(&both_hold, NULL, 2) == 0);
    for (int at = 0; at < 2; at++) {
        CHECK(pthread_create(&threads[at], NULL, locks_crosswise, keys[at]) == 0);
    }
    for (int at = 0; at < 2; at++) {
        CHECK(pthread_join(threads[at], &victims[at]) == 0);
    }
    CHECK((victims[0] == NULL) != (victims[1] == NULL));
    pthread_barrier_destroy(&both_hold);
}

static void enqueued(void) {
    terrace_error *error = NULL;
    terrace_transaction *transaction = begin(NULL, NULL);
    OK(terrace_transaction_put(transaction, table, TEXT("e1"), TEXT("1"), &error));
    terrace_pending *first = terrace_transaction_enqueue(transaction, &error);
    HANDLE(first);
    NO_HANDLE(TERRACE_CLOSED, terrace_transaction_enqueue(transaction, &error));
    terrace_transaction_free(transaction);
    terrace_batch *batch = terrace_batch_new();
    OK(terrace_batch_put(batch, table, TEXT("e2"), TEXT("2"), &error));
    terrace_pending *second =
        terrace_database_enqueue(database, batch, TERRACE_DURABLE, &error);
    HANDLE(second);
    terrace_batch_free(batch);
    CHECK(terrace_pending_number(first) < terrace_pending_number(second));
    terrace_transaction *viewer = begin("isolation", "read_committed");
    OK(terrace_transaction_take_view_with(viewer, terrace_pending_number(first), &error));
    FAILS(TERRACE_INVALID, terrace_transaction_take_view_with(viewer, UINT64_MAX, &error));
    terrace_transaction_free(viewer);
    OK(terrace_pending_wait(second, &error));
    CHECK(has(table, "e1", "1") && has(table, "e2", "2"));
    OK(terrace_pending_wait(second, &error));
    batch = terrace_batch_new();
    OK(terrace_batch_put(batch, table, TEXT("e3"), TEXT("3"), &error));
    OK(terrace_database_write(database, batch, TERRACE_RELAXED, &error));
    terrace_batch_free(batch);
    OK(terrace_database_sync(database, &error));
    FAILS(TERRACE_INVALID, terrace_database_sync(NULL, &error));
    terrace_pending_free(second);
    terrace_pending_free(first);
    put(table, "e1", "free again");
    terrace_error_free(error);
}

static void prepared(void) {
    terrace_error *error = NULL;
    const char *ids[3] = {"commit", "roll back", "enqueue"};
    for (int at = 0; at < 3; at++) {
        terrace_transaction *transaction = begin(NULL, NULL);
        OK(terrace_transaction_put(transaction, table, TEXT(ids[at]), TEXT("p"), &error));
        OK(terrace_transaction_prepare(transaction, TEXT(ids[at]), &error));
        terrace_transaction_free(transaction);
    }
    terrace_transaction *taken = begin(NULL, NULL);
    FAILS(TERRACE_EXISTS, terrace_transaction_prepare(taken, TEXT("commit"), &error));
    terrace_transaction_free(taken);
    FAILS(TERRACE_TIMEOUT, terrace_table_try_put(table, TEXT("commit"), TEXT("x"), 20, &error));

    /* They survive, with their locks. */
    terrace_table_free(table);
    close_and_free(database);
    database = open_small("transactions");
    table = terrace_database_table(database, "t", &error);
    HANDLE(table);
    terrace_prepared_list *list = terrace_database_list_prepared(database, &error);
    HANDLE(list);
    CHECK(terrace_prepared_list_len(list) == 3);
    terrace_prepared one;
    OK(terrace_prepared_list_at(list, 0, &one, &error));
    CHECK(is_text(one.id, one.id_len, "commit") && one.writes == 1 && one.locks >= 1);
    FAILS(TERRACE_INVALID, terrace_prepared_list_at(list, 3, &one, &error));
    terrace_prepared_list_free(list);
    FAILS(TERRACE_TIMEOUT, terrace_table_try_put(table, TEXT("commit"), TEXT("x"), 20, &error));

    OK(terrace_database_commit_prepared(database, TEXT("commit"), &error));
    FAILS(TERRACE_INVALID, terrace_database_roll_back_prepared_with(database, TEXT("roll back"),
                                                                    TERRACE_REMOTE, &error));
    OK(terrace_database_roll_back_prepared(database, TEXT("roll back"), &error));
    terrace_pending *pending = terrace_database_enqueue_prepared(
        database, TEXT("enqueue"), TEXT("position 9"), TERRACE_DURABLE, &error);
    HANDLE(pending);
    OK(terrace_pending_wait(pending, &error));
    terrace_pending_free(pending);
    CHECK(has(table, "commit", "p") && has(table, "roll back", NULL));
    CHECK(has(table, "enqueue", "p"));
    FAILS(TERRACE_INVALID, terrace_database_commit_prepared(database, TEXT("commit"), &error));
    terrace_value blob;
    OK(terrace_database_last_blob(database, &blob, &error));
    CHECK(is_text(blob.data, blob.len, "position 9"));
    terrace_value_release(&blob);
    terrace_error_free(error);
}

int main(int count, char **arguments) {
    begin_test(count, arguments);
    terrace_error *error = NULL;
    database = open_small("transactions");
    table = terrace_database_table(database, "t", &error);
    HANDLE(table);
    commits();
    savepoints();
    isolation();
    views();
    locks();
    wait_ended_from_another_thread();
    cancelled_from_another_thread();
    deadlocks();
    enqueued();
    prepared();

    /* Handles close in any order. */
    terrace_transaction *transaction = begin(NULL, NULL);
    OK(terrace_transaction_put(transaction, table, TEXT("z"), TEXT(""), &error));
    terrace_cursor *cursor =
        terrace_transaction_cursor(transaction, table, NULL, TERRACE_READ, &error);
    HANDLE(cursor);
    close_and_free(database);
    terrace_table_free(table);
    terrace_row row;
    FAILS(TERRACE_CLOSED, terrace_cursor_next(cursor, &row, &error));
    FAILS(TERRACE_CLOSED, terrace_transaction_commit(transaction, &error));
    terrace_transaction_free(transaction);
    terrace_cursor_free(cursor);
    terrace_error_free(error);
    return 0;
}
