#!/bin/bash
# A backup while clients commit, with its position in the binary log: what is restored has the rows
# up to that position, and the binary log has the rest.
#
# SET GLOBAL terrace_backup adds a backup to a set. The definitions of tables are files of the server,
# and are copied beside it, while BACKUP STAGE keeps commits and changes of tables waiting. Tables of
# other engines, and users, are not in it.
set -euo pipefail
. "$(dirname "$0")/servers.sh"

OPTIONS=(--log-bin=binlog --sync-binlog=1 --server-id=1 --skip-networking)
TERRACE=${TERRACE:?set TERRACE to the terrace command}

write() {
  local n=0
  while sql live "INSERT INTO ledger (n) VALUES ($n), ($n)" test 2>/dev/null; do
    n=$((n + 1))
  done
}

install live
start live "${OPTIONS[@]}"
sql live 'RESET MASTER; CREATE TABLE ledger (id INT AUTO_INCREMENT PRIMARY KEY, n INT, KEY (n))
  ENGINE=Terrace' test
write &
await live 'SELECT COUNT(*) FROM ledger' 100
rm -rf "${WORK:?}/set" "$WORK/definitions"

# One session holds the locks of the backup. A first backup before them leaves little to copy.
sql live "SET GLOBAL terrace_backup = '$WORK/set'"
# Commits wait behind one that waits for locks, so it waits for a minute at most.
sql live "SET lock_wait_timeout = 60;
  BACKUP STAGE START; BACKUP STAGE FLUSH; BACKUP STAGE BLOCK_DDL;
  BACKUP STAGE BLOCK_COMMIT;
  SELECT @@gtid_binlog_pos;
  SET GLOBAL terrace_backup = '$WORK/set';
  \\! cp -r $WORK/live/data/test $WORK/definitions
  BACKUP STAGE END" >"$WORK/position"
written=$(sql live 'SELECT COUNT(*) FROM ledger' test)
await live 'SELECT COUNT(*) FROM ledger' $((written + 100))
kill_server live
echo "the backup is at $(cat "$WORK/position")"

# New data with the definitions, and what the set has.
install restored
mv "$WORK/definitions" "$WORK/restored/data/test"
"$TERRACE" restore "$WORK/set" "$WORK/restored/data/#terrace.d"
start restored "${OPTIONS[@]}"
sql restored 'CHECK TABLE ledger' test | grep -q OK || fail 'what is restored fails its check'
restored=$(sql restored 'SELECT COUNT(*), COUNT(*) - 2 * COUNT(DISTINCT n) FROM ledger' test)
[ "${restored#*	}" = 0 ] || fail "half a commit was restored: $restored"
echo "restored: ${restored%	*} rows"

# The rest comes from the binary log, from the position on.
mariadb-binlog --no-defaults --start-position="$(cat "$WORK/position")" --disable-log-bin \
  "$WORK"/live/data/binlog.[0-9]* | mariadb --no-defaults --user=root --socket="$SOCKETS/restored"
start live "${OPTIONS[@]}"
ours=$(sql live 'CHECKSUM TABLE ledger' test)
[ "$ours" = "$(sql restored 'CHECKSUM TABLE ledger' test)" ] || fail 'rows differ after the log'
echo "with the binary log: $(sql restored 'SELECT COUNT(*) FROM ledger' test) rows on both"

# mariadb-backup would leave out the tables, and say that all is well. The engine refuses it.
if command -v mariadb-backup >/dev/null; then
  rm -rf "$WORK/foreign"
  if mariadb-backup --no-defaults --backup --user=root --socket="$SOCKETS/live" \
    --target-dir="$WORK/foreign" >"$WORK/foreign.log" 2>&1; then
    fail 'mariadb-backup has left out the tables of Terrace'
  fi
  grep -q 'SET GLOBAL terrace_backup' "$WORK/foreign.log" || fail "$(tail -3 "$WORK/foreign.log")"
  sql live 'FLUSH LOGS; FLUSH ENGINE LOGS'
  echo 'mariadb-backup is refused'
fi
