/* The least and the greatest row, several rows at once, keys without values: of tables, snapshots,
 * transactions and cursors. And options of tables that are there. */

#include "check.h"

/* Whether a call has found the row, which is released. */
static bool is_row(terrace_value *key, terrace_value *value, const char *k, const char *v) {
    bool is = is_text(key->data, key->len, k) && is_text(value->data, value->len, v);
    terrace_value_release(key);
    terrace_value_release(value);
    return is;
}

static void ends_of_tables(terrace_database *database) {
    terrace_error *error = NULL;
    terrace_table *table = terrace_database_table(database, "ends", &error);
    HANDLE(table);
    terrace_value key, value;
    CHECK(terrace_table_first(table, &key, &value, &error) == TERRACE_NOT_FOUND);
    CHECK(error == NULL && key.data == NULL && value.data == NULL);
    CHECK(terrace_table_last(table, &key, &value, &error) == TERRACE_NOT_FOUND);
    put(table, "b", "2");
    terrace_snapshot *snapshot = terrace_database_snapshot(database, &error);
    HANDLE(snapshot);
    put(table, "a", "1");
    put(table, "c", "");
    OK(terrace_table_first(table, &key, &value, &error));
    CHECK(is_row(&key, &value, "a", "1"));
    OK(terrace_table_last(table, &key, &value, &error));
    CHECK(is_row(&key, &value, "c", ""));
    OK(terrace_snapshot_first(snapshot, table, &key, &value, &error));
    CHECK(is_row(&key, &value, "b", "2"));
    OK(terrace_snapshot_last(snapshot, table, &key, &value, &error));
    CHECK(is_row(&key, &value, "b", "2"));
    OK(terrace_snapshot_contains_key(snapshot, table, "b", 1, &error));
    CHECK(terrace_snapshot_contains_key(snapshot, table, "a", 1, &error) == TERRACE_NOT_FOUND);
    terrace_slice keys[2] = {{"a", 1}, {"b", 1}};
    terrace_value values[2];
    OK(terrace_snapshot_multi_get(snapshot, table, keys, values, 2, &error));
    CHECK(values[0].data == NULL && is_text(values[1].data, values[1].len, "2"));
    terrace_value_release(&values[1]);

    FAILS(TERRACE_INVALID, terrace_table_first(NULL, &key, &value, &error));
    CHECK(key.data == NULL && value.data == NULL);
    FAILS(TERRACE_INVALID, terrace_table_last(table, &key, NULL, &error));
    FAILS(TERRACE_INVALID, terrace_snapshot_first(NULL, table, &key, &value, &error));
    FAILS(TERRACE_INVALID, terrace_snapshot_last(snapshot, NULL, &key, &value, &error));
    FAILS(TERRACE_INVALID, terrace_snapshot_multi_get(snapshot, table, NULL, values, 2, &error));
    CHECK(values[0].data == NULL && values[1].data == NULL);
    terrace_snapshot_free(snapshot);
    terrace_table_free(table);
    terrace_error_free(error);
}

static void in_transactions(terrace_database *database) {
    terrace_error *error = NULL;
    terrace_table *table = terrace_database_table(database, "in transactions", &error);
    HANDLE(table);
    put(table, "b", "2");
    terrace_transaction *transaction = terrace_database_begin(database, NULL, &error);
    HANDLE(transaction);
    terrace_value key, value, values[2];
    bool done = false;
    OK(terrace_transaction_insert_if_absent(transaction, table, "a", 1, "1", 1, &done, &error));
    CHECK(done);
    OK(terrace_transaction_insert_if_absent(transaction, table, "b", 1, "3", 1, &done, &error));
    CHECK(!done);
    OK(terrace_transaction_contains_key(transaction, table, "a", 1, &error));
    CHECK(terrace_transaction_contains_key(transaction, table, "x", 1, &error) ==
          TERRACE_NOT_FOUND);
    OK(terrace_transaction_first(transaction, table, &key, &value, &error));
    CHECK(is_row(&key, &value, "a", "1"));
    OK(terrace_transaction_last(transaction, table, &key, &value, &error));
    CHECK(is_row(&key, &value, "b", "2"));
    terrace_slice two = {"2", 1}, four = {"4", 1}, keys[2] = {{"b", 1}, {"x", 1}};
    OK(terrace_transaction_compare_and_set(transaction, table, "b", 1, &four, &two, &done, &error));
    CHECK(!done);
    OK(terrace_transaction_compare_and_set(transaction, table, "b", 1, &two, &four, &done, &error));
    CHECK(done && has(table, "b", "2"));
    OK(terrace_transaction_multi_get(transaction, table, keys, values, 2, &error));
    CHECK(is_text(values[0].data, values[0].len, "4") && values[1].data == NULL);
    terrace_value_release(&values[0]);
    OK(terrace_transaction_multi_get_for_update(transaction, table, keys, values, 2, &error));
    CHECK(is_text(values[0].data, values[0].len, "4") && values[1].data == NULL);
    terrace_value_release(&values[0]);
    /* The missing key is locked too. */
    FAILS(TERRACE_TIMEOUT, terrace_table_try_put(table, "x", 1, "", 0, 1, &error));
    OK(terrace_transaction_pop_first(transaction, table, &key, &value, &error));
    CHECK(is_row(&key, &value, "a", "1"));
    OK(terrace_transaction_pop_last(transaction, table, &key, &value, &error));
    CHECK(is_row(&key, &value, "b", "4"));
    CHECK(terrace_transaction_pop_first(transaction, table, &key, &value, &error) ==
          TERRACE_NOT_FOUND);
    CHECK(has(table, "b", "2"));
    OK(terrace_transaction_commit(transaction, &error));
    CHECK(has(table, "b", NULL));

    FAILS(TERRACE_CLOSED, terrace_transaction_first(transaction, table, &key, &value, &error));
    CHECK(key.data == NULL && value.data == NULL);
    FAILS(TERRACE_CLOSED, terrace_transaction_multi_get(transaction, table, keys, values, 2, &error));
    FAILS(TERRACE_INVALID, terrace_transaction_contains_key(NULL, table, "a", 1, &error));
    FAILS(TERRACE_INVALID, terrace_transaction_pop_last(transaction, NULL, &key, &value, &error));
    FAILS(TERRACE_INVALID,
          terrace_transaction_insert_if_absent(transaction, table, "a", 1, "", 0, NULL, &error));
    FAILS(TERRACE_INVALID, terrace_transaction_compare_and_set(transaction, table, NULL, 1, NULL,
                                                               NULL, &done, &error));
    terrace_transaction_free(transaction);
    terrace_table_free(table);
    terrace_error_free(error);
}

/* Keys without values, from any place on. */
static void keys_only(terrace_database *database) {
    terrace_error *error = NULL;
    terrace_table *table = terrace_database_table(database, "keys", &error);
    HANDLE(table);
    put(table, "a", "1");
    put(table, "b", "2");
    put(table, "c", "3");
    terrace_transaction *transaction = terrace_database_begin(database, NULL, &error);
    HANDLE(transaction);
    terrace_cursor *cursors[2] = {
        terrace_table_cursor(table, NULL, &error),
        terrace_transaction_cursor(transaction, table, NULL, TERRACE_READ, &error),
    };
    for (int at = 0; at < 2; at++) {
        terrace_row row;
        HANDLE(cursors[at]);
        OK(terrace_cursor_next(cursors[at], &row, &error));
        CHECK(is_text(row.value, row.value_len, "1"));
        OK(terrace_cursor_set_keys_only(cursors[at], true, &error));
        OK(terrace_cursor_next(cursors[at], &row, &error));
        CHECK(is_text(row.key, row.key_len, "b") && row.value_len == 0);
        OK(terrace_cursor_prev(cursors[at], &row, &error));
        CHECK(is_text(row.key, row.key_len, "a") && row.value_len == 0);
        OK(terrace_cursor_set_keys_only(cursors[at], false, &error));
        OK(terrace_cursor_last(cursors[at], &row, &error));
        CHECK(is_text(row.value, row.value_len, "3"));
        CHECK(terrace_cursor_next(cursors[at], &row, &error) == TERRACE_NOT_FOUND);
        terrace_cursor_free(cursors[at]);
    }
    FAILS(TERRACE_INVALID, terrace_cursor_set_keys_only(NULL, true, &error));
    terrace_transaction_free(transaction);
    terrace_table_free(table);
    terrace_error_free(error);
}

static bool has_option(const terrace_table *table, const char *name, const char *value) {
    terrace_error *error = NULL;
    terrace_table_options *options = terrace_table_get_options(table, &error);
    HANDLE(options);
    terrace_string *text = terrace_table_options_get(options, name, &error);
    HANDLE(text);
    bool is = strcmp(terrace_string_text(text), value) == 0;
    terrace_string_free(text);
    terrace_table_options_free(options);
    return is;
}

static void options_of_tables(terrace_database *database) {
    terrace_error *error = NULL;
    terrace_table *table = terrace_database_table(database, "options", &error);
    HANDLE(table);
    CHECK(has_option(table, "block_size", "16384") && has_option(table, "ttl", "none"));
    terrace_table_options *options = terrace_table_get_options(table, &error);
    HANDLE(options);
    OK(terrace_table_options_set(options, "ttl", "7d", &error));
    OK(terrace_table_options_set(options, "large_values", "4KiB", &error));
    OK(terrace_database_set_table_options(database, "options", options, &error));
    CHECK(has_option(table, "ttl", "604800000ms") && has_option(table, "large_values", "4096"));
    CHECK(has_option(table, "filter_bits", "10"));
    terrace_table *same = terrace_database_table_with_options(database, "options", options, &error);
    HANDLE(same);
    terrace_table_free(same);
    OK(terrace_table_options_set(options, "ttl", "8d", &error));
    NO_HANDLE(TERRACE_EXISTS,
              terrace_database_table_with_options(database, "options", options, &error));
    CHECK(strstr(terrace_error_message(error), "ttl is 604800000ms") != NULL);
    NO_HANDLE(TERRACE_INVALID, terrace_table_options_get(options, "colour", &error));
    NO_HANDLE(TERRACE_INVALID, terrace_table_options_get(NULL, "ttl", &error));
    NO_HANDLE(TERRACE_INVALID, terrace_table_get_options(NULL, &error));
    FAILS(TERRACE_MISSING_TABLE,
          terrace_database_set_table_options(database, "none", options, &error));
    FAILS(TERRACE_INVALID, terrace_database_set_table_options(database, "options", NULL, &error));
    terrace_table_options_free(options);

    put(table, "k", "v");
    OK(terrace_table_compact_range(table, NULL, &error));
    terrace_table_statistics statistics;
    OK(terrace_table_get_statistics(table, &statistics, &error));
    CHECK(statistics.pm_records == 0 && statistics.disk_records == 1 && has(table, "k", "v"));
    FAILS(TERRACE_INVALID, terrace_table_compact_range(NULL, NULL, &error));
    terrace_table_free(table);
    terrace_error_free(error);
}

int main(int count, char **arguments) {
    begin_test(count, arguments);
    terrace_error *error = NULL;
    terrace_options *options = small_options();
    NO_HANDLE(TERRACE_MISSING_DATABASE, terrace_open_existing(path_of("rows"), options, &error));
    NO_HANDLE(TERRACE_INVALID, terrace_open_existing(NULL, options, &error));
    close_and_free(open_small("rows"));
    terrace_database *database = terrace_open_existing(path_of("rows"), options, &error);
    HANDLE(database);
    ends_of_tables(database);
    in_transactions(database);
    keys_only(database);
    options_of_tables(database);
    close_and_free(database);
    terrace_options_free(options);
    terrace_error_free(error);
    return 0;
}
