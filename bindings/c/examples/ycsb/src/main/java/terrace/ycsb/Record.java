package terrace.ycsb;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;

/**
 * A record of YCSB as the value of a key: for each field the length of its name, the name, the
 * length of its value, and the value. Lengths have four bytes.
 */
final class Record {
  private Record() {}

  static byte[] encode(Map<String, byte[]> fields) {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    fields.forEach(
        (name, value) -> {
          append(out, name.getBytes(StandardCharsets.UTF_8));
          append(out, value);
        });
    return out.toByteArray();
  }

  private static void append(ByteArrayOutputStream out, byte[] bytes) {
    out.writeBytes(ByteBuffer.allocate(Integer.BYTES).putInt(bytes.length).array());
    out.writeBytes(bytes);
  }

  /** All fields, in their order. */
  static Map<String, byte[]> decode(byte[] value) {
    Map<String, byte[]> fields = new LinkedHashMap<>();
    ByteBuffer rest = ByteBuffer.wrap(value);
    while (rest.hasRemaining()) {
      String name = new String(take(rest), StandardCharsets.UTF_8);
      fields.put(name, take(rest));
    }
    return fields;
  }

  private static byte[] take(ByteBuffer from) {
    byte[] bytes = new byte[from.getInt()];
    from.get(bytes);
    return bytes;
  }

  /** Puts the fields that are asked for into a result; of null, all. */
  static void select(byte[] value, Set<String> names, Map<String, ByteIterator> result) {
    decode(value)
        .forEach(
            (name, bytes) -> {
              if (names == null || names.contains(name)) {
                result.put(name, new ByteArrayByteIterator(bytes));
              }
            });
  }

  /** The bytes that YCSB gives for each field. */
  static Map<String, byte[]> bytes(Map<String, ByteIterator> values) {
    Map<String, byte[]> fields = new LinkedHashMap<>();
    values.forEach((name, value) -> fields.put(name, value.toArray()));
    return fields;
  }
}
