/* Cursors: both ways, anywhere, bounds, limits, moments, and what they lend. */

#include "check.h"

static terrace_database *database;
static terrace_table *table;

static terrace_range between(const char *lower, uint32_t lower_kind, const char *upper,
                             uint32_t upper_kind) {
    terrace_range range = {{lower, strlen(lower), lower_kind}, {upper, strlen(upper), upper_kind}};
    return range;
}

/* The keys that a cursor gives, one way, up to its end. */
static const char *keys(terrace_cursor *cursor, bool up) {
    static char text[256];
    terrace_error *error = NULL;
    size_t len = 0;
    terrace_row row;
    terrace_status status;
    for (;;) {
        status = up ? terrace_cursor_next(cursor, &row, &error)
                    : terrace_cursor_prev(cursor, &row, &error);
        if (status != TERRACE_OK) {
            break;
        }
        memcpy(text + len, row.key, row.key_len);
        len += row.key_len;
    }
    CHECK(status == TERRACE_NOT_FOUND && error == NULL);
    text[len] = 0;
    return text;
}

static void is_at(terrace_status status, const terrace_row *row, const char *key) {
    if (key == NULL) {
        CHECK(status == TERRACE_NOT_FOUND);
    } else {
        CHECK(status == TERRACE_OK && is_text(row->key, row->key_len, key));
    }
}

static void both_ways(void) {
    terrace_error *error = NULL;
    terrace_cursor *cursor = terrace_table_cursor(table, NULL, &error);
    HANDLE(cursor);
    CHECK(strcmp(keys(cursor, true), "bdfh") == 0);
    CHECK(strcmp(keys(cursor, true), "") == 0);
    CHECK(strcmp(keys(cursor, false), "hfdb") == 0);
    CHECK(strcmp(keys(cursor, true), "bdfh") == 0);

    terrace_row row;
    is_at(terrace_cursor_first(cursor, &row, &error), &row, "b");
    CHECK(is_text(row.value, row.value_len, "of b"));
    is_at(terrace_cursor_next(cursor, &row, &error), &row, "d");
    is_at(terrace_cursor_prev(cursor, &row, &error), &row, "b");
    is_at(terrace_cursor_prev(cursor, &row, &error), &row, NULL);
    is_at(terrace_cursor_next(cursor, &row, &error), &row, "b");
    is_at(terrace_cursor_last(cursor, &row, &error), &row, "h");
    is_at(terrace_cursor_prev(cursor, &row, &error), &row, "f");
    is_at(terrace_cursor_next(cursor, &row, &error), &row, "h");
    is_at(terrace_cursor_next(cursor, NULL, &error), NULL, NULL);
    terrace_cursor_free(cursor);

    cursor = terrace_table_cursor(table, NULL, &error);
    HANDLE(cursor);
    is_at(terrace_cursor_prev(cursor, &row, &error), &row, "h");
    terrace_cursor_free(cursor);
}

static void anywhere(void) {
    terrace_error *error = NULL;
    terrace_range range = between("b", TERRACE_EXCLUDED, "h", TERRACE_EXCLUDED);
    terrace_cursor *cursor = terrace_table_cursor(table, &range, &error);
    HANDLE(cursor);
    terrace_row row;
    is_at(terrace_cursor_seek(cursor, "e", 1, &row, &error), &row, "f");
    is_at(terrace_cursor_seek(cursor, "d", 1, &row, &error), &row, "d");
    is_at(terrace_cursor_next(cursor, &row, &error), &row, "f");
    is_at(terrace_cursor_seek(cursor, "a", 1, &row, &error), &row, "d");
    is_at(terrace_cursor_prev(cursor, &row, &error), &row, NULL);
    is_at(terrace_cursor_seek(cursor, "g", 1, &row, &error), &row, NULL);
    is_at(terrace_cursor_prev(cursor, &row, &error), &row, "f");
    is_at(terrace_cursor_seek(cursor, NULL, 0, &row, &error), &row, "d");
    is_at(terrace_cursor_seek_for_prev(cursor, "z", 1, &row, &error), &row, "f");
    is_at(terrace_cursor_seek_for_prev(cursor, "e", 1, &row, &error), &row, "d");
    is_at(terrace_cursor_next(cursor, &row, &error), &row, "f");
    is_at(terrace_cursor_seek_for_prev(cursor, "c", 1, &row, &error), &row, NULL);
    is_at(terrace_cursor_next(cursor, &row, &error), &row, "d");

    range = between("d", TERRACE_INCLUDED, "f", TERRACE_INCLUDED);
    OK(terrace_cursor_set_range(cursor, &range, &error));
    CHECK(strcmp(keys(cursor, true), "df") == 0);
    range = between("f", TERRACE_INCLUDED, "d", TERRACE_INCLUDED);
    OK(terrace_cursor_set_range(cursor, &range, &error));
    CHECK(strcmp(keys(cursor, true), "") == 0);
    range = between("d", TERRACE_PREFIX, "", TERRACE_UNBOUNDED);
    OK(terrace_cursor_set_range(cursor, &range, &error));
    CHECK(strcmp(keys(cursor, false), "d") == 0);
    OK(terrace_cursor_set_range(cursor, NULL, &error));
    CHECK(strcmp(keys(cursor, false), "hfdb") == 0);
    range = between("d", 17, "", TERRACE_UNBOUNDED);
    FAILS(TERRACE_INVALID, terrace_cursor_set_range(cursor, &range, &error));
    NO_HANDLE(TERRACE_INVALID, terrace_table_cursor(table, &range, &error));
    terrace_cursor_free(cursor);
    terrace_error_free(error);
}

static void limits(void) {
    terrace_error *error = NULL;
    terrace_cursor *cursor = terrace_table_cursor(table, NULL, &error);
    HANDLE(cursor);
    OK(terrace_cursor_set_limit(cursor, 2, &error));
    CHECK(strcmp(keys(cursor, true), "bd") == 0);
    terrace_row row;
    is_at(terrace_cursor_seek(cursor, "d", 1, &row, &error), &row, "d");
    is_at(terrace_cursor_prev(cursor, &row, &error), &row, "b");
    is_at(terrace_cursor_next(cursor, &row, &error), &row, NULL);
    is_at(terrace_cursor_last(cursor, &row, &error), &row, "h");
    OK(terrace_cursor_set_limit(cursor, 0, &error));
    is_at(terrace_cursor_seek(cursor, "d", 1, &row, &error), &row, "d");
    CHECK(strcmp(keys(cursor, true), "fh") == 0);
    terrace_cursor_free(cursor);
}

/* Bug: a cursor of a transaction read 16 rows with their values under a limit of one. Cause: the
 * limit was passed on for snapshots alone. Fix: it is passed on to both. One for update took it from
 * its first call on alone, since it is opened where it is made: it is opened again. */
static void limits_in_transactions(void) {
    terrace_error *error = NULL;
    terrace_table_options *options = terrace_table_options_new();
    HANDLE(options);
    OK(terrace_table_options_set(options, "large_values", "4KiB", &error));
    OK(terrace_table_options_set(options, "compression", "none", &error));
    terrace_table *large =
        terrace_database_table_with_options(database, "large", options, &error);
    HANDLE(large);
    terrace_table_options_free(options);
    terrace_bulk_load *load = terrace_table_bulk_load(large, false, &error);
    HANDLE(load);
    static char value[100000];
    for (char key = 'a'; key < 'q'; key++) {
        OK(terrace_bulk_load_put(load, &key, 1, value, sizeof value, &error));
    }
    OK(terrace_bulk_load_finish(load, &error));
    terrace_bulk_load_free(load);
    terrace_transaction *transaction = terrace_database_begin(database, NULL, &error);
    HANDLE(transaction);
    const uint32_t scans[] = {TERRACE_READ, TERRACE_FOR_UPDATE, TERRACE_SKIP_LOCKED};
    for (size_t n = 0; n < sizeof scans / sizeof *scans; n++) {
        terrace_cursor *cursor =
            terrace_transaction_cursor(transaction, large, NULL, scans[n], &error);
        HANDLE(cursor);
        OK(terrace_cursor_set_limit(cursor, 1, &error));
        terrace_statistics before, after;
        OK(terrace_database_get_statistics(database, &before, sizeof before, &error));
        terrace_row row;
        is_at(terrace_cursor_next(cursor, &row, &error), &row, "a");
        is_at(terrace_cursor_next(cursor, &row, &error), &row, NULL);
        OK(terrace_database_get_statistics(database, &after, sizeof after, &error));
        CHECK(after.disk_read_bytes - before.disk_read_bytes < 3 * sizeof value);
        terrace_cursor_free(cursor);
    }
    OK(terrace_transaction_roll_back(transaction, &error));
    terrace_transaction_free(transaction);
    terrace_table_free(large);
}

static void moments(void) {
    terrace_error *error = NULL;
    terrace_cursor *cursor = terrace_table_cursor(table, NULL, &error);
    HANDLE(cursor);
    put(table, "c", "later");
    CHECK(strcmp(keys(cursor, true), "bdfh") == 0);
    terrace_row row;
    is_at(terrace_cursor_seek(cursor, "c", 1, &row, &error), &row, "d");
    OK(terrace_cursor_refresh(cursor, &error));
    CHECK(strcmp(keys(cursor, true), "bcdfh") == 0);
    OK(terrace_table_delete(table, "c", 1, TERRACE_RELAXED, &error));
    OK(terrace_cursor_refresh(cursor, &error));
    is_at(terrace_cursor_seek(cursor, "c", 1, &row, &error), &row, "d");

    OK(terrace_database_truncate_table(database, "t", &error));
    FAILS(TERRACE_INVALID, terrace_cursor_first(cursor, &row, &error));
    OK(terrace_cursor_refresh(cursor, &error));
    is_at(terrace_cursor_first(cursor, &row, &error), &row, NULL);
    terrace_cursor_free(cursor);
    terrace_error_free(error);
}

/* A range of more rows than are read at once, and values of all lengths. */
static void long_ranges(void) {
    terrace_error *error = NULL;
    enum { ROWS = 3000 };
    char key[16], value[512];
    memset(value, 'v', sizeof value);
    terrace_batch *batch = terrace_batch_new();
    for (int n = 0; n < ROWS; n++) {
        snprintf(key, sizeof key, "%06d", n);
        OK(terrace_batch_put(batch, table, TEXT(key), value, (size_t)n % sizeof value, &error));
    }
    OK(terrace_database_write(database, batch, TERRACE_RELAXED, &error));
    terrace_batch_free(batch);
    terrace_cursor *cursor = terrace_table_cursor(table, NULL, &error);
    HANDLE(cursor);
    terrace_row row;
    for (int n = 0; n < ROWS; n++) {
        OK(terrace_cursor_next(cursor, &row, &error));
        snprintf(key, sizeof key, "%06d", n);
        CHECK(is_text(row.key, row.key_len, key));
        CHECK(row.value_len == (size_t)n % sizeof value);
        CHECK(memcmp(row.value, value, row.value_len) == 0);
    }
    for (int n = ROWS - 2; n >= 0; n--) {
        OK(terrace_cursor_prev(cursor, &row, &error));
        snprintf(key, sizeof key, "%06d", n);
        CHECK(is_text(row.key, row.key_len, key));
    }
    is_at(terrace_cursor_prev(cursor, &row, &error), &row, NULL);
    for (int n = 0; n < ROWS; n += 97) {
        snprintf(key, sizeof key, "%06d", n);
        is_at(terrace_cursor_seek(cursor, TEXT(key), &row, &error), &row, key);
    }
    terrace_cursor_free(cursor);
}

int main(int count, char **arguments) {
    begin_test(count, arguments);
    terrace_error *error = NULL;
    database = open_small("cursors");
    table = terrace_database_table(database, "t", &error);
    HANDLE(table);
    put(table, "b", "of b");
    put(table, "d", "of d");
    put(table, "f", "of f");
    put(table, "h", "of h");
    both_ways();
    anywhere();
    limits();
    limits_in_transactions();
    moments();
    long_ranges();
    terrace_cursor *cursor = terrace_table_cursor(table, NULL, &error);
    HANDLE(cursor);
    terrace_row row;
    OK(terrace_cursor_next(cursor, &row, &error));
    close_and_free(database);
    CHECK(is_text(row.key, row.key_len, "000000"));
    FAILS(TERRACE_CLOSED, terrace_cursor_first(cursor, &row, &error));
    FAILS(TERRACE_CLOSED, terrace_cursor_refresh(cursor, &error));
    terrace_cursor_free(cursor);
    terrace_table_free(table);
    terrace_error_free(error);
    return 0;
}
