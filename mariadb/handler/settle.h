/*
  What becomes of renames that did not come to their definitions (renames.h).

  Thread safety: any thread.
*/
#ifndef TERRACE_HANDLER_SETTLE_H
#define TERRACE_HANDLER_SETTLE_H

#include "server.h"

#include <map>
#include <set>
#include <vector>

struct Rename
{
  /*
    0 for one that the library's table does not have: of a definition alone, by the same name. With
    a number the same name is that of a table that is dropped without a definition.
  */
  ulonglong number;
  Bytes from, to;
  /* Of a drop: whose definitions it goes by. */
  Bytes by = Bytes();
};

inline bool is_drop(const Rename &rename) { return rename.number && rename.from == rename.to; }

/*
  Whether there is a definition that may be of a table of this engine: of no view, and of no engine
  whose number is fixed. That of a partitioned table names its engine elsewhere.
*/
bool has_own_definition(const Bytes &table);
/* As of the bytes of a definition. */
bool is_own_definition(const Bytes &definition);
bool is_partitioned_definition(const Bytes &definition);
/* Whether the partitions of a list are of this engine. */
bool is_own_list(const Bytes &list);

/* What came of a look into a file. */
enum class File_read
{
  WHOLE,
  MISSING,
  FAILED
};
/* Reads a file, or its first bytes. Where it fails, my_errno says why. */
File_read read_file(const Bytes &path, Bytes *out, size_t most = SIZE_MAX);
/* The names in a folder, as far as it can be read. */
std::vector<Bytes> files_in(const Bytes &folder);

/* Which tables had definitions before a rename, where that is not as it is now. */
typedef std::map<Bytes, bool> Definitions;

/*
  Before a recovery: settles a rename that has not come to the definition, which the server's log may
  have for done. The renames behind it are settled. Where both names have a definition, another table
  has got the old name since. Where a rename behind it has used the new name, the server has undone this
  one. If all of it is done, the definition follows: the log may know the next rename of the statement,
  undoes that one by its names, and this one behind it. If not, it is undone. The rest waits for the end
  of the recovery.
*/
void settle_before(const Rename &rename, Definitions *definitions);

/*
  Settles renames, the newest first: of a statement that ends, or of all that are noted. Returns those
  names whose renames stay noted.
*/
std::set<Bytes> settle(const std::vector<Rename> &all);

/*
  Copies that have no definition by their own name: the server has given it the table's, and could
  neither rename the copy nor note that. As renames.
*/
std::vector<Rename> lost_copies();

/*
  Ends a drop that a crash has cut, or that a recovery has left. Whether that is done. A table that has
  got the name of partitions since, and no definition, stays.
*/
bool end_drop(const Bytes &table);

#endif
