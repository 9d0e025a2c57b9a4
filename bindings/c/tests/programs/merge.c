/* Merge operators: the built-in ones by name, and one that is a function of the program. */

#include "check.h"

static terrace_table *create(terrace_database *database, const char *name, const char *operator) {
    terrace_error *error = NULL;
    terrace_table_options *options = terrace_table_options_new();
    OK(terrace_table_options_set(options, "merge_operator", operator, &error));
    terrace_table *table = terrace_database_create_table(database, name, options, &error);
    HANDLE(table);
    terrace_table_options_free(options);
    return table;
}

/* A counter's operand: big-endian. */
static const char *number(int64_t value) {
    static char bytes[8];
    for (int at = 0; at < 8; at++)
        bytes[at] = (char)((uint64_t)value >> (56 - 8 * at));
    return bytes;
}

static void counters(terrace_database *database) {
    terrace_error *error = NULL;
    terrace_table *table = create(database, "counters", "counter");
    for (int n = 0; n < 300; n++)
        OK(terrace_table_merge(table, "k", 1, number(n), 8, TERRACE_RELAXED, &error));
    OK(terrace_table_merge(table, "k", 1, number(-850), 8, TERRACE_DURABLE, &error));
    terrace_value value;
    OK(terrace_table_get(table, "k", 1, &value, &error));
    CHECK(value.len == 8 && memcmp(value.data, number(44000), 8) == 0);
    terrace_value_release(&value);

    /* What the operator refuses is written, and reads of the key fail. */
    OK(terrace_table_merge(table, "bad", 3, "x", 1, TERRACE_DURABLE, &error));
    FAILS(TERRACE_INVALID, terrace_table_get(table, "bad", 3, &value, &error));
    CHECK(strstr(terrace_error_message(error), "a counter has 8") != NULL);
    OK(terrace_table_delete(table, "bad", 3, TERRACE_DURABLE, &error));
    terrace_table_free(table);
    terrace_error_free(error);
}

static void in_batches_and_transactions(terrace_database *database) {
    terrace_error *error = NULL;
    terrace_table *log = create(database, "log", "append"), *none;
    terrace_batch *batch = terrace_batch_new();
    OK(terrace_batch_put(batch, log, "day", 3, "a", 1, &error));
    OK(terrace_batch_merge(batch, log, "day", 3, "b", 1, &error));
    OK(terrace_batch_merge(batch, log, "night", 5, "", 0, &error));
    OK(terrace_database_write(database, batch, TERRACE_DURABLE, &error));
    CHECK(has(log, "day", "ab") && has(log, "night", ""));

    terrace_transaction *transaction = terrace_database_begin(database, NULL, &error);
    HANDLE(transaction);
    OK(terrace_transaction_merge(transaction, log, "day", 3, "c", 1, &error));
    terrace_value value;
    OK(terrace_transaction_get(transaction, log, "day", 3, &value, &error));
    CHECK(is_text(value.data, value.len, "abc") && has(log, "day", "ab"));
    terrace_value_release(&value);

    none = terrace_database_table(database, "no operator", &error);
    HANDLE(none);
    FAILS(TERRACE_INVALID, terrace_table_merge(none, "k", 1, "", 0, TERRACE_DURABLE, &error));
    FAILS(TERRACE_INVALID, terrace_transaction_merge(transaction, none, "k", 1, "", 0, &error));
    OK(terrace_batch_merge(batch, none, "k", 1, "x", 1, &error));
    FAILS(TERRACE_INVALID, terrace_database_write(database, batch, TERRACE_DURABLE, &error));
    FAILS(TERRACE_INVALID, terrace_table_merge(log, "k", 1, NULL, 1, TERRACE_DURABLE, &error));
    FAILS(TERRACE_INVALID, terrace_table_merge(NULL, "k", 1, "", 0, TERRACE_DURABLE, &error));
    FAILS(TERRACE_INVALID, terrace_table_merge(log, "k", 1, "", 0, 7, &error));
    FAILS(TERRACE_INVALID, terrace_batch_merge(NULL, log, "k", 1, "", 0, &error));
    FAILS(TERRACE_INVALID, terrace_transaction_merge(NULL, log, "k", 1, "", 0, &error));
    OK(terrace_transaction_commit(transaction, &error));
    CHECK(has(log, "day", "abc"));
    terrace_transaction_free(transaction);
    terrace_batch_free(batch);
    terrace_table_free(none);
    terrace_table_free(log);
    terrace_error_free(error);
}

/* Keeps the lesser of two values, and refuses what is longer than its context says. */
static bool least(void *context, const void *key, size_t key_len, const void *value,
                  size_t value_len, const void *operand, size_t operand_len,
                  terrace_merged *result) {
    (void)key, (void)key_len;
    if (operand_len > *(const size_t *)context)
        return false;
    if (value != NULL) {
        size_t shorter = value_len < operand_len ? value_len : operand_len;
        int order = memcmp(value, operand, shorter);
        if (order < 0 || (order == 0 && value_len < operand_len)) {
            operand = value;
            operand_len = value_len;
        }
    }
    return terrace_merged_append(result, operand, operand_len, NULL) == TERRACE_OK;
}

static void function_of_the_program(void) {
    static size_t longest = 4;
    terrace_error *error = NULL;
    terrace_options *options = small_options();
    OK(terrace_options_add_merge_operator(options, "example.least", least, &longest, &error));
    FAILS(TERRACE_INVALID, terrace_options_add_merge_operator(options, "x", NULL, NULL, &error));
    FAILS(TERRACE_INVALID, terrace_options_add_merge_operator(options, NULL, least, NULL, &error));
    FAILS(TERRACE_INVALID, terrace_options_add_merge_operator(NULL, "x", least, NULL, &error));
    FAILS(TERRACE_INVALID, terrace_merged_append(NULL, "x", 1, &error));
    terrace_database *database = terrace_open(path_of("least"), options, &error);
    HANDLE(database);
    terrace_table *table = create(database, "prices", "example.least");
    OK(terrace_table_merge(table, "apple", 5, "30", 2, TERRACE_DURABLE, &error));
    OK(terrace_table_merge(table, "apple", 5, "25", 2, TERRACE_DURABLE, &error));
    OK(terrace_table_merge(table, "apple", 5, "28", 2, TERRACE_DURABLE, &error));
    CHECK(has(table, "apple", "25"));
    /* The background calls it too. */
    OK(terrace_table_compact_range(table, NULL, &error));
    CHECK(has(table, "apple", "25"));
    OK(terrace_table_merge(table, "apple", 5, "30000", 5, TERRACE_DURABLE, &error));
    terrace_value value;
    FAILS(TERRACE_INVALID, terrace_table_get(table, "apple", 5, &value, &error));
    CHECK(strstr(terrace_error_message(error), "example.least") != NULL);
    longest = 5;
    CHECK(has(table, "apple", "25"));
    close_and_free(database);
    terrace_table_free(table);

    /* An opening that does not know it loses nothing. */
    database = open_small("least");
    table = terrace_database_existing_table(database, "prices", &error);
    HANDLE(table);
    FAILS(TERRACE_INVALID, terrace_table_merge(table, "apple", 5, "1", 1, TERRACE_DURABLE, &error));
    CHECK(strstr(terrace_error_message(error), "not registered") != NULL);
    terrace_table_free(table);
    close_and_free(database);
    database = terrace_open(path_of("least"), options, &error);
    HANDLE(database);
    table = terrace_database_existing_table(database, "prices", &error);
    HANDLE(table);
    CHECK(has(table, "apple", "25"));
    terrace_table_free(table);
    close_and_free(database);

    /* A name that is taken is refused by openings. */
    OK(terrace_options_add_merge_operator(options, "counter", least, &longest, &error));
    NO_HANDLE(TERRACE_INVALID, terrace_open(path_of("least"), options, &error));
    terrace_options_free(options);
    terrace_error_free(error);
}

static terrace_pending *awaited;
static terrace_status of_wait;

/* Keeps the operand. It waits for a commit, which no merge operator may. */
static bool waits(void *context, const void *key, size_t key_len, const void *value,
                  size_t value_len, const void *operand, size_t operand_len,
                  terrace_merged *result) {
    (void)context, (void)key, (void)key_len, (void)value, (void)value_len;
    of_wait = terrace_pending_wait(awaited, NULL);
    return terrace_merged_append(result, operand, operand_len, NULL) == TERRACE_OK;
}

/* Bug: a wait inside of a merge operator had each later wait for the commit fail. Cause: the engine
 * refused it, and dropped the commit. Fix: the library asks before it hands the commit over. */
static void wait_in_a_merge_function(void) {
    terrace_error *error = NULL;
    terrace_options *options = small_options();
    OK(terrace_options_add_merge_operator(options, "example.waits", waits, NULL, &error));
    terrace_database *database = terrace_open(path_of("waits"), options, &error);
    HANDLE(database);
    terrace_table *table = create(database, "t", "example.waits");
    OK(terrace_table_merge(table, "k", 1, "v", 1, TERRACE_DURABLE, &error));
    terrace_batch *batch = terrace_batch_new();
    OK(terrace_batch_put(batch, table, TEXT("other"), TEXT("value"), &error));
    awaited = terrace_database_enqueue(database, batch, TERRACE_DURABLE, &error);
    HANDLE(awaited);
    CHECK(has(table, "k", "v") && of_wait == TERRACE_INVALID);
    OK(terrace_pending_wait(awaited, &error));
    terrace_pending_free(awaited);
    terrace_batch_free(batch);
    terrace_table_free(table);
    close_and_free(database);
    terrace_options_free(options);
    terrace_error_free(error);
}

int main(int count, char **arguments) {
    begin_test(count, arguments);
    wait_in_a_merge_function();
    terrace_database *database = open_small("merge");
    counters(database);
    in_batches_and_transactions(database);
    close_and_free(database);
    function_of_the_program();
    return 0;
}
