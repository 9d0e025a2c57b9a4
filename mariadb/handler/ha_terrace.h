/*
  The handler: one for each use of a table by a statement.

  A table of the server is one table of the library. Its keys are, by their first byte, counters,
  rows, entries of indexes, and chunks of large rows (key_codec.h). Without a PRIMARY KEY rows have
  a hidden id of 8 bytes.

  Thread safety: a handler is used by one thread at a time.
*/
#ifndef TERRACE_HANDLER_HA_TERRACE_H
#define TERRACE_HANDLER_HA_TERRACE_H

#include "errors.h"
#include "key_codec.h"
#include "foreign_columns.h"
#include "open_table.h"
#include "references.h"
#include "server.h"
#include "trx.h"

class ha_terrace final : public handler
{
public:
  ha_terrace(handlerton *hton, TABLE_SHARE *share) : handler(hton, share) {}
  ~ha_terrace() override = default;

  /* What the engine can do: handler.cc. */
  Table_flags table_flags() const override;
  ulong index_flags(uint index, uint part, bool all_parts) const override;
  /* SHOW INDEX names the kind that behaves so. */
  const char *index_type(uint) override { return "BTREE"; }
  /* The server's query cache knows no views, and no rows that expire. */
  uint8 table_cache_type() override { return HA_CACHE_TBL_NOCACHE; }
  uint max_supported_keys() const override { return MAX_KEY; }
  uint max_supported_key_parts() const override { return MAX_REF_PARTS; }
  uint max_supported_key_length() const override { return 3072; }
  uint max_supported_key_part_length() const override { return 3072; }
  uint max_supported_record_length() const override { return HA_MAX_REC_LENGTH; }
  double scan_time() override;
  double read_time(uint index, uint ranges, ha_rows rows) override;

  int open(const char *name, int mode, uint test_if_locked) override;
  int close() override;
  int reset() override;
  int extra(enum ha_extra_function operation) override;
  int external_lock(THD *thd, int lock_type) override;
  int start_stmt(THD *thd, thr_lock_type lock_type) override;
  uint lock_count() const override { return 0; }
  THR_LOCK_DATA **store_lock(THD *thd, THR_LOCK_DATA **to, enum thr_lock_type type) override;
  bool get_error_message(int error, String *buffer) override;
  handler *clone(const char *name, MEM_ROOT *mem_root) override;

  /* Tables: ddl.cc. */
  int create(const char *name, TABLE *form, HA_CREATE_INFO *info) override;
  int delete_table(const char *name) override;
  int rename_table(const char *from, const char *to) override;
  int take_place(const Bytes &table, const Bytes &copy, const Bytes &name);
  int truncate() override;
  int delete_all_rows() override;
  int discover_check_version() override;
  int reset_auto_increment(ulonglong value) override;
  void update_create_info(HA_CREATE_INFO *info) override;
  bool check_if_incompatible_data(HA_CREATE_INFO *info, uint table_changes) override;
  enum_alter_inplace_result check_if_supported_inplace_alter(TABLE *altered,
                                                             Alter_inplace_info *info) override;
  /* ALTER TABLE in place: alter.cc. */
  bool prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *info) override;
  bool inplace_alter_table(TABLE *altered, Alter_inplace_info *info) override;
  ulonglong table_version() const override;
  bool commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info, bool commit) override;
  int check(THD *thd, HA_CHECK_OPT *options) override;
  int analyze(THD *thd, HA_CHECK_OPT *options) override;
  int optimize(THD *thd, HA_CHECK_OPT *options) override;

  /* Foreign keys, as the server asks for them: foreign_info.cc. */
  int get_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *list) override;
  int get_parent_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *list) override;
  bool referenced_by_foreign_key() const noexcept override;
  bool can_switch_engines() override;
  char *get_foreign_key_create_info() override;
  bool get_foreign_dup_key(char *child, uint child_len, char *index, uint index_len) override;
  void free_foreign_key_create_info(char *text) override;

  /* Writes: write.cc. */
  int write_row(const uchar *record) override;
  int update_row(const uchar *old_record, const uchar *new_record) override;
  int delete_row(const uchar *record) override;
  void get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted,
                          ulonglong *first, ulonglong *reserved) override;

  /* Reads: read.cc, and scan.cc for the steps of cursors. */
  int rnd_init(bool scan) override;
  int rnd_end() override;
  int rnd_next(uchar *record) override;
  int rnd_pos(uchar *record, uchar *position) override;
  void position(const uchar *record) override;
  int cmp_ref(const uchar *one, const uchar *two) override;
  int index_init(uint index, bool sorted) override;
  int index_end() override;
  int index_read_map(uchar *record, const uchar *key, key_part_map parts,
                     enum ha_rkey_function how) override;
  int index_read_last_map(uchar *record, const uchar *key, key_part_map parts) override;
  int index_next(uchar *record) override;
  int index_prev(uchar *record) override;
  int index_first(uchar *record) override;
  int index_last(uchar *record) override;
  int index_next_same(uchar *record, const uchar *key, uint length) override;
  int read_range_first(const key_range *start, const key_range *end, bool is_point,
                       bool sorted) override;
  Item *idx_cond_push(uint index, Item *condition) override;

  /* Reads of many ranges: many_ranges.cc. */
  ha_rows multi_range_read_info_const(uint index, RANGE_SEQ_IF *ranges, void *parameter, uint count,
                                      uint *buffer, uint *flags, Cost_estimate *cost) override;
  ha_rows multi_range_read_info(uint index, uint count, uint rows, uint parts, uint *buffer,
                                uint *flags, Cost_estimate *cost) override;
  int multi_range_read_init(RANGE_SEQ_IF *ranges, void *parameter, uint count, uint flags,
                            HANDLER_BUFFER *buffer) override;
  int multi_range_read_next(range_id_t *range) override;
  int multi_range_read_explain_info(uint flags, char *text, size_t size) override;

  /* Estimates: estimate.cc. */
  int info(uint flags) override;
  ha_rows records_in_range(uint index, const key_range *min, const key_range *max,
                           page_range *pages) override;

private:
  int open_indexes(const char *name);
  static bool needs_layout(TABLE *form);
  int begin_table(const Bytes &name, TABLE *form, const HA_CREATE_INFO *info);

  /* Estimates. */
  void bounds_of(uint index, const key_range *min, const key_range *max, Bytes *lower,
                 Bytes *upper) const;
  ulonglong count_values(uint index, uint parts, uint jumps);
  ulonglong rows_of_history(ulonglong estimated) const;
  std::vector<ulonglong> values_of(uint index, uint jumps, bool is_anew);

  /* What a read does to the rows that it finds. */
  enum Row_lock { LOCK_NONE, LOCK_SHARE, LOCK_EXCLUSIVE };
  enum Way { FORWARD, BACKWARD };

  Trx *trx() const { return Trx::of(ha_thd()); }
  /*
    Numbers of a sequence that were taken are not given back, and no other connection waits for
    them. So its row is written and read outside of transactions, without locks.
  */
  bool is_sequence() const { return table_share->sequence; }
  bool has_primary_key() const { return table_share->primary_key != MAX_KEY; }
  const Key_codec &codec(uint index) const { return codecs[index]; }

  /* Keys of rows. */
  Bytes row_key(const uchar *record) const;
  /* The key of an entry of an index, and whether it holds the row's key in its value. */
  bool entry_key(uint index, const uchar *record, const Bytes &row, Bytes *entry) const
  {
    return entry_of(codec(index), record, row, entry);
  }
  static bool entry_of(const Key_codec &of_index, const uchar *record, const Bytes &row,
                       Bytes *entry);
  /* The end of a row's key in an entry: in its value, or behind its parts. */
  int row_of_entry(const Bytes &entry, const Bytes &value, Bytes *row) const;

  /* Writes of one row. */
  int begin_write();
  int get(const Bytes &key, Found_value *found, Row_lock lock) const;
  int get(const Bytes &key, Bytes *value, Row_lock lock) const;
  /* Locks a key. An error if it is not there. */
  int lock_key(const Bytes &key, Row_lock lock) const;
  int put(const Bytes &key, const Bytes &value) const;
  int put_of_sequence(const Bytes &key, const Bytes &value) const;
  int remove(const Bytes &key) const;
  int put_row(const Bytes &key, const uchar *record);
  /* Locks what the statement locks; nothing where another transaction than its own reads. */
  int whole_row(const Bytes &key, Bytes *value, terrace_transaction *reader = nullptr) const;
  int get_chunk(const Bytes &key, Bytes *chunk, terrace_transaction *reader) const;
  int remove_row(const Bytes &key);
  int remove_chunks(const Bytes &key, const Bytes &value);
  int check_unique(uint index, const uchar *record, const Bytes &row);
  int put_entry(uint index, const uchar *record, const Bytes &row);
  int remove_entry(uint index, const uchar *record, const Bytes &row);
  int change_entry(uint index, const uchar *old_record, const uchar *new_record,
                   const Bytes &old_row, const Bytes &new_row, bool is_new_to_view);
  bool is_same(const uchar *old_record, const uchar *new_record) const;
  int differs_in_view(const Bytes &key, const uchar *record, bool *differs);
  int fail_if_taken(uint index, const Bytes &key);
  int fail_if_taken_by_another(uint index, const Bytes &entry, const Bytes &of_row);
  int note_auto_increment(const uchar *record);

  /* Foreign keys as rows change: foreign_rows.cc. */
  struct Change
  {
    /* The savepoint before it; 0 for none. */
    ulonglong savepoint = 0;
    /* Whether children follow it. */
    bool is_followed = false;
  };
  void follow_references();
  bool has_moved();
  bool follows_keys();
  int rows_of_key(uint index, const Bytes &prefix, uint kind, std::vector<Bytes> *rows,
                  Bytes *rest = nullptr);
  int find_parent(const Reference &key, const uchar *record, const Columns &own);
  int check_parents(const uchar *old_record, const uchar *new_record);
  bool restricts(const Reference &key, bool is_delete);
  bool loses(const Columns &own, const uchar *old_record, const uchar *new_record) const;
  int find_children(const Reference &key, const uchar *record, const Columns &own, TABLE *of_child,
                    uint kind, Bytes *prefix, std::vector<Bytes> *rows, Bytes *rest = nullptr);
  int check_children(const uchar *old_record, const uchar *new_record, bool *is_followed);
  int follow_row(const Reference &key, const Bytes &of_row, const Bytes &prefix, TABLE *of_parent,
                 const uchar *new_record);
  int follow_key(const Reference &key, const uchar *old_record, const uchar *new_record,
                 const Columns &own);
  int begin_change(const uchar *old_record, const uchar *new_record, Change *change);
  int end_change(const uchar *old_record, const uchar *new_record, const Change &change, int error);

  /* Foreign keys in statements that change tables: foreign_ddl.cc. */
  int wanted_references(const Bytes &name, TABLE *form, const HA_CREATE_INFO *info,
                        std::vector<Reference> *keys);
  int check_references(const Bytes &name, TABLE *form, const std::vector<Reference> &keys);
  enum_alter_inplace_result check_keys_of_alter(TABLE *altered, Alter_inplace_info *info);

  /* CHECK TABLE. */
  int check_entries(const Bytes &of_row);
  int count_entries(uint index, ha_rows *count);
  int check_indexes();

  /* ALTER TABLE in place. */
  bool can_change_attributes(const TABLE *altered) const;
  int build_index(TABLE *altered, uint index, uint number);
  int load_entries(TABLE *altered, uint index, std::vector<std::pair<Bytes, Bytes>> *entries);
  int fail_of_duplicate(TABLE *altered, uint index, const Bytes &of_row);
  int sweep_layout(const Layout &now);

  /* Indexes that are built while others write: online.cc, for the ALTER TABLE and for writers. */
  int end_of_piece(const Bytes &from, Bytes *last);
  int build_piece(TABLE *altered, uint index, const Key_codec &of_index, const terrace_range &rows,
                  bool *again, Bytes *blocked);
  int wait_for_entry(const Bytes &entry);
  int build_online(TABLE *altered, uint index, uint number);
  int settle_row(TABLE *altered, uint index, const Key_codec &of_index, const Bytes &key,
                 terrace_transaction *transaction);
  int settle_noted(TABLE *altered, const Alter_inplace_info *info, Build *of_change);
  void follow_builds();
  int begin_statement(THD *thd, int lock_type);
  bool removes_rows(THD *thd) const;
  int put_built_entry(uint of_build, const Bytes &entry, bool is_unique, const Bytes &of_row);
  int remove_own_entry(const Bytes &entry, bool is_unique, const Bytes &of_row);
  int change_built_entries(const uchar *old_record, const uchar *new_record, const Bytes &old_row,
                           const Bytes &new_row);

  /* Reads. */
  void take_lock_type(THD *thd, thr_lock_type type);
  void begin_scan(uchar prefix, ulonglong made);
  void end_scan();
  int begin_read();
  int begin_followed_read();
  uint scan_kind() const;
  int choose_kind(uint *kind) const;
  uint locking_kind() const;
  bool steps_through_gaps(bool is_narrow) const;
  int from(uchar *record, const terrace_range &range, Way way);
  int from(uchar *record, const Bytes &lower, const Bytes &upper, Way way);
  int move(uchar *record, Way way);
  int settle(uchar *record, terrace_status status, terrace_row *lent, Way way, Failure *failure);
  int open_cursor(const terrace_range &range, uint kind);
  /* Of cursor_kind, which changes where the whole table had to be locked. */
  terrace_cursor *new_cursor(const terrace_range &range, Failure *failure);
  int step_through_gaps(uchar *record, Way way);
  int take_row(uchar *record, const terrace_row &lent, bool *is_there);
  int read_row(uchar *record, const Bytes &key, bool *is_there);
  int read_row_of_entry(uchar *record, const Bytes &of_row, bool *is_there);
  int unpack_found(uchar *record, const char *value, size_t length, const Bytes &key,
                   bool *is_there);
  int is_absent(const Bytes &key, bool *absent);
  int read_unique(uchar *record, const Bytes &entry);
  int lock_checked(const uchar *record, const Bytes &prefix, const uchar *key, key_part_map parts,
                   enum ha_rkey_function how);
  bool is_still_there(uchar *record);
  int unpack(uchar *record, const char *value, size_t length, const Bytes &key);
  void close_cursor();

  /* Reads of many ranges. */
  struct In_batch
  {
    range_id_t range;
    Bytes entry, row, value;
  };
  bool may_read_batches(uint flags) const;
  int next_of_batch(range_id_t *range);
  int begin_next_range();
  int take_entry();
  int fill_batch();
  int look_up_batch();

  /* Reads from an entry of an index alone: covering.cc. */
  bool gives(const MY_BITMAP *columns) const;
  bool is_covered();
  MY_BITMAP *columns_of_entries();
  void compute_virtual(uchar *record);
  void compute_unread(const uchar *record);
  void decode_entry(uchar *record, const Bytes &entry, const Bytes &of_row) const;
  int check_condition(const Bytes &entry, const Bytes &of_row, bool *holds);

  Open_table *open_table = nullptr;
  std::vector<Key_codec> codecs;
  /*
    Indexes but that of the primary key, in the order in which they were made; for a partition, in the
    order of the definition. The first one that has a duplicate is told, and ON DUPLICATE KEY UPDATE changes that row.
  */
  std::vector<uint> secondary;
  /* Indexes that an ALTER TABLE builds, as of builds_seen of the table. */
  Build_ref build;
  std::vector<Key_codec> codecs_of_build;
  ulonglong builds_seen = 0;
  /* The layout as of the opening; none for a table that was never altered in place. */
  Layout_ref layout;
  /* For each index the moment from which on views see its entries; 0 for as long as its table. */
  std::vector<ulonglong> built_at;

  /* Its keys as a child and as a parent, as of references_seen. */
  References parents, children;
  ulonglong references_seen = 0;

  /* Why there is no number of AUTO_INCREMENT, such as a full disk. */
  int error_of_numbers = 0;
  /* Virtual columns of entries, once they were looked up. */
  MY_BITMAP of_entries;
  std::vector<my_bitmap_map> bits_of_entries;
  /* BLOBs that were computed for a record, by the number of the column. */
  std::map<std::pair<const uchar *, uint>, String> computed_blobs;

  /* Of the statement: take_lock_type() sets them, and reset() takes them back. */
  Row_lock row_lock = LOCK_NONE;
  bool skip_locked = false;
  /* As store_lock() was told: whether a log of statements depends on what is read. */
  bool is_of_change = false;
  terrace_cursor *cursor = nullptr;
  /* How the cursor reads. */
  uint cursor_kind = TERRACE_READ;
  /* The prefix of what is scanned: rows, or entries of an index. */
  uchar scanned = PREFIX_ROWS;
  /* It was made behind the view that reads it. */
  bool is_unseen = false;
  /* The cursor's range ends where the key that was asked for does. */
  bool is_bounded = false;
  /* Where the range that the server reads ends; empty where it did not say. */
  Bytes range_end;
  bool begins_range = false;
  /* A scan that locks gaps, step by step, and what it has not come to. */
  bool is_stepping = false;
  Way stepping_way = FORWARD;
  uint steps = 0;
  /* index_next_same asks: what follows the range of the cursor is not looked at. */
  bool is_same_asked = false;
  Bytes rest_lower, rest_upper;
  /* The record that the scan has read last came from an entry, and has its columns alone. */
  bool is_from_entry = false;
  /* Whether the entry has all columns that the statement reads, once that was looked up. */
  enum { COVERS_UNKNOWN, COVERS, COVERS_NOT } covers = COVERS_UNKNOWN;
  /* The cursor is on the current entry. */
  bool is_on_current = false;
  /* The entry that the scan is on; empty before the first one. */
  Bytes current;
  /* The key of the row that was read last. */
  Bytes row;
  /* What BLOBs of the record point into. */
  Bytes row_buffer;
  /* A read of many ranges: rows that were looked up together, and the range that it is in. */
  bool reads_batches = false;
  std::vector<In_batch> batch;
  size_t batch_at = 0, batch_size = 0;
  bool is_in_range = false, has_more_ranges = false;
};

/* The library's name of the table with this path. */
Bytes name_of(const char *path);
/* The table that an ALTER TABLE changes; empty for another statement. */
Bytes altered_table(THD *thd);
/* Why a DROP has to leave a table, to which children refer that stay; 0 for nothing. */
int refuse_drop_of_parent(THD *thd, const Bytes &name);
/* The names of the library's tables, also of its own. */
std::vector<Bytes> library_tables();
bool library_has(const Bytes &name);
/* Whether a table is a temporary one of a connection. */
bool is_temporary(const Bytes &name);
/* Whether a table is the engine's own, which the server can name and must not use. */
bool is_own_table(const Bytes &name);
/*
  Before the first step of a DROP: waits for transactions that XA has prepared. The library refuses
  to drop what they have written to, and the server has dropped other parts of the table by then.
*/
int wait_for_drop(THD *thd, const Bytes &name);
/* Drop and rename a table of the library. HA_ERR_NO_SUCH_TABLE if there is none. */
int drop_library_table(const Bytes &name);
/* The table that one, or one of partitions, is a copy of; empty for none. */
Bytes copied_table(const Bytes &copy);
/* The name of the old table of a copy, where the server keeps it: it has the same numbers. */
Bytes backup_of(const Bytes &copied, const Bytes &copy);
int rename_library_table(const Bytes &from, const Bytes &to);

#endif
