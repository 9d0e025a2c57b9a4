/* A database that several machines share: a takeover, a follower, a standby and its promotion. */

#define _POSIX_C_SOURCE 200809L

#include <time.h>

#include "check.h"

static char url[600];

static terrace_options *shared_options(void) {
    terrace_error *error = NULL;
    terrace_options *options = small_options();
    OK(terrace_options_set(options, "object_store", url, &error));
    OK(terrace_options_set(options, "share", "on", &error));
    return options;
}

/* Waits until a follower has a row. The test has a minute for it. */
static void wait_for_row(const terrace_follower *follower, const char *key, const char *text) {
    terrace_error *error = NULL;
    const struct timespec pause = {0, 20 * 1000 * 1000};
    for (int tries = 0; tries < 3000; tries++) {
        terrace_database *database = terrace_follower_database(follower, &error);
        HANDLE(database);
        terrace_table *table = terrace_database_existing_table(database, "users", NULL);
        bool found = table != NULL && has(table, key, text);
        terrace_table_free(table);
        terrace_database_free(database);
        if (found)
            return;
        nanosleep(&pause, NULL);
    }
    fprintf(stderr, "no row %s after a minute\n", key);
    exit(1);
}

static void put_remote(const terrace_database *database, const char *key, const char *text) {
    terrace_error *error = NULL;
    terrace_table *table = terrace_database_table(database, "users", &error);
    HANDLE(table);
    OK(terrace_table_put(table, TEXT(key), TEXT(text), TERRACE_REMOTE, &error));
    terrace_table_free(table);
}

static void follows(const terrace_options *options) {
    terrace_error *error = NULL;
    terrace_follower *follower = terrace_follow(url, path_of("follower"), options, &error);
    HANDLE(follower);
    wait_for_row(follower, "ada", "1815");
    terrace_node_status status;
    OK(terrace_follower_get_status(follower, &status, &error));
    CHECK(status.commit > 0 && status.entry > 0);
    FAILS(TERRACE_INVALID, terrace_follower_get_status(follower, NULL, &error));
    FAILS(TERRACE_INVALID, terrace_follower_get_status(NULL, &status, &error));
    terrace_string *note = terrace_follower_note(follower, &error);
    HANDLE(note);
    CHECK(terrace_string_text(note)[0] == 0);
    terrace_string_free(note);

    terrace_database *database = terrace_follower_database(follower, &error);
    HANDLE(database);
    terrace_table *table = terrace_database_existing_table(database, "users", &error);
    HANDLE(table);
    FAILS(TERRACE_INVALID,
          terrace_table_put(table, TEXT("alan"), TEXT("1912"), TERRACE_DURABLE, &error));
    NO_HANDLE(TERRACE_INVALID, terrace_follower_promote(follower, &error));
    CHECK(strstr(terrace_error_message(error), "terrace_standby") != NULL);
    OK(terrace_follower_close(follower, &error));
    OK(terrace_follower_close(follower, &error));
    NO_HANDLE(TERRACE_CLOSED, terrace_follower_database(follower, &error));
    terrace_table_free(table);
    terrace_database_free(database);
    terrace_follower_free(follower);
    terrace_follower_free(NULL);
    terrace_error_free(error);
}

/* The names of followers are known to the store until it forgets them. */
static void registers(void) {
    terrace_error *error = NULL;
    terrace_options *options = small_options();
    OK(terrace_options_set(options, "follower_name", "reports", &error));
    terrace_follower *follower = terrace_follow(url, path_of("named"), options, &error);
    HANDLE(follower);
    terrace_follower_free(follower);
    terrace_string *json = terrace_shared_status_json(url, NULL, &error);
    HANDLE(json);
    CHECK(strstr(terrace_string_text(json), "\"reports\"") != NULL);
    terrace_string_free(json);
    OK(terrace_forget_follower(url, "reports", NULL, &error));
    json = terrace_shared_status_json(url, options, &error);
    HANDLE(json);
    CHECK(strstr(terrace_string_text(json), "\"reports\"") == NULL);
    terrace_string_free(json);
    FAILS(TERRACE_INVALID, terrace_forget_follower(url, "a name", options, &error));
    terrace_options_free(options);
    terrace_error_free(error);
}

/* The standby becomes the writer, in the directory that it names, and the old writer is fenced. */
static void promotes(const terrace_options *options, const terrace_table *old) {
    terrace_error *error = NULL;
    terrace_follower *standby = terrace_standby(url, path_of("standby"), options, &error);
    HANDLE(standby);
    wait_for_row(standby, "ada", "1815");
    terrace_database *database = terrace_follower_promote(standby, &error);
    HANDLE(database);
    terrace_string *directory = terrace_database_path(database, &error);
    HANDLE(directory);
    put_remote(database, "grace", "1906");
    FAILS(TERRACE_FENCED,
          terrace_table_put(old, TEXT("emmy"), TEXT("1882"), TERRACE_REMOTE, &error));
    NO_HANDLE(TERRACE_CLOSED, terrace_follower_promote(standby, &error));
    terrace_follower_free(standby);
    close_and_free(database);

    terrace_options *shared = shared_options();
    database = terrace_open_existing(terrace_string_text(directory), shared, &error);
    HANDLE(database);
    terrace_table *table = terrace_database_existing_table(database, "users", &error);
    HANDLE(table);
    CHECK(has(table, "grace", "1906") && has(table, "emmy", NULL));
    terrace_table_free(table);
    close_and_free(database);
    terrace_options_free(shared);
    terrace_string_free(directory);
    terrace_error_free(error);
}

static void takes_over(const terrace_options *options) {
    terrace_error *error = NULL;
    NO_HANDLE(TERRACE_INVALID, terrace_open_shared(NULL, path_of("second"), options, &error));
    terrace_database *database = terrace_open_shared(url, path_of("second"), options, &error);
    HANDLE(database);
    put_remote(database, "emmy", "1882");
    NO_HANDLE(TERRACE_EXISTS, terrace_open_shared(url, path_of("second"), options, &error));
    close_and_free(database);
    terrace_error_free(error);
}

int main(int count, char **arguments) {
    begin_test(count, arguments);
    terrace_error *error = NULL;
    snprintf(url, sizeof url, "file://%s", path_of("bucket"));
    terrace_options *options = small_options();
    CHECK(terrace_follow(url, path_of("early"), options, &error) == NULL);
    CHECK(strstr(terrace_error_message(error), "no shared database") != NULL);
    terrace_options *shared = shared_options();
    terrace_database *database = terrace_open(path_of("first"), shared, &error);
    HANDLE(database);
    put_remote(database, "ada", "1815");
    terrace_table *table = terrace_database_existing_table(database, "users", &error);
    HANDLE(table);
    follows(options);
    registers();
    promotes(options, table);
    takes_over(options);
    terrace_table_free(table);
    terrace_close(database, NULL);
    terrace_database_free(database);
    terrace_options_free(shared);
    terrace_options_free(options);
    terrace_error_free(error);
    return 0;
}
