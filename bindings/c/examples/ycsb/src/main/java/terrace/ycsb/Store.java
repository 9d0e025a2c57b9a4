package terrace.ycsb;

import com.sun.jna.Memory;
import com.sun.jna.Pointer;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import site.ycsb.DBException;

/**
 * The open database. All clients of the process share it: the first one opens it, and the last one
 * closes it.
 *
 * <p>Thread safety: the handles may be used by any threads at once. The lock of the class guards the
 * count of clients and the tables by name.
 */
final class Store {
  private static Store open;
  private static int clients;

  final Pointer database;
  final Pointer transactionOptions;
  final int durability;
  private final Map<String, Pointer> tables = new HashMap<>();

  /** The store, which is opened with what the properties say if it is not. */
  static synchronized Store acquire(Properties properties) throws DBException {
    if (open == null) {
      open = new Store(properties);
    }
    clients++;
    return open;
  }

  static synchronized void release() throws DBException {
    if (--clients == 0) {
      Store last = open;
      open = null;
      last.close();
    }
  }

  private Store(Properties properties) throws DBException {
    Memory error = newError();
    String how = properties.getProperty("terrace.durability", "durable");
    durability = how.equals("relaxed") ? Terrace.RELAXED : Terrace.DURABLE;
    Pointer options = Terrace.terrace_options_new();
    for (String name : properties.stringPropertyNames()) {
      // terrace.option.pm_size is the option pm_size.
      if (name.startsWith("terrace.option.")) {
        String option = name.substring("terrace.option.".length());
        String value = properties.getProperty(name);
        check(Terrace.terrace_options_set(options, option, value, error), error);
      }
    }
    database =
        there(Terrace.terrace_open(properties.getProperty("terrace.path"), options, error), error);
    Terrace.terrace_options_free(options);
    // At read_committed the row that is locked is the newest one: an update meets no conflict.
    transactionOptions = Terrace.terrace_transaction_options_new();
    set("isolation", "read_committed", error);
    set("durability", how, error);
  }

  private void set(String name, String value, Memory error) throws DBException {
    check(Terrace.terrace_transaction_options_set(transactionOptions, name, value, error), error);
  }

  /** The table of a name. It is made where there is none. */
  Pointer table(String name, Memory error) throws DBException {
    synchronized (Store.class) {
      Pointer table = tables.get(name);
      if (table == null) {
        table = there(Terrace.terrace_database_table(database, name, error), error);
        tables.put(name, table);
      }
      return table;
    }
  }

  private void close() throws DBException {
    tables.values().forEach(Terrace::terrace_table_free);
    Terrace.terrace_transaction_options_free(transactionOptions);
    Memory error = newError();
    check(Terrace.terrace_close(database, error), error);
    Terrace.terrace_database_free(database);
  }

  /** Where a call writes its error: a pointer that is NULL at first. */
  static Memory newError() {
    Memory error = new Memory(Long.BYTES);
    error.setPointer(0, Pointer.NULL);
    return error;
  }

  static String message(Memory error) {
    return Terrace.terrace_error_message(error.getPointer(0));
  }

  private static void check(int status, Memory error) throws DBException {
    if (status != Terrace.OK) {
      throw new DBException(message(error));
    }
  }

  private static Pointer there(Pointer handle, Memory error) throws DBException {
    if (handle == null) {
      throw new DBException(message(error));
    }
    return handle;
  }
}
