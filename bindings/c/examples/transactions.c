/* Moves money between accounts, and runs again after conflicts: transactions DIRECTORY. */

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <terrace.h>

/* Reads an account and locks it. */
static terrace_status read_account(terrace_transaction *transaction, terrace_table *accounts,
                                   const char *name, int64_t *money, terrace_error **error) {
    terrace_value value;
    *money = 0;
    terrace_status status = terrace_transaction_get_for_update(transaction, accounts, name,
                                                               strlen(name), &value, error);
    if (status == TERRACE_OK && value.len == sizeof *money) {
        memcpy(money, value.data, sizeof *money);
    }
    terrace_value_release(&value);
    return status == TERRACE_NOT_FOUND ? TERRACE_OK : status;
}

static terrace_status try_transfer(terrace_transaction *transaction, terrace_table *accounts,
                                   const char *from, const char *to, int64_t amount,
                                   terrace_error **error) {
    int64_t source, target;
    terrace_status status = read_account(transaction, accounts, from, &source, error);
    if (status == TERRACE_OK) {
        status = read_account(transaction, accounts, to, &target, error);
    }
    if (status != TERRACE_OK) {
        return status;
    }
    source -= amount;
    target += amount;
    status = terrace_transaction_put(transaction, accounts, from, strlen(from), &source,
                                     sizeof source, error);
    if (status == TERRACE_OK) {
        status = terrace_transaction_put(transaction, accounts, to, strlen(to), &target,
                                         sizeof target, error);
    }
    return status == TERRACE_OK ? terrace_transaction_commit(transaction, error) : status;
}

/* A conflict or a deadlock has rolled the transaction back: then once more. */
static terrace_status transfer(terrace_database *database, terrace_table *accounts,
                               const char *from, const char *to, int64_t amount,
                               terrace_error **error) {
    for (;;) {
        terrace_transaction *transaction = terrace_database_begin(database, NULL, error);
        if (transaction == NULL) {
            return terrace_error_status(*error);
        }
        terrace_status status = try_transfer(transaction, accounts, from, to, amount, error);
        /* Without a commit, this rolls it back. */
        terrace_transaction_free(transaction);
        if (status != TERRACE_CONFLICT && status != TERRACE_DEADLOCK) {
            return status;
        }
    }
}

static int failed(const char *doing, terrace_error *error) {
    fprintf(stderr, "cannot %s: %s\n", doing, terrace_error_message(error));
    terrace_error_free(error);
    return 1;
}

int main(int count, char **arguments) {
    char path[1024];
    snprintf(path, sizeof path, "%s/bank", count > 1 ? arguments[1] : ".");
    terrace_error *error = NULL;
    terrace_database *database = terrace_open(path, NULL, &error);
    if (database == NULL) {
        return failed("open the database", error);
    }
    terrace_table *accounts = terrace_database_table(database, "accounts", &error);
    if (accounts == NULL) {
        return failed("open the table", error);
    }
    for (int at = 0; at < 10; at++) {
        if (transfer(database, accounts, "bank", at % 2 ? "ada" : "alan", 5, &error)) {
            return failed("transfer", error);
        }
    }
    int64_t money = 0;
    size_t len;
    terrace_status status =
        terrace_table_get_into(accounts, "ada", 3, &money, sizeof money, &len, &error);
    if (status != TERRACE_OK) {
        return failed("read an account", error);
    }
    printf("ada has %lld\n", (long long)money);
    terrace_table_free(accounts);
    if (terrace_close(database, &error) != TERRACE_OK) {
        return failed("close the database", error);
    }
    terrace_database_free(database);
    return money == 25 ? 0 : 1;
}
