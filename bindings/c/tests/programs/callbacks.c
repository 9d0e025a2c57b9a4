/* Functions of the program that the library calls: under a deadline, while a database opens, when a
 * commit has ended, and with events. Beside them what a program asks about options and versions. */

#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <stdatomic.h>

#include "check.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

struct told {
    int times;
    terrace_status status;
    char message[200];
};

static void tell(void *context, terrace_status status, const terrace_error *error) {
    struct told *told = context;
    CHECK((error == NULL) == (status == TERRACE_OK));
    pthread_mutex_lock(&lock);
    told->times++;
    told->status = status;
    snprintf(told->message, sizeof told->message, "%s", terrace_error_message(error));
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void wait_until_told(const struct told *told, int times) {
    pthread_mutex_lock(&lock);
    while (told->times < times)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static terrace_pending *enqueue(const terrace_database *database, const terrace_table *table) {
    terrace_error *error = NULL;
    terrace_batch *batch = terrace_batch_new();
    OK(terrace_batch_put(batch, table, TEXT("key"), TEXT("value"), &error));
    terrace_pending *pending = terrace_database_enqueue(database, batch, TERRACE_DURABLE, &error);
    HANDLE(pending);
    terrace_batch_free(batch);
    return pending;
}

static void commits(const terrace_database *database, const terrace_table *table) {
    terrace_error *error = NULL;
    struct told told = {0}, freed = {0};
    terrace_pending *pending = enqueue(database, table);
    OK(terrace_pending_on_end(pending, tell, &told, &error));
    OK(terrace_pending_on_end(pending, tell, &told, &error));
    OK(terrace_pending_wait(pending, &error));
    wait_until_told(&told, 2);
    CHECK(told.status == TERRACE_OK && told.message[0] == 0);
    /* It has ended: the function is called before the call returns. */
    OK(terrace_pending_on_end(pending, tell, &told, &error));
    CHECK(told.times == 3);
    FAILS(TERRACE_INVALID, terrace_pending_on_end(pending, NULL, &told, &error));
    FAILS(TERRACE_INVALID, terrace_pending_on_end(NULL, tell, &told, &error));
    terrace_pending_free(pending);

    pending = enqueue(database, table);
    OK(terrace_pending_on_end(pending, tell, &freed, &error));
    terrace_pending_free(pending);
    wait_until_told(&freed, 1);
    CHECK(freed.times == 1 && freed.status == TERRACE_OK);
    terrace_error_free(error);
}

struct work {
    const terrace_table *table;
    int calls;
};

static void delete_range(void *context) {
    struct work *work = context;
    terrace_error *error = NULL;
    FAILS(TERRACE_TIMEOUT, terrace_table_delete_range(work->table, NULL, &error));
    terrace_error_free(error);
    work->calls++;
}

static void deadlines(const terrace_database *database, const terrace_table *table) {
    terrace_error *error = NULL;
    struct work work = {table, 0};
    terrace_transaction *holder = terrace_database_begin(database, NULL, &error);
    HANDLE(holder);
    OK(terrace_transaction_put(holder, table, TEXT("key"), TEXT("mine"), &error));
    OK(terrace_with_deadline(5, delete_range, &work, &error));
    CHECK(work.calls == 1);
    FAILS(TERRACE_INVALID, terrace_with_deadline(5, NULL, &work, &error));
    terrace_transaction_free(holder);
    CHECK(has(table, "key", "value"));
    terrace_error_free(error);
}

static void isolation(const terrace_database *database) {
    terrace_error *error = NULL;
    terrace_transaction_options *options = terrace_transaction_options_new();
    for (int n = 0; n < 3; n++) {
        static const char *const levels[] = {"read_committed", "snapshot", "serializable"};
        OK(terrace_transaction_options_set(options, "isolation", levels[n], &error));
        terrace_transaction *transaction = terrace_database_begin(database, options, &error);
        HANDLE(transaction);
        CHECK(strcmp(terrace_transaction_isolation(transaction), levels[n]) == 0);
        terrace_transaction_list *list = terrace_database_list_transactions(database, &error);
        HANDLE(list);
        terrace_transaction_info info;
        OK(terrace_transaction_list_at(list, 0, &info, &error));
        CHECK(strcmp(info.isolation, levels[n]) == 0);
        terrace_transaction_list_free(list);
        terrace_transaction_free(transaction);
    }
    CHECK(terrace_transaction_isolation(NULL) == NULL);
    terrace_transaction_options_free(options);
    terrace_error_free(error);
}

static bool count(void *context, const char *operation, uint64_t done, uint64_t total) {
    atomic_int *calls = context;
    CHECK(strcmp(operation, "open") == 0 || strcmp(operation, "close") == 0);
    CHECK(done <= total);
    (*calls)++;
    return true;
}

static bool end_backup(void *context, const char *operation, uint64_t done, uint64_t total) {
    (void)context, (void)done, (void)total;
    return strcmp(operation, "backup") != 0;
}

static void progress(void) {
    terrace_error *error = NULL;
    atomic_int calls = 0;
    terrace_options *options = small_options();
    OK(terrace_options_set_progress(options, count, &calls, &error));
    FAILS(TERRACE_INVALID, terrace_options_set_progress(options, NULL, NULL, &error));
    terrace_database *database = terrace_open_existing(path_of("db"), options, &error);
    HANDLE(database);
    int while_opening = calls;
    CHECK(while_opening > 0);
    close_and_free(database);
    CHECK(calls > while_opening);
    OK(terrace_options_set_progress(options, end_backup, NULL, &error));
    database = terrace_open_existing(path_of("db"), options, &error);
    HANDLE(database);
    FAILS(TERRACE_CANCELLED, terrace_database_backup(database, path_of("ended"), NULL, &error));
    close_and_free(database);
    terrace_options_free(options);
    terrace_error_free(error);
}

struct waits {
    atomic_uint_fast64_t waiter, holder;
};

static void note_wait(void *context, uint64_t waiter, uint64_t holder) {
    struct waits *waits = context;
    waits->waiter = waiter;
    waits->holder = holder;
}

static void lock_waits(void) {
    terrace_error *error = NULL;
    struct waits waits = {0, 0};
    terrace_options *options = small_options();
    OK(terrace_options_set_lock_waits(options, note_wait, &waits, &error));
    FAILS(TERRACE_INVALID, terrace_options_set_lock_waits(options, NULL, NULL, &error));
    terrace_database *database = terrace_open_existing(path_of("db"), options, &error);
    HANDLE(database);
    terrace_table *table = terrace_database_table(database, "waits", &error);
    HANDLE(table);
    terrace_transaction *holder = terrace_database_begin(database, NULL, &error);
    terrace_transaction *waiter = terrace_database_begin(database, NULL, &error);
    OK(terrace_transaction_set_lock_wait(waiter, 1, &error));
    OK(terrace_transaction_put(holder, table, TEXT("key"), TEXT("mine"), &error));
    FAILS(TERRACE_TIMEOUT,
          terrace_transaction_put(waiter, table, TEXT("key"), TEXT("mine"), &error));
    CHECK(waits.waiter == terrace_transaction_id(waiter));
    CHECK(waits.holder == terrace_transaction_id(holder));
    terrace_transaction_free(waiter);
    terrace_transaction_free(holder);
    terrace_table_free(table);
    close_and_free(database);
    terrace_options_free(options);
    terrace_error_free(error);
}

struct events {
    terrace_database *database;
    int opened, flushes, closed;
};

/* It writes, and closes the database at the end of a job. */
static void note_event(void *context, const char *name, const char *json) {
    struct events *events = context;
    terrace_error *error = NULL;
    char begin[64];
    snprintf(begin, sizeof begin, "{\"event\":\"%s\",\"at_ms\":", name);
    CHECK(strncmp(json, begin, strlen(begin)) == 0 && strchr(json, '\n') == NULL);
    CHECK(json[strlen(json) - 1] == '}');
    events->opened += strcmp(name, "opened") == 0;
    events->closed += strcmp(name, "closed") == 0;
    if (strcmp(name, "flush") != 0 || strstr(json, "\"table\":\"events\"") == NULL)
        return;
    if (events->flushes++ > 0)
        return;
    terrace_table *table = terrace_database_table(events->database, "events", &error);
    HANDLE(table);
    OK(terrace_table_put(table, TEXT("of"), TEXT("the function"), TERRACE_DURABLE, &error));
    CHECK(has(table, "of", "the function"));
    terrace_table_free(table);
    OK(terrace_close(events->database, &error));
    terrace_error_free(error);
}

static void events(void) {
    terrace_error *error = NULL;
    struct events told = {0};
    terrace_options *options = small_options();
    FAILS(TERRACE_INVALID, terrace_options_on_event(NULL, note_event, &told, &error));
    OK(terrace_options_on_event(options, note_event, &told, &error));
    OK(terrace_options_on_event(options, NULL, NULL, &error));
    close_and_free(terrace_open(path_of("db"), options, &error));
    CHECK(told.opened == 0);

    OK(terrace_options_on_event(options, note_event, &told, &error));
    told.database = terrace_open_existing(path_of("db"), options, &error);
    HANDLE(told.database);
    terrace_table *table = terrace_database_table(told.database, "events", &error);
    HANDLE(table);
    OK(terrace_table_put(table, TEXT("key"), TEXT("value"), TERRACE_DURABLE, &error));
    /* The function may close the database meanwhile. */
    terrace_status status = terrace_table_compact_range(table, NULL, &error);
    CHECK(status == TERRACE_OK || status == TERRACE_CLOSED);
    terrace_table_free(table);
    close_and_free(told.database);
    CHECK(told.opened == 1 && told.flushes > 0 && told.closed == 1);
    terrace_options_free(options);
    terrace_error_free(error);
}

static void option_names(void) {
    terrace_error *error = NULL;
    static const char *const known[] = {"pm_size", "block_size", "isolation"};
    for (uint32_t kind = TERRACE_DATABASE_OPTIONS; kind <= TERRACE_TRANSACTION_OPTIONS; kind++) {
        terrace_strings *names = terrace_option_names(kind, &error);
        HANDLE(names);
        bool found = false;
        CHECK(terrace_strings_len(names) % 2 == 0);
        for (size_t at = 0; at < terrace_strings_len(names); at += 2) {
            found = found || strcmp(terrace_strings_at(names, at), known[kind]) == 0;
            CHECK(terrace_strings_at(names, at + 1)[0] != 0);
        }
        CHECK(found);
        terrace_strings_free(names);
    }
    NO_HANDLE(TERRACE_INVALID, terrace_option_names(3, &error));
    terrace_error_free(error);
}

static void names_of_statuses(void) {
    CHECK(strcmp(terrace_status_name(TERRACE_OK), "TERRACE_OK") == 0);
    CHECK(strcmp(terrace_status_name(TERRACE_BUSY), "TERRACE_BUSY") == 0);
    CHECK(strcmp(terrace_status_name(-1), "unknown status") == 0);
}

static void versions(void) {
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", TERRACE_VERSION_MAJOR, TERRACE_VERSION_MINOR,
             TERRACE_VERSION_PATCH);
    CHECK(strcmp(version, terrace_version()) == 0);
    CHECK(terrace_abi_version() == TERRACE_ABI_VERSION);
}

int main(int count, char **arguments) {
    begin_test(count, arguments);
    terrace_error *error = NULL;
    terrace_database *database = open_small("db");
    terrace_table *table = terrace_database_table(database, "table", &error);
    HANDLE(table);
    commits(database, table);
    deadlines(database, table);
    isolation(database);
    terrace_table_free(table);
    close_and_free(database);
    progress();
    lock_waits();
    events();
    option_names();
    names_of_statuses();
    versions();
    terrace_error_free(error);
    return 0;
}
