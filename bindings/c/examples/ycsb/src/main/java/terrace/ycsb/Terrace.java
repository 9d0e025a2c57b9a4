package terrace.ycsb;

import com.sun.jna.Library;
import com.sun.jna.Native;
import com.sun.jna.NativeLibrary;
import com.sun.jna.Pointer;
import java.util.Map;

/**
 * The functions of terrace.h that the client calls, under their names in C. JNA binds them when the
 * class is loaded; it looks for libterrace.so in the folders of the property jna.library.path.
 *
 * <p>Handles and structures are pointers, {@code size_t} is a long, enumerations are ints. An array
 * of bytes lends its elements for the call.
 */
final class Terrace {
  static final int OK = 0;
  static final int NOT_FOUND = 1;
  static final int DURABLE = 0;
  static final int RELAXED = 1;

  /** Bytes of a terrace_value: the address of its bytes, their number, and four words. */
  static final int VALUE_SIZE = 48;

  /** Bytes of a terrace_row: the address and the number of the key's bytes, and the value's. */
  static final int ROW_SIZE = 32;

  static {
    Map<String, Object> options = Map.of(Library.OPTION_STRING_ENCODING, "UTF-8");
    Native.register(Terrace.class, NativeLibrary.getInstance("terrace", options));
  }

  private Terrace() {}

  static native String terrace_error_message(Pointer error);

  static native void terrace_error_free(Pointer error);

  static native Pointer terrace_options_new();

  static native int terrace_options_set(Pointer options, String name, String value, Pointer error);

  static native void terrace_options_free(Pointer options);

  static native Pointer terrace_transaction_options_new();

  static native int terrace_transaction_options_set(
      Pointer options, String name, String value, Pointer error);

  static native void terrace_transaction_options_free(Pointer options);

  static native Pointer terrace_open(String path, Pointer options, Pointer error);

  static native int terrace_close(Pointer database, Pointer error);

  static native void terrace_database_free(Pointer database);

  static native Pointer terrace_database_table(Pointer database, String name, Pointer error);

  static native void terrace_table_free(Pointer table);

  static native int terrace_table_get(
      Pointer table, byte[] key, long keyLength, Pointer value, Pointer error);

  static native int terrace_table_put(
      Pointer table,
      byte[] key,
      long keyLength,
      byte[] value,
      long valueLength,
      int durability,
      Pointer error);

  static native int terrace_table_delete(
      Pointer table, byte[] key, long keyLength, int durability, Pointer error);

  static native void terrace_value_release(Pointer value);

  static native Pointer terrace_table_cursor(Pointer table, Pointer range, Pointer error);

  static native int terrace_cursor_refresh(Pointer cursor, Pointer error);

  static native int terrace_cursor_set_limit(Pointer cursor, long rows, Pointer error);

  static native int terrace_cursor_seek(
      Pointer cursor, byte[] key, long keyLength, Pointer row, Pointer error);

  static native int terrace_cursor_next(Pointer cursor, Pointer row, Pointer error);

  static native void terrace_cursor_free(Pointer cursor);

  static native Pointer terrace_database_begin(Pointer database, Pointer options, Pointer error);

  static native int terrace_transaction_get_for_update(
      Pointer transaction, Pointer table, byte[] key, long keyLength, Pointer value, Pointer error);

  static native int terrace_transaction_put(
      Pointer transaction,
      Pointer table,
      byte[] key,
      long keyLength,
      byte[] value,
      long valueLength,
      Pointer error);

  static native int terrace_transaction_commit(Pointer transaction, Pointer error);

  static native void terrace_transaction_free(Pointer transaction);
}
