#!/bin/bash
# A read-only server, as a replica is: a user without the privilege reads, and is told error 1290 for
# what would write. Temporary tables are theirs to write. Terrace answers as InnoDB does.
set -euo pipefail
. "$(dirname "$0")/servers.sh"

# app STATEMENT: as a user that may not write to a read-only server; says errors too.
app() {
  mariadb --no-defaults --user=app --socket="$SOCKETS/readonly" -N -B --force -e "$1" test 2>&1 |
    sed 's/ at line [0-9]*//' || true
}

answers() {
  local engine=$1
  app 'SELECT COUNT(*), SUM(id) FROM kept FORCE INDEX (a) WHERE a > 2'
  app 'SELECT * FROM kept WHERE id = 5'
  app 'INSERT INTO kept VALUES (100, 1)'
  app 'UPDATE kept SET a = 1'
  app 'DELETE FROM kept'
  app 'ALTER TABLE kept ADD COLUMN b INT'
  app 'ALTER TABLE kept ADD KEY b (a, id)'
  app 'TRUNCATE TABLE kept'
  app 'DROP TABLE kept'
  app 'RENAME TABLE kept TO gone'
  app 'OPTIMIZE TABLE kept'
  app 'BEGIN; SELECT id FROM kept WHERE id = 3 FOR UPDATE; COMMIT'
  app 'CHECKSUM TABLE kept'
  app "CREATE TEMPORARY TABLE mine (id INT AUTO_INCREMENT PRIMARY KEY, a INT, KEY (a)) ENGINE=$engine;
    INSERT INTO mine (a) SELECT a FROM kept; UPDATE mine SET a = a + 1;
    SELECT COUNT(*), SUM(a) FROM mine FORCE INDEX (a) WHERE a > 0"
}

install readonly
for engine in Terrace InnoDB; do
  start readonly --skip-networking
  sql readonly "DROP TABLE IF EXISTS kept; CREATE TABLE kept (id INT PRIMARY KEY, a INT, KEY (a))
    ENGINE=$engine; INSERT INTO kept SELECT seq, seq % 7 FROM seq_1_to_50" test
  sql readonly "CREATE USER IF NOT EXISTS app; GRANT ALL ON test.* TO app"
  sql readonly 'SHUTDOWN'
  while kill -0 "${PIDS[readonly]}" 2>/dev/null; do sleep 0.05; done
  start readonly --skip-networking --read-only
  answers "$engine" >"$WORK/$engine"
  sql readonly 'SHUTDOWN'
  while kill -0 "${PIDS[readonly]}" 2>/dev/null; do sleep 0.05; done
done
diff "$WORK/Terrace" "$WORK/InnoDB" || fail 'Terrace answers otherwise than InnoDB'
grep -q 'ERROR 1290' "$WORK/Terrace" || fail 'nothing was refused'
echo "$(wc -l <"$WORK/Terrace") lines as InnoDB"
