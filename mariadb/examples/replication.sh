#!/bin/bash
# A source and a replica on Terrace tables. Both are killed while clients commit, and in the end they
# have the same rows. All transactions change one row, so the replica, which applies several at once, has to
# end those that hold up an earlier one. The position of the replica is kept in a Terrace table, with the data.
set -euo pipefail
. "$(dirname "$0")/servers.sh"

SOURCE=(--log-bin=binlog --sync-binlog=1 --server-id=1 --binlog-format=MIXED
  --bind-address=127.0.0.1 "--port=$PORT")
REPLICA=(--server-id=2 --skip-networking --slave-parallel-threads=4
  --slave-parallel-mode=optimistic --gtid-pos-auto-engines=Terrace --skip-slave-start)

# Commits in the background until the server is gone.
write() {
  local n=0
  while sql source "BEGIN;
      INSERT INTO ledger (client, n) VALUES ($1, $n), ($1, -$n);
      UPDATE ledger SET note = CONCAT('note ', $n) WHERE client = $1 AND n = $n;
      UPDATE totals SET n = n + 1;
      COMMIT" test 2>/dev/null; do
    n=$((n + 1))
  done
}

install source
install replica
start source "${SOURCE[@]}"
sql source "RESET MASTER; CREATE USER 'copy'@'%' IDENTIFIED BY 'copy';
  GRANT REPLICATION SLAVE ON *.* TO 'copy'@'%';
  CREATE TABLE ledger (id INT AUTO_INCREMENT PRIMARY KEY, client INT, n INT, note VARCHAR(50),
    KEY (client, n)) ENGINE=Terrace;
  CREATE TABLE totals (id INT PRIMARY KEY, n INT) ENGINE=Terrace; INSERT INTO totals VALUES (1, 0)" test
start replica "${REPLICA[@]}"
sql replica "CHANGE MASTER TO master_host='127.0.0.1', master_port=$PORT, master_user='copy',
  master_password='copy', master_use_gtid=slave_pos; START SLAVE"

for round in 1 2 3; do
  write 1 &
  write 2 &
  rows=$(sql source 'SELECT COUNT(*) FROM ledger' test)
  await source 'SELECT COUNT(*) FROM ledger' $((rows + 100))
  sql source "ALTER TABLE ledger ADD KEY k$round (note), ALGORITHM=NOCOPY, LOCK=NONE" test
  kill_server replica
  start replica "${REPLICA[@]}"
  sql replica 'START SLAVE'
  rows=$(sql source 'SELECT COUNT(*) FROM ledger' test)
  await source 'SELECT COUNT(*) FROM ledger' $((rows + 100))
  kill_server source
  start source "${SOURCE[@]}"
  position=$(sql source 'SELECT @@gtid_binlog_pos')
  caught_up=$(sql replica "STOP SLAVE; START SLAVE; SELECT MASTER_GTID_WAIT('$position', 60)")
  [ "$caught_up" = 0 ] || fail "the replica is not at $position: $(sql replica 'SHOW SLAVE STATUS')"
  ours=$(sql source 'SELECT COUNT(*) FROM ledger; CHECKSUM TABLE ledger, totals' test)
  theirs=$(sql replica 'SELECT COUNT(*) FROM ledger; CHECKSUM TABLE ledger, totals' test)
  [ "$ours" = "$theirs" ] || fail "the source has $ours, the replica $theirs"
  sql replica 'CHECK TABLE ledger' test | grep -q OK || fail 'the replica fails its check'
  echo "round $round: $(echo "$ours" | head -1) rows on both"
done
sql replica "SELECT engine FROM information_schema.tables WHERE table_schema = 'mysql'
  AND table_name LIKE 'gtid_slave_pos%'" | grep -q Terrace || fail 'the position is elsewhere'
