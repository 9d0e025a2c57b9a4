#!/bin/bash
# mariadb-dump --single-transaction while clients commit, $DUMPS times. The rows of each dump are
# those of its position in the binary log: a server that has replayed the log up to there has the
# same, row by row. The last dump and the rest of the log give what the server has.
set -euo pipefail
. "$(dirname "$0")/servers.sh"

OPTIONS=(--log-bin=binlog --sync-binlog=1 --server-id=1 --skip-networking)
DUMPS=${DUMPS:-3}

write() {
  local n=0
  while sql live "BEGIN; INSERT INTO ledger (client, n) VALUES ($1, $n), ($1, -$n);
    UPDATE counts SET n = n + 1 WHERE client = $1; COMMIT" test 2>/dev/null; do
    n=$((n + 1))
  done
}

# client NAME: statements from standard input.
client() {
  mariadb --no-defaults --user=root --socket="$SOCKETS/$1"
}

# replay NAME FROM [TO]: the log between two positions.
replay() {
  mariadb-binlog --no-defaults --start-position="$2" ${3:+--stop-position="$3"} \
    --disable-log-bin "$WORK"/live/data/binlog.000001 | client "$1"
}

# rows NAME
rows() {
  sql "$1" 'SELECT * FROM ledger ORDER BY id; SELECT * FROM counts ORDER BY client' test
}

install live
install copy
install replayed
start live "${OPTIONS[@]}"
start copy --skip-networking
start replayed --skip-networking
sql live 'RESET MASTER; CREATE TABLE ledger (id INT AUTO_INCREMENT PRIMARY KEY, client INT, n INT,
  KEY (n)) ENGINE=Terrace; CREATE TABLE counts (client INT PRIMARY KEY, n INT) ENGINE=Terrace;
  INSERT INTO counts VALUES (1, 0), (2, 0), (3, 0)' test
for number in 1 2 3; do
  write "$number" &
done
await live 'SELECT COUNT(*) FROM ledger' 100
before=4
for number in $(seq "$DUMPS"); do
  mariadb-dump --no-defaults --user=root --socket="$SOCKETS/live" --single-transaction \
    --master-data=2 --databases test >"$WORK/dump.sql"
  place=$(grep -o "MASTER_LOG_FILE='.*" "$WORK/dump.sql" | head -1)
  position=${place##*=}
  position=${position%;}
  client copy <"$WORK/dump.sql"
  replay replayed "$before" "$position"
  before=$position
  rows copy >"$WORK/rows.dumped"
  rows replayed >"$WORK/rows.replayed"
  cmp "$WORK/rows.dumped" "$WORK/rows.replayed" || fail "dump $number is not the state of its position"
done
written=$(sql live 'SELECT COUNT(*) FROM ledger' test)
await live 'SELECT COUNT(*) FROM ledger' $((written + 100))
kill_server live
wait

dumped=$(sql copy 'SELECT COUNT(*) FROM ledger' test)
replay copy "$position"
start live "${OPTIONS[@]}"
rows live >"$WORK/ours"
rows copy >"$WORK/theirs"
cmp "$WORK/ours" "$WORK/theirs" || fail 'rows differ after the log'
echo "$DUMPS dumps; $dumped rows in the last, $(sql copy 'SELECT COUNT(*) FROM ledger' test) on both in the end"
