/* What the test programs share: checks that say where they fail, and a database to work in. */

#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "terrace.h"

#define CHECK(condition)                                                             \
    do {                                                                             \
        if (!(condition)) {                                                          \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

/* Calls with an error to fill in, which must not be filled. */
#define OK(call)                                                                     \
    do {                                                                             \
        terrace_status status_ = (call);                                             \
        if (status_ != TERRACE_OK) {                                                 \
            fprintf(stderr, "%s:%d: %s: status %d: %s\n", __FILE__, __LINE__, #call, \
                    (int)status_, terrace_error_message(error));                     \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

/* A call that fails with a status, and fills in an error that says so. */
#define FAILS(expected, call)                                                        \
    do {                                                                             \
        terrace_status status_ = (call);                                             \
        if (status_ != (expected)) {                                                 \
            fprintf(stderr, "%s:%d: %s: status %d instead of %d: %s\n", __FILE__,    \
                    __LINE__, #call, (int)status_, (int)(expected),                  \
                    terrace_error_message(error));                                   \
            exit(1);                                                                 \
        }                                                                            \
        CHECK(terrace_error_status(error) == (expected));                            \
        CHECK(terrace_error_message(error)[0] != 0);                                 \
    } while (0)

/* A call that makes a handle and fails. */
#define NO_HANDLE(expected, call)                                                    \
    do {                                                                             \
        CHECK((call) == NULL);                                                       \
        if (terrace_error_status(error) != (expected)) {                             \
            fprintf(stderr, "%s:%d: %s: status %d instead of %d: %s\n", __FILE__,    \
                    __LINE__, #call, (int)terrace_error_status(error),               \
                    (int)(expected), terrace_error_message(error));                  \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

/* A handle, which must be there. */
#define HANDLE(handle)                                                               \
    do {                                                                             \
        if ((handle) == NULL) {                                                      \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #handle,          \
                    terrace_error_message(error));                                   \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

#define TEXT(text) (text), strlen(text)

static const char *directory_of_test;

/* A path in the directory that the program was given. */
static inline const char *path_of(const char *name) {
    static char paths[8][512];
    static int next = 0;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", directory_of_test, name);
    return path;
}

static inline terrace_options *small_options(void) {
    terrace_error *error = NULL;
    terrace_options *options = terrace_options_new();
    HANDLE(options);
    OK(terrace_options_set(options, "pm_size", "4MiB", &error));
    OK(terrace_options_set(options, "cache_size", "4MiB", &error));
    return options;
}

static inline terrace_database *open_small(const char *name) {
    terrace_error *error = NULL;
    terrace_options *options = small_options();
    terrace_database *database = terrace_open(path_of(name), options, &error);
    HANDLE(database);
    terrace_options_free(options);
    return database;
}

static inline void close_and_free(terrace_database *database) {
    terrace_error *error = NULL;
    OK(terrace_close(database, &error));
    terrace_database_free(database);
}

static inline bool is_text(const char *data, size_t len, const char *text) {
    return len == strlen(text) && memcmp(data, text, len) == 0;
}

/* Whether the table has the value for the key; of NULL, whether it has none. */
static inline bool has(const terrace_table *table, const char *key, const char *text) {
    terrace_error *error = NULL;
    terrace_value value;
    terrace_status status = terrace_table_get(table, TEXT(key), &value, &error);
    bool found;
    CHECK(error == NULL);
    if (text == NULL) {
        found = status == TERRACE_NOT_FOUND && value.data == NULL;
    } else {
        found = status == TERRACE_OK && is_text(value.data, value.len, text);
    }
    terrace_value_release(&value);
    return found;
}

static inline void put(const terrace_table *table, const char *key, const char *text) {
    terrace_error *error = NULL;
    OK(terrace_table_put(table, TEXT(key), TEXT(text), TERRACE_RELAXED, &error));
}

static inline void begin_test(int count, char **arguments) {
    if (count != 2) {
        fprintf(stderr, "usage: %s DIRECTORY\n", arguments[0]);
        exit(2);
    }
    directory_of_test = arguments[1];
    /* Not every program uses all of this file. */
    (void)open_small;
    (void)close_and_free;
    (void)has;
    (void)put;
}

#endif
