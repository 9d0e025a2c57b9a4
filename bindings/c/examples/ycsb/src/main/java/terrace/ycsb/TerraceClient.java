package terrace.ycsb;

import com.sun.jna.Memory;
import com.sun.jna.Pointer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.Vector;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.Status;

/**
 * Terrace for YCSB. YCSB makes one client for each of its threads, so a client has room of its own
 * for what calls write: a value, a row and an error. It keeps one cursor for each table.
 */
public final class TerraceClient extends DB {
  private final Memory value = new Memory(Terrace.VALUE_SIZE);
  private final Memory row = new Memory(Terrace.ROW_SIZE);
  private final Memory error = Store.newError();
  private final Map<String, Pointer> cursors = new HashMap<>();
  private Store store;

  @Override
  public void init() throws DBException {
    store = Store.acquire(getProperties());
  }

  @Override
  public void cleanup() throws DBException {
    cursors.values().forEach(Terrace::terrace_cursor_free);
    Terrace.terrace_error_free(error.getPointer(0));
    Store.release();
  }

  @Override
  public Status read(
      String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
    return run(
        table,
        handle -> {
          byte[] bytes = bytes(key);
          int status =
              Terrace.terrace_table_get(handle, bytes, bytes.length, value, error);
          if (status == Terrace.OK) {
            Record.select(takeValue(), fields, result);
          }
          return status;
        });
  }

  @Override
  public Status scan(
      String table,
      String start,
      int count,
      Set<String> fields,
      Vector<HashMap<String, ByteIterator>> result) {
    return run(
        table,
        handle -> {
          Pointer cursor = cursors.get(table);
          if (cursor == null) {
            cursor = Terrace.terrace_table_cursor(handle, Pointer.NULL, error);
            if (cursor == null) {
              return -1;
            }
            cursors.put(table, cursor);
          }
          byte[] bytes = bytes(start);
          int status = Terrace.terrace_cursor_refresh(cursor, error);
          if (status == Terrace.OK) {
            status = Terrace.terrace_cursor_set_limit(cursor, count, error);
          }
          if (status == Terrace.OK) {
            status = Terrace.terrace_cursor_seek(cursor, bytes, bytes.length, row, error);
          }
          while (status == Terrace.OK) {
            HashMap<String, ByteIterator> record = new HashMap<>();
            Record.select(copy(row, 2 * Long.BYTES), fields, record);
            result.add(record);
            status = Terrace.terrace_cursor_next(cursor, row, error);
          }
          // A scan that begins behind the last row has no rows, and has not failed.
          return status == Terrace.NOT_FOUND ? Terrace.OK : status;
        });
  }

  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    return run(
        table,
        handle -> {
          Pointer transaction =
              Terrace.terrace_database_begin(store.database, store.transactionOptions, error);
          if (transaction == null) {
            return -1;
          }
          try {
            return update(transaction, handle, bytes(key), values);
          } finally {
            // It is rolled back where it was not committed.
            Terrace.terrace_transaction_free(transaction);
          }
        });
  }

  /** Reads the record with its lock, changes fields of it, and commits. */
  private int update(
      Pointer transaction, Pointer table, byte[] key, Map<String, ByteIterator> values) {
    int status =
        Terrace.terrace_transaction_get_for_update(
            transaction, table, key, key.length, value, error);
    if (status != Terrace.OK) {
      return status;
    }
    Map<String, byte[]> record = Record.decode(takeValue());
    record.putAll(Record.bytes(values));
    byte[] encoded = Record.encode(record);
    status =
        Terrace.terrace_transaction_put(
            transaction, table, key, key.length, encoded, encoded.length, error);
    return status == Terrace.OK ? Terrace.terrace_transaction_commit(transaction, error) : status;
  }

  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    return run(
        table,
        handle -> {
          byte[] bytes = bytes(key);
          byte[] record = Record.encode(Record.bytes(values));
          return Terrace.terrace_table_put(
              handle, bytes, bytes.length, record, record.length, store.durability, error);
        });
  }

  @Override
  public Status delete(String table, String key) {
    return run(
        table,
        handle -> {
          byte[] bytes = bytes(key);
          return Terrace.terrace_table_delete(
              handle, bytes, bytes.length, store.durability, error);
        });
  }

  /** A call on a table, which gives a terrace_status, or -1 for a handle that was not made. */
  private interface Call {
    int on(Pointer table);
  }

  private Status run(String name, Call call) {
    try {
      int status = call.on(store.table(name, error));
      if (status == Terrace.OK) {
        return Status.OK;
      }
      if (status == Terrace.NOT_FOUND) {
        return Status.NOT_FOUND;
      }
      System.err.println("terrace: " + Store.message(error));
    } catch (DBException failure) {
      System.err.println("terrace: " + failure.getMessage());
    }
    return Status.ERROR;
  }

  /** The bytes of the value that a call has lent, which is released. */
  private byte[] takeValue() {
    try {
      return copy(value, 0);
    } finally {
      Terrace.terrace_value_release(value);
    }
  }

  /** The bytes whose address and number lie at an offset of a structure. */
  private static byte[] copy(Memory structure, long offset) {
    long length = structure.getLong(offset + Long.BYTES);
    return structure.getPointer(offset).getByteArray(0, Math.toIntExact(length));
  }

  private static byte[] bytes(String key) {
    return key.getBytes(StandardCharsets.UTF_8);
  }
}
