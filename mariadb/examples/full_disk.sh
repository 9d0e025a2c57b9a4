#!/bin/bash
# A disk that fills up: a client that inserts is told error 1114, also where the commit finds no space.
# Nothing that was acknowledged is lost. Reads and deletes go on, and what deletes free is used again.
# A server that is killed on the full disk starts on it.
#
# The data lie on a file system in memory. It takes root, because it mounts.
set -euo pipefail
. "$(dirname "$0")/servers.sh"

if [ "$(id -u)" != 0 ]; then
  echo 'skipped: it mounts a file system, so it has to run as root'
  exit 0
fi

SMALL=$WORK/small
mkdir -p "$SMALL"
umount "$SMALL" 2>/dev/null || true
mount -t tmpfs -o size=48m terrace-small "$SMALL"
# The servers are on their way out.
trap 'stop_all; umount --lazy "$SMALL"' EXIT
OPTIONS=(--terrace-data-dir="$SMALL/db" --terrace-pm-size=8MiB --terrace-compression=none
  --skip-networking)

# Inserts until an error; says how many transactions were acknowledged, and the error.
fill() {
  local n=$1
  while :; do
    if ! sql full "INSERT INTO ledger (n, note) SELECT $n, REPEAT(MD5(RAND()), 60) FROM seq_1_to_200" \
      test 2>"$WORK/error"; then
      echo "$n" >"$WORK/acknowledged"
      return
    fi
    n=$((n + 1))
  done
}

# verify FROM: all transactions from FROM to the last acknowledged one are whole.
verify() {
  local last wrong
  last=$(cat "$WORK/acknowledged")
  wrong=$(sql full "SELECT $last - $1 - COUNT(*) FROM (SELECT n FROM ledger WHERE n >= $1
    GROUP BY n HAVING COUNT(*) = 200) whole" test)
  [ "$wrong" = 0 ] || fail "$wrong of $((last - $1)) acknowledged transactions are not whole"
  [ "$(sql full "SELECT COUNT(*) FROM ledger WHERE n >= $last" test)" = 0 ] ||
    fail 'a transaction that failed has left rows'
  sql full 'CHECK TABLE ledger' test | grep -q OK || fail 'the table fails its check'
}

# The last error names the table, by InnoDB's number.
is_full() {
  grep -q "ERROR 1114 .* The table 'ledger' is full" "$WORK/error" ||
    fail "the error is $(cat "$WORK/error")"
}

install full
start full "${OPTIONS[@]}"
sql full 'CREATE TABLE ledger (id INT AUTO_INCREMENT PRIMARY KEY, n INT, note TEXT, KEY (n))
  ENGINE=Terrace' test
fill 0
is_full
verify 0
full=$(cat "$WORK/acknowledged")
echo "full after $full transactions: $(cat "$WORK/error")"

kill_server full
start full "${OPTIONS[@]}"
verify 0
echo 'killed and started on the full disk: nothing is lost'

half=$((full / 2))
for ((n = 0; n < half; n++)); do
  # The reserve for deletes is small here: one may wait until the background has made room.
  for attempt in $(seq 100); do
    sql full "DELETE FROM ledger WHERE n = $n" test 2>/dev/null && break
    [ "$attempt" -lt 100 ] || fail 'a delete was refused'
    sleep 0.1
  done
done
# The background gives the space back.
for _ in $(seq 300); do
  if sql full "INSERT INTO ledger (n, note) SELECT $full, REPEAT(MD5(RAND()), 60) FROM seq_1_to_200" \
    test 2>"$WORK/error"; then
    echo $((full + 1)) >"$WORK/acknowledged"
    break
  fi
  sleep 0.1
done
[ "$(cat "$WORK/acknowledged")" -gt "$full" ] || fail "no space came back: $(cat "$WORK/error")"
verify "$half"
fill $((full + 1))
verify "$half"
echo "after deletes: $(($(cat "$WORK/acknowledged") - full)) more transactions"

# Small rows stay in memory until their commit.
n=$(cat "$WORK/acknowledged")
while sql full "BEGIN; INSERT INTO ledger (n, note) SELECT $n, '' FROM seq_1_to_200; COMMIT" test \
  2>"$WORK/error"; do
  n=$((n + 1))
done
echo "$n" >"$WORK/acknowledged"
is_full
verify "$half"
# With the binary log it is the prepare that fails, before the log has the transaction.
kill_server full
start full "${OPTIONS[@]}" --log-bin=binlog --sync-binlog=1 --server-id=1
fill "$n"
is_full
last=$(cat "$WORK/acknowledged")
before=$(sql full 'SHOW MASTER STATUS' test)
fill "$last"
is_full
[ "$(cat "$WORK/acknowledged")" != "$last" ] ||
  [ "$(sql full 'SHOW MASTER STATUS' test)" = "$before" ] ||
  fail 'the binary log has a transaction that failed'
verify "$half"
sql full 'TRUNCATE ledger' test
fill 0
[ "$(cat "$WORK/acknowledged")" -gt 0 ] || fail 'TRUNCATE has freed nothing'
verify 0
echo 'commits in small pieces, and with the binary log: error 1114'
