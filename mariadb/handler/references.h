/*
  Foreign keys: which columns of a child refer to which ones of a parent, and what a change of the
  parent does.

  The library's table of foreign keys has each key once, under its child. It is read when the plugin
  starts, and each change of it is durable before it is seen. Parents find their children in what was
  read.

  Crash argument. A table and its foreign keys are not changed together. A new table has its keys
  before its statement ends, and the server's log of DDL drops a table whose statement has not ended.
  A rename is noted before it begins (renames.h), and moves the table first. Its way back moves the
  keys first. So a table that has its old name has its keys too. To one that has the new name the
  start gives them. Where it has done so, keys of a child that the library does not have are of a drop
  that was cut, and go.

  Thread safety: any thread. A Reference does not change.
*/
#ifndef TERRACE_HANDLER_REFERENCES_H
#define TERRACE_HANDLER_REFERENCES_H

#include "errors.h"
#include "server.h"

#include <memory>
#include <vector>

struct Reference
{
  /* The library's names of both tables. */
  Bytes child, parent;
  /* The name of the constraint. */
  Bytes name;
  std::vector<Bytes> columns, parent_columns;
  enum_fk_option on_delete = FK_OPTION_RESTRICT, on_update = FK_OPTION_RESTRICT;

  /* As SHOW CREATE TABLE has it. */
  Bytes text() const;
};

typedef std::shared_ptr<const Reference> Reference_ref;
typedef std::vector<Reference_ref> References;

/* The database and the table of a name of the library, as SQL has them. */
struct Sql_name
{
  explicit Sql_name(const Bytes &name);
  Bytes database, table;
};
/* The library's name of a table. */
Bytes library_name(const Bytes &database, const Bytes &table);
/* Whether a table is one that a statement of DDL makes or leaves under a name of its own. */
bool is_hidden(const Bytes &name);
/* Whether it is the copy that an ALTER TABLE makes of a table. */
bool is_copy(const Bytes &name);

/* Those of a child, and those to a parent but of hidden children, by name. */
References references_of(const Bytes &child);
References references_to(const Bytes &parent);
/* Whether another table of its database, or a copy of one, has a key of a name that is new for it. */
bool is_name_taken(const Bytes &name, const Bytes &table);
/* Grows with each change of any. */
ulonglong references_version();
/* Whether there is none at all. */
bool has_no_references();

/* Gives a child these keys alone, durably. */
int set_references(const Bytes &child, const std::vector<Reference> &wanted);
/* A table was renamed. Its own keys go with it, and those to it unless a name is hidden. */
int rename_references(const Bytes &from, const Bytes &to);
/* ALTER TABLE ... RENAME with a copy: a table that was copied has another name. */
int move_children(const Bytes &from, const Bytes &to);

/* When the plugin starts, before renames are settled. */
bool load_references();
/* Behind each rename that is settled. Whether its table has its keys. */
bool settle_references(const Bytes &from, const Bytes &to);
/* When all tables have theirs: forgets those of children that are not there. */
void sweep_references();

#endif
