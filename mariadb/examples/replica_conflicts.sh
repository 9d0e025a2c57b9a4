#!/bin/bash
# A replica that applies transactions optimistically, several at once, while clients of the source
# change the same rows for $SECONDS_OF_LOAD seconds. It retries what conflicts, does not stop, and
# has the source's rows in the end.
set -euo pipefail
. "$(dirname "$0")/servers.sh"

SECONDS_OF_LOAD=${SECONDS_OF_LOAD:-10}

# transfer NUMBER: moves amounts between a few rows until it is told to stop.
transfer() {
  local n=0
  while [ ! -e "$WORK/stop" ]; do
    n=$((n + 1))
    local from=$((n * 7 % 5)) to=$(((n * 3 + $1) % 5))
    sql source "BEGIN; UPDATE accounts SET amount = amount - 1, changes = changes + 1 WHERE id = $from;
      UPDATE accounts SET amount = amount + 1, changes = changes + 1 WHERE id = $to;
      INSERT INTO moves (client, n) VALUES ($1, $n); DELETE FROM moves WHERE n < $n - 20 LIMIT 3;
      COMMIT" test >/dev/null 2>&1 || true
  done
}

install source
install replica
start source --log-bin=binlog --server-id=1 --binlog-format="${FORMAT:-ROW}" \
  --bind-address=127.0.0.1 "--port=$PORT"
sql source "RESET MASTER; CREATE USER 'copy'@'%' IDENTIFIED BY 'copy';
  GRANT REPLICATION SLAVE ON *.* TO 'copy'@'%';
  CREATE TABLE accounts (id INT PRIMARY KEY, amount INT, changes INT, KEY (amount)) ENGINE=Terrace;
  CREATE TABLE moves (id INT AUTO_INCREMENT PRIMARY KEY, client INT, n INT, KEY (n)) ENGINE=Terrace;
  INSERT INTO accounts SELECT seq, 100, 0 FROM seq_0_to_4" test
start replica --server-id=2 --skip-networking --slave-parallel-threads=4 \
  --slave-parallel-mode=optimistic --gtid-pos-auto-engines=Terrace --skip-slave-start
sql replica "CHANGE MASTER TO master_host='127.0.0.1', master_port=$PORT, master_user='copy',
  master_password='copy', master_use_gtid=slave_pos; START SLAVE"
rm -f "$WORK/stop"
for number in 1 2 3 4; do
  transfer "$number" &
done
end=$((SECONDS + SECONDS_OF_LOAD))
while [ "$SECONDS" -lt "$end" ]; do
  [ "$(sql replica "SHOW GLOBAL STATUS LIKE 'Slave_running'" | cut -f2)" = ON ] ||
    fail "the replica stopped: $(sql replica 'SHOW SLAVE STATUS\G')"
  sleep 0.2
done
touch "$WORK/stop"
wait
changes=$(sql source 'SELECT SUM(changes) FROM accounts' test)
await replica 'SELECT SUM(changes) FROM accounts' "$changes"
for table in accounts moves; do
  ours=$(sql source "CHECKSUM TABLE $table" test)
  [ "$ours" = "$(sql replica "CHECKSUM TABLE $table" test)" ] || fail "$table differs"
done
retried=$(sql replica "SHOW GLOBAL STATUS LIKE 'Slave_retried_transactions'" | cut -f2)
[ "$(sql replica 'SELECT SUM(amount) FROM accounts' test)" = 500 ] || fail 'an amount was lost'
echo "$changes changes of 5 rows, $retried transactions were retried, and both have the same"
