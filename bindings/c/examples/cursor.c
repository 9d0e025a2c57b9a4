/* Walks through a table both ways with one cursor: cursor DIRECTORY. */

#include <stdio.h>
#include <string.h>

#include <terrace.h>

static int failed(const char *doing, terrace_error *error) {
    fprintf(stderr, "cannot %s: %s\n", doing, terrace_error_message(error));
    terrace_error_free(error);
    return 1;
}

static void print(const terrace_row *row) {
    printf("%.*s: %.*s\n", (int)row->key_len, row->key, (int)row->value_len, row->value);
}

/* All rows whose keys begin with a prefix, from the last to the first. */
static terrace_status print_backwards(terrace_cursor *cursor, const char *prefix,
                                      terrace_error **error) {
    terrace_range range = {{prefix, strlen(prefix), TERRACE_PREFIX}, {NULL, 0, TERRACE_UNBOUNDED}};
    terrace_status status = terrace_cursor_set_range(cursor, &range, error);
    terrace_row row;
    while (status == TERRACE_OK) {
        status = terrace_cursor_prev(cursor, &row, error);
        if (status == TERRACE_OK) {
            print(&row);
        }
    }
    return status;
}

int main(int count, char **arguments) {
    static const char *people[][2] = {
        {"ada", "1815"}, {"alan", "1912"}, {"barbara", "1939"}, {"edsger", "1930"},
    };
    char path[1024];
    snprintf(path, sizeof path, "%s/years", count > 1 ? arguments[1] : ".");
    terrace_error *error = NULL;
    terrace_database *database = terrace_open(path, NULL, &error);
    if (database == NULL) {
        return failed("open the database", error);
    }
    terrace_table *years = terrace_database_table(database, "years", &error);
    if (years == NULL) {
        return failed("open the table", error);
    }
    terrace_batch *batch = terrace_batch_new();
    for (size_t at = 0; at < sizeof people / sizeof people[0]; at++) {
        const char *name = people[at][0], *year = people[at][1];
        if (terrace_batch_put(batch, years, name, strlen(name), year, strlen(year), &error)) {
            return failed("put", error);
        }
    }
    if (terrace_database_write(database, batch, TERRACE_DURABLE, &error) != TERRACE_OK) {
        return failed("commit", error);
    }
    terrace_batch_free(batch);

    terrace_cursor *cursor = terrace_table_cursor(years, NULL, &error);
    if (cursor == NULL) {
        return failed("open a cursor", error);
    }
    terrace_row row;
    int rows = 0;
    terrace_status status = terrace_cursor_seek(cursor, "alb", 3, &row, &error);
    for (; status == TERRACE_OK; status = terrace_cursor_next(cursor, &row, &error)) {
        print(&row);
        rows++;
    }
    if (status == TERRACE_NOT_FOUND) {
        status = print_backwards(cursor, "a", &error);
    }
    if (status != TERRACE_NOT_FOUND) {
        return failed("read", error);
    }
    terrace_cursor_free(cursor);
    terrace_table_free(years);
    if (terrace_close(database, &error) != TERRACE_OK) {
        return failed("close the database", error);
    }
    terrace_database_free(database);
    return rows == 2 ? 0 : 1;
}
