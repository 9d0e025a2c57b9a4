#!/bin/bash
# mariadb-dump --single-transaction while clients commit. Its rows are those of its position in the
# binary log: the dump and the rest of the log give what the server has.
set -euo pipefail
. "$(dirname "$0")/servers.sh"

OPTIONS=(--log-bin=binlog --sync-binlog=1 --server-id=1 --skip-networking)

write() {
  local n=0
  while sql live "INSERT INTO ledger (client, n) VALUES ($1, $n), ($1, -$n)" test 2>/dev/null; do
    n=$((n + 1))
  done
}

install live
install copy
start live "${OPTIONS[@]}"
sql live 'RESET MASTER; CREATE TABLE ledger (id INT AUTO_INCREMENT PRIMARY KEY, client INT, n INT,
  KEY (n)) ENGINE=Terrace' test
for client in 1 2 3; do
  write "$client" &
done
await live 'SELECT COUNT(*) FROM ledger' 100
mariadb-dump --no-defaults --user=root --socket="$SOCKETS/live" --single-transaction \
  --master-data=2 --databases test >"$WORK/dump.sql"
written=$(sql live 'SELECT COUNT(*) FROM ledger' test)
await live 'SELECT COUNT(*) FROM ledger' $((written + 100))
kill_server live
wait

place=$(grep -o "MASTER_LOG_FILE='.*" "$WORK/dump.sql" | head -1)
position=${place##*=}
echo "the dump is at ${place%;}"
start copy --skip-networking
mariadb --no-defaults --user=root --socket="$SOCKETS/copy" <"$WORK/dump.sql"
dumped=$(sql copy 'SELECT COUNT(*), COUNT(*) % 2 FROM ledger' test)
[ "${dumped#*	}" = 0 ] || fail "the dump has half a commit: $dumped"
mariadb-binlog --no-defaults --start-position="${position%;}" --disable-log-bin \
  "$WORK"/live/data/binlog.000001 | mariadb --no-defaults --user=root --socket="$SOCKETS/copy"
start live "${OPTIONS[@]}"
ours=$(sql live 'CHECKSUM TABLE ledger' test)
[ "$ours" = "$(sql copy 'CHECKSUM TABLE ledger' test)" ] || fail 'rows differ after the log'
echo "${dumped%	*} rows in the dump, $(sql copy 'SELECT COUNT(*) FROM ledger' test) on both in the end"
