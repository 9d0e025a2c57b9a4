#!/bin/bash
# A replica that applies several transactions at once shows none before the ones in front of it have
# ended: also not between two statements of those. And a trigger reads on the source what it reads on
# the replica, whatever view the source's transaction has. A function that changes nothing reads the
# view.
set -euo pipefail
. "$(dirname "$0")/servers.sh"

# hold ROW: a client of the replica locks a row, until let_go ROW.
hold() {
  sql replica "BEGIN; SELECT n FROM early WHERE id = $1 FOR UPDATE; DO SLEEP(600$1)" test \
    >/dev/null 2>&1 &
  await replica "SELECT COUNT(*) FROM information_schema.processlist
    WHERE info = 'DO SLEEP(600$1)'" 1
}

let_go() {
  sql replica "KILL $(sql replica "SELECT id FROM information_schema.processlist
    WHERE info = 'DO SLEEP(600$1)'")"
}

install source
install replica
start source --log-bin=binlog --server-id=1 --binlog-format=MIXED --bind-address=127.0.0.1 \
  "--port=$PORT"
sql source "RESET MASTER; CREATE USER 'copy'@'%' IDENTIFIED BY 'copy';
  GRANT REPLICATION SLAVE ON *.* TO 'copy'@'%';
  CREATE TABLE early (id INT PRIMARY KEY, n INT) ENGINE=Terrace;
  CREATE TABLE late (id INT PRIMARY KEY, n INT) ENGINE=Terrace;
  CREATE TABLE made (id INT PRIMARY KEY, n INT) ENGINE=Terrace;
  CREATE TRIGGER fill BEFORE INSERT ON made FOR EACH ROW
    SET NEW.n = (SELECT n FROM late WHERE id = 1);
  CREATE FUNCTION seen() RETURNS INT DETERMINISTIC READS SQL DATA
    RETURN (SELECT n FROM late WHERE id = 1);
  INSERT INTO early VALUES (1, 0), (2, 0); INSERT INTO late VALUES (1, 0)" test
start replica --server-id=2 --skip-networking --slave-parallel-threads=4 \
  --slave-parallel-mode=optimistic --gtid-pos-auto-engines=Terrace --skip-slave-start
sql replica "CHANGE MASTER TO master_host='127.0.0.1', master_port=$PORT, master_user='copy',
  master_password='copy', master_use_gtid=slave_pos; START SLAVE"
await replica "SELECT COUNT(*) FROM information_schema.tables
  WHERE table_schema = 'test' AND table_name = 'late'" 1
await replica 'SELECT COUNT(*) FROM late' 1

hold 1
hold 2
sql source 'BEGIN; UPDATE early SET n = 1 WHERE id = 1; UPDATE early SET n = 1 WHERE id = 2; COMMIT;
  UPDATE late SET n = 1' test
waits="FROM information_schema.processlist WHERE state LIKE 'Waiting for prior transaction to commit%'"
await replica "SELECT COUNT(*) $waits" 1
let_go 1
# The earlier one has its first row, and waits for the second.
await replica "SELECT COUNT(*) FROM information_schema.TERRACE_TRANSACTIONS
  WHERE locks > 0 AND waits_for IS NOT NULL" 1
for _ in $(seq 20); do
  await replica "SELECT (SELECT COUNT(*) $waits) + (SELECT SUM(n) FROM late)" 1
  [ "$(sql replica 'SELECT n FROM late' test)" = 0 ] || fail 'a transaction is shown before an earlier one'
done
let_go 2
await replica 'SELECT SUM(n) FROM early' 2
await replica 'SELECT SUM(n) FROM late' 1
echo 'the replica keeps the order'

said=$(mariadb --no-defaults --user=root --socket="$SOCKETS/source" -N -B test <<END
BEGIN;
SELECT n FROM late;
\! mariadb --no-defaults --user=root --socket="$SOCKETS/source" -e "UPDATE late SET n = 2" test
SELECT seen() FROM late;
INSERT INTO made (id) VALUES (1);
COMMIT;
END
)
[ "$said" = $'1\n1' ] || fail "a function has not read the view: $said"
[ "$(sql source 'SELECT n FROM made' test)" = 2 ] || fail 'a trigger has read an old view'
await replica 'SELECT COUNT(*) FROM made' 1
[ "$(sql replica 'SELECT n FROM made' test)" = 2 ] || fail 'the replica has computed another value'
echo 'triggers read the same on both'
