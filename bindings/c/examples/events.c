/* Prints what a database does, a line of JSON each, with the time in front: events DIRECTORY. */

#include <stdio.h>
#include <time.h>

#include <terrace.h>

/* A thread of the library calls it, and nothing but terrace_close waits for it. */
static void print(void *context, const char *name, const char *json) {
    FILE *to = context;
    char now[32];
    time_t seconds = time(NULL);
    strftime(now, sizeof now, "%H:%M:%S", localtime(&seconds));
    fprintf(to, "%s %s %s\n", now, name, json);
}

int main(int count, char **arguments) {
    char path[1024];
    snprintf(path, sizeof path, "%s/events", count > 1 ? arguments[1] : ".");

    terrace_error *error = NULL;
    terrace_options *options = terrace_options_new();
    terrace_options_on_event(options, print, stdout, &error);
    terrace_database *database = terrace_open(path, options, &error);
    terrace_table *table = database ? terrace_database_table(database, "t", &error) : NULL;
    if (table != NULL && terrace_table_put(table, "key", 3, "value", 5, TERRACE_DURABLE, &error) ==
                             TERRACE_OK) {
        /* A memtable is merged, and its records are drained. */
        terrace_table_compact_range(table, NULL, &error);
    }
    if (database != NULL) {
        terrace_close(database, error ? NULL : &error);
    }
    terrace_table_free(table);
    terrace_database_free(database);
    terrace_options_free(options);
    if (error != NULL) {
        fprintf(stderr, "%s\n", terrace_error_message(error));
        terrace_error_free(error);
        return 1;
    }
    return 0;
}
