/* Opens a database, writes two rows, and reads them back: hello DIRECTORY. */

#include <stdio.h>
#include <string.h>

#include <terrace.h>

static int failed(const char *doing, terrace_error *error) {
    fprintf(stderr, "cannot %s: %s\n", doing, terrace_error_message(error));
    terrace_error_free(error);
    return 1;
}

int main(int count, char **arguments) {
    char path[1024];
    snprintf(path, sizeof path, "%s/people", count > 1 ? arguments[1] : ".");

    terrace_error *error = NULL;
    terrace_options *options = terrace_options_new();
    if (terrace_options_set(options, "pm_size", "16MiB", &error) != TERRACE_OK) {
        return failed("set the size of the region", error);
    }
    terrace_database *database = terrace_open(path, options, &error);
    terrace_options_free(options);
    if (database == NULL) {
        return failed("open the database", error);
    }
    terrace_table *users = terrace_database_table(database, "users", &error);
    if (users == NULL) {
        return failed("open the table", error);
    }

    /* Durable when the call returns. */
    const char *ada = "Ada Lovelace, 1815";
    if (terrace_table_put(users, "ada", 3, ada, strlen(ada), TERRACE_DURABLE, &error)) {
        return failed("put", error);
    }

    /* Lent, without a copy, until it is released. */
    terrace_value value;
    switch (terrace_table_get(users, "ada", 3, &value, &error)) {
    case TERRACE_OK:
        printf("ada: %.*s\n", (int)value.len, value.data);
        break;
    case TERRACE_NOT_FOUND:
        printf("ada is not there\n");
        return 1;
    default:
        return failed("get", error);
    }
    terrace_value_release(&value);

    terrace_table_free(users);
    if (terrace_close(database, &error) != TERRACE_OK) {
        return failed("close the database", error);
    }
    terrace_database_free(database);
    return 0;
}
