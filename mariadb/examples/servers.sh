# Functions of the examples: private servers below $WORK, with the plugin in $PLUGIN.
#
# Each example takes two variables: PLUGIN, the folder of ha_terrace.so, and WORK, a folder for its
# data, which is emptied first.

: "${PLUGIN:?set PLUGIN to the folder of ha_terrace.so, which cargo xtask mariadb builds}"
: "${WORK:?set WORK to a folder for the data}"

declare -A PIDS=()
SOCKETS=$(mktemp -d)
PORT=$((20000 + $$ % 20000))

stop_all() {
  for name in "${!PIDS[@]}"; do
    kill -9 "${PIDS[$name]}" 2>/dev/null || true
  done
  rm -rf "$SOCKETS"
}
trap stop_all EXIT

# install NAME: new data.
install() {
  rm -rf "${WORK:?}/$1"
  mkdir -p "$WORK/$1"
  mariadb-install-db --no-defaults --user=root --auth-root-authentication-method=normal \
    --skip-test-db --datadir="$WORK/$1/data" >/dev/null
}

# start NAME OPTION...: starts a server, and waits until it answers.
start() {
  local name=$1
  shift
  mariadbd --no-defaults --user=root --datadir="$WORK/$name/data" --socket="$SOCKETS/$name" \
    --log-error="$WORK/$name/error.log" --pid-file="$WORK/$name/pid" --plugin-dir="$PLUGIN" \
    --plugin-maturity=unknown --plugin-load-add=ha_terrace --terrace=FORCE \
    --innodb-buffer-pool-size=16M \
    "$@" </dev/null >/dev/null 2>&1 &
  PIDS[$name]=$!
  disown $!
  for _ in $(seq 600); do
    if sql "$name" 'SELECT 1' >/dev/null 2>&1; then
      sql "$name" 'CREATE DATABASE IF NOT EXISTS test' mysql
      return
    fi
    kill -0 "${PIDS[$name]}" 2>/dev/null || break
    sleep 0.1
  done
  echo "$name does not answer: see $WORK/$name/error.log" >&2
  exit 1
}

# kill_server NAME: as a crash would.
kill_server() {
  kill -9 "${PIDS[$1]}"
  while kill -0 "${PIDS[$1]}" 2>/dev/null; do
    sleep 0.05
  done
}

# sql NAME STATEMENTS [DATABASE]
sql() {
  mariadb --no-defaults --user=root --socket="$SOCKETS/$1" -N -B -e "$2" "${3:-mysql}"
}

# await NAME QUERY LEAST: waits until a query gives so much.
await() {
  for _ in $(seq 1200); do
    [ "$(sql "$1" "$2" test)" -lt "$3" ] || return 0
    sleep 0.05
  done
  fail "$1 does not come to $3: $2"
}

fail() {
  echo "FAILED: $1" >&2
  exit 1
}
