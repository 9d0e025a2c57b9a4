#!/bin/bash
# A table whose deeper levels lie in an object store, here a directory. TERRACE_TIER moves a table there
# and back, and its rows outlive a kill of the server.
set -euo pipefail
. "$(dirname "$0")/servers.sh"

ROWS=60000
OPTIONS=(--skip-networking --terrace-pm-size=8MiB --terrace-level1-size=2MiB
  --terrace-object-store="file://$WORK/store")

# verify: all rows are there, by the table and by its index.
verify() {
  local said
  said=$(sql one 'SELECT COUNT(*), SUM(a) FROM cold; SELECT COUNT(*) FROM cold FORCE INDEX (a)
    WHERE a >= 0; SELECT LENGTH(note) FROM cold WHERE id = 4711' test)
  [ "$said" = "$ROWS	$sum
$ROWS
480" ] || fail "the rows are $said"
  sql one 'CHECK TABLE cold' test | grep -q OK || fail 'the table fails its check'
}

objects() {
  find "$WORK/store" -type f | wc -l
}

rm -rf "${WORK:?}/store"
mkdir -p "$WORK/store"
install one
start one "${OPTIONS[@]}"
sql one "CREATE TABLE cold (id INT PRIMARY KEY, a INT, note TEXT, KEY (a)) ENGINE=Terrace
  TERRACE_TIER=OBJECT; INSERT INTO cold SELECT seq, seq % 100, REPEAT(MD5(seq), 15)
  FROM seq_1_to_$ROWS" test
sum=$(sql one "SELECT SUM(seq % 100) FROM seq_1_to_$ROWS" test)
sql one 'OPTIMIZE TABLE cold' test | grep -q OK || fail 'OPTIMIZE TABLE has failed'
there=$(objects)
[ "$there" -gt 0 ] || fail 'the store has no objects'
verify
kill_server one
start one "${OPTIONS[@]}"
verify
echo "$there objects have the rows, also after a kill"

sql one 'ALTER TABLE cold TERRACE_TIER=SSD, ALGORITHM=INSTANT; OPTIMIZE TABLE cold' test >/dev/null
verify
sql one 'ALTER TABLE cold TERRACE_TIER=OBJECT, ALGORITHM=INSTANT' test
sql one 'UPDATE cold SET a = a + 1' test
sum=$((sum + ROWS))
sql one 'OPTIMIZE TABLE cold' test | grep -q OK || fail 'OPTIMIZE TABLE has failed'
verify
sql one 'SELECT table_name FROM information_schema.terrace_levels WHERE level >= 2' test |
  grep -q test/cold || fail 'no level is deep enough'
echo 'moved to the disk, and back to the store'
