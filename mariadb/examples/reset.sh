#!/bin/bash
# Pools reset connections. What XA has prepared in one is then for any connection to decide. It was
# kept by the one that was reset: each of its statements failed, and RENAME TABLE committed it.
set -euo pipefail
. "$(dirname "$0")/servers.sh"

install reset
start reset --skip-networking
ask() {
  mariadb-test --no-defaults --user=root --socket="$SOCKETS/reset" --database=test
}

for again in reset_connection 'change_user root,,test'; do
  said=$(ask <<EOF
CREATE OR REPLACE TABLE t (id INT PRIMARY KEY) ENGINE=Terrace;
CREATE OR REPLACE TABLE first (id INT PRIMARY KEY) ENGINE=Terrace;
XA START 'x'; INSERT INTO t VALUES (1); XA END 'x'; XA PREPARE 'x';
--$again
USE test;
SELECT CONCAT('seen ', COUNT(*)) FROM t;
BEGIN; INSERT INTO first VALUES (1); COMMIT;
RENAME TABLE first TO second;
SELECT CONCAT('seen ', COUNT(*)) FROM t;
XA ROLLBACK 'x';
SELECT CONCAT('left ', COUNT(*)) FROM t;
XA START 'y'; INSERT INTO t VALUES (2); XA END 'y'; XA PREPARE 'y';
--$again
USE test;
XA COMMIT 'y';
SELECT CONCAT('rows ', COUNT(*)) FROM t;
SELECT CONCAT('renamed ', COUNT(*)) FROM second;
DROP TABLE second;
EOF
  ) || fail "a statement behind $again: $said"
  answers=$(echo "$said" | grep -E '^(seen|left|rows|renamed) [0-9]' | tr '\n' ' ')
  [ "$answers" = 'seen 0 seen 0 left 0 rows 1 renamed 1 ' ] || fail "behind $again: $answers"
  echo "$again: XA's transactions are for any connection"
done
