#!/bin/bash
# UNINSTALL SONAME while a client is in a transaction: the engine goes once that has ended and its
# tables are closed. The server runs on without it. After INSTALL SONAME all rows are there.
set -euo pipefail
. "$(dirname "$0")/servers.sh"

plugins() {
  sql one "SELECT COUNT(*) FROM information_schema.plugins WHERE plugin_library = 'ha_terrace.so'"
}

install one
start one --skip-networking
sql one 'CREATE TABLE t (id INT PRIMARY KEY, a INT, KEY (a)) ENGINE=Terrace;
  INSERT INTO t VALUES (1, 10)' test
for round in 2 3 4; do
  sql one "BEGIN; INSERT INTO t VALUES ($round, 10); DO SLEEP(1); COMMIT" test &
  client=$!
  await one "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'DO SLEEP%'" 1
  sql one "UNINSTALL SONAME 'ha_terrace'"
  [ "$(plugins)" -gt 0 ] || fail 'the engine is gone in mid-transaction'
  wait "$client" || fail 'the transaction has failed'
  sql one 'FLUSH TABLES'
  for _ in $(seq 100); do
    [ "$(plugins)" -gt 0 ] || break
    sleep 0.1
  done
  [ "$(plugins)" = 0 ] || fail 'the engine stays'
  said=$(sql one 'SELECT * FROM t' test 2>&1 || true)
  [[ $said == *"Unknown storage engine 'Terrace'"* ]] || fail "without its engine a table says $said"
  sql one "INSTALL SONAME 'ha_terrace'"
  [ "$(sql one 'SELECT COUNT(*) FROM t FORCE INDEX (a) WHERE a = 10' test)" = "$round" ] ||
    fail 'rows are missing'
done
sql one 'CHECK TABLE t' test | grep -q OK || fail 'the table fails its check'
sql one 'SHUTDOWN'
for _ in $(seq 300); do
  kill -0 "${PIDS[one]}" 2>/dev/null || break
  sleep 0.1
done
grep -q 'Shutdown complete' "$WORK/one/error.log" || fail 'the server has not ended well'
echo 'uninstalled three times, and installed again with all rows'
