#!/bin/bash
# One table over two Terrace servers, by Spider: transfers between them are all there or not at all,
# also those that a kill of one server has cut.
#
# Spider commits in two phases, by XA. What a killed server has prepared is there after its start, and
# the log of Spider (mysql.spider_xa) says whether it is to be committed.
set -euo pipefail
. "$(dirname "$0")/servers.sh"

SPIDER=/usr/lib/mysql/plugin/ha_spider.so
if [ ! -f "$SPIDER" ]; then
  echo "SKIPPED: there is no $SPIDER: install mariadb-plugin-spider"
  exit 0
fi
[ -e "$PLUGIN/ha_spider.so" ] || ln -s "$SPIDER" "$PLUGIN/ha_spider.so"

ACCOUNTS=100
declare -A PORTS=([one]=$PORT [two]=$((PORT + 1)))
# Spider tells the members of a transaction apart by their hosts.
declare -A HOSTS=([one]=127.0.0.1 [two]=127.0.0.2)

start_shard() {
  start "$1" "--bind-address=${HOSTS[$1]}" "--port=${PORTS[$1]}" --terrace-lock-wait-timeout=2
}

# Moves one from an account to another one, which lies on the other server as often as not.
transfer() {
  local n=$1
  while [ ! -e "$WORK/over" ]; do
    n=$(((n * 7919 + 13) % 9973))
    sql spider "BEGIN;
      UPDATE account SET amount = amount - 1 WHERE id = $((n % ACCOUNTS));
      UPDATE account SET amount = amount + 1 WHERE id = $((n * 31 % ACCOUNTS));
      COMMIT" test 2>/dev/null && echo "$n" >>"$WORK/committed" || true
  done
}

# Commits or rolls back what a shard has prepared, as the log of Spider says.
resolve() {
  local id
  while IFS=$'\t' read -r format gtrid_length bqual_length data; do
    gtrid=${data:0:$gtrid_length}
    bqual=${data:$gtrid_length:$bqual_length}
    id="X'$(printf %s "$gtrid" | od -An -tx1 | tr -d ' \n')',X'$(printf %s "$bqual" | od -An -tx1 | tr -d ' \n')',$format"
    verdict=$(sql spider "SELECT COUNT(*) FROM mysql.spider_xa
      WHERE data LIKE CONCAT('$gtrid', '%') AND status IN ('COMMIT', 'COMMITTED')")
    if [ "$verdict" -gt 0 ]; then
      sql "$1" "XA COMMIT $id"
    else
      sql "$1" "XA ROLLBACK $id"
    fi
    resolved=$((resolved + 1))
  done < <(sql "$1" 'XA RECOVER')
}

for shard in one two; do
  install $shard
  start_shard $shard
  sql $shard "CREATE USER 'spider'@'%' IDENTIFIED BY 'spider'; GRANT ALL ON *.* TO 'spider'@'%'"
  sql $shard 'CREATE TABLE account (id INT PRIMARY KEY, amount INT) ENGINE=Terrace' test
done
install spider
start spider --skip-networking --plugin-load-add=ha_spider --spider-internal-xa=1
for shard in one two; do
  sql spider "CREATE SERVER $shard FOREIGN DATA WRAPPER mysql
    OPTIONS (HOST '${HOSTS[$shard]}', PORT ${PORTS[$shard]}, DATABASE 'test', USER 'spider',
      PASSWORD 'spider')"
done
sql spider "CREATE TABLE account (id INT PRIMARY KEY, amount INT) ENGINE=SPIDER
  COMMENT='wrapper \"mysql\", table \"account\"'
  PARTITION BY KEY (id) (PARTITION p1 COMMENT='srv \"one\"', PARTITION p2 COMMENT='srv \"two\"');
  INSERT INTO account SELECT seq, 1000 FROM seq_0_to_$((ACCOUNTS - 1))" test

rm -f "$WORK/over"
: >"$WORK/committed"
for n in 1 2 3; do
  transfer $n &
done
resolved=0
for round in 1 2 3; do
  before=$(wc -l <"$WORK/committed")
  for _ in $(seq 1200); do
    [ "$(wc -l <"$WORK/committed")" -lt $((before + 50)) ] || break
    sleep 0.05
  done
  kill_server two
  start_shard two
done
touch "$WORK/over"
wait
sql spider 'FLUSH TABLES'
resolve one
resolve two
sum=$(sql spider 'SELECT SUM(amount) FROM account' test)
[ "$sum" = $((ACCOUNTS * 1000)) ] || fail "the accounts have $sum"
for shard in one two; do
  sql $shard 'CHECK TABLE account' test | grep -q OK || fail "$shard fails its check"
done
committed=$(wc -l <"$WORK/committed")
[ "$committed" -ge 150 ] || fail "$committed transfers were committed"
echo "$committed transfers, 3 kills, $resolved prepared transactions resolved, the accounts have $sum"
