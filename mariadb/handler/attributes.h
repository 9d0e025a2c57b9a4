/*
  Attributes of tables: TERRACE_TTL, TERRACE_TIER and TERRACE_COMPRESSION. They are options of the
  library's table, and the server's definition says what they are to be. An ALTER TABLE sets them
  before the server switches to its new definition, but for a shorter life of rows. The first
  opening behind it, or after a crash, sets what the definition says.
*/
#ifndef TERRACE_HANDLER_ATTRIBUTES_H
#define TERRACE_HANDLER_ATTRIBUTES_H

#include "errors.h"
#include "server.h"

/* What the server has parsed. Texts are NULL where nothing is said. */
struct ha_table_option_struct
{
  char *ttl;
  uint tier;
  char *compression;
};

/* The attributes, as the handlerton has them. */
extern ha_create_table_option table_attributes[];

/* The value of an option as the library has it: ttl, cold or compression. */
Bytes option_of(const terrace_table_options *options, const char *name);
/*
  Sets what a definition says, and a tag where rows expire. Says so, and fails, for a value that the
  library does not take.
*/
int set_attributes(const ha_table_option_struct *attributes, terrace_table_options *options);
/* Gives a table that has none the tag by which what it keeps elsewhere is found. 0, or 1 after an error. */
int set_tag(terrace_table_options *options, Failure *failure);
/* Whether two definitions say the same, and whether the first one has rows that expire. */
bool same_attributes(const ha_table_option_struct *one, const ha_table_option_struct *two);
bool has_ttl(const ha_table_option_struct *attributes);

#endif
