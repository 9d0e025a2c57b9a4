"""Waits: Ctrl-C, time-outs and durability on every path; pending commits; the end of a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import terrace

Call = Callable[[terrace.Database, terrace.Table], object]


@pytest.fixture
def interrupts() -> Iterator[None]:
    """The first SIGINT raises KeyboardInterrupt, also where the tests run as a background job of a
    shell. Later ones do nothing: the test may be at its end by then."""
    raised = threading.Event()

    def interrupt(*_: object) -> None:
        if not raised.is_set():
            raised.set()
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def held(db: terrace.Database) -> Iterator[terrace.Table]:
    """A table whose row a is locked by a transaction."""
    table = db["t"]
    table[b"a"] = b"0"
    holder = db.begin()
    holder.put(table, b"a", b"1")
    yield table
    holder.roll_back()


def optimistic(db: terrace.Database, table: terrace.Table) -> terrace.Transaction:
    txn = db.begin(optimistic=True, lock_wait=60)
    txn.put(table, b"a", b"2")
    return txn


def batch(db: terrace.Database, table: terrace.Table) -> terrace.Batch:
    batch = db.batch()
    batch.put(table, b"a", b"2")
    return batch


def block(db: terrace.Database, table: terrace.Table) -> None:
    with db.batch() as batch:
        batch.put(table, b"a", b"2")


WAITS: dict[str, Call] = {
    "setitem": lambda db, t: t.__setitem__(b"a", b"2"),
    "put": lambda db, t: t.put(b"a", b"2", timeout=60),
    "relaxed put": lambda db, t: t.put(b"a", b"2", durability="relaxed"),
    "delete": lambda db, t: t.delete(b"a", timeout=60),
    "delitem": lambda db, t: t.__delitem__(b"a"),
    "pop": lambda db, t: t.pop(b"a"),
    "pop_first": lambda db, t: t.pop_first(),
    "pop_last": lambda db, t: t.pop_last(),
    "update": lambda db, t: t.update({b"a": b"2", b"b": b"3"}),
    "insert_if_absent": lambda db, t: t.insert_if_absent(b"a", b"2"),
    "compare_and_set": lambda db, t: t.compare_and_set(b"a", b"0", b"2"),
    "delete_range": lambda db, t: t.delete_range(prefix=b"a"),
    "del slice": lambda db, t: t.__delitem__(slice(b"a", b"b")),
    "batch": lambda db, t: batch(db, t).commit(),
    "relaxed batch": lambda db, t: batch(db, t).commit(durability="relaxed", timeout=60),
    "batch block": block,
    "enqueue": lambda db, t: db.enqueue(batch(db, t)),
    "transaction": lambda db, t: db.run(lambda txn: txn.put(t, b"a", b"2"), lock_wait=60),
    "endless": lambda db, t: db.run(lambda txn: txn.put(t, b"a", b"2"), lock_wait="endless"),
    "range": lambda db, t: db.begin(lock_wait=60).items(t, lock="for_update"),
    "optimistic commit": lambda db, t: optimistic(db, t).commit(),
    "optimistic enqueue": lambda db, t: optimistic(db, t).enqueue(),
    "optimistic prepare": lambda db, t: optimistic(db, t).prepare(b"p"),
}


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("name", WAITS)
def test_ctrl_c_ends_each_wait_and_nothing_is_written(
    db: terrace.Database, held: terrace.Table, name: str
) -> None:
    """Bug: `pop`, `update`, `delete_range`, batches, relaxed puts and commits ignored Ctrl-C for
    the whole of their wait. Cause: only some calls waited in slices. Fix: all go one way."""
    done = threading.Event()

    def interrupt() -> None:
        time.sleep(0.1)
        while not done.wait(0.5):
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            thread.start()
            WAITS[name](db, held)
    finally:
        done.set()
        thread.join(60)
    assert list(held.items()) == [(b"a", b"0")] and db.list_prepared() == []


@pytest.mark.parametrize("name", WAITS)
def test_each_wait_ends_with_its_lock(db: terrace.Database, name: str) -> None:
    """A wait in several slices is one call: it goes on until the row is free."""
    table = db["t"]
    table[b"a"] = b"0"
    holder, raised = db.begin(), list[BaseException]()
    holder.put(table, b"a", b"1")
    entered = threading.Event()

    def work() -> None:
        entered.set()
        try:
            WAITS[name](db, table)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    entered.wait()
    thread.join(0.5)
    assert thread.is_alive(), "it waits"
    holder.roll_back()
    thread.join(60)
    assert not thread.is_alive() and raised == []


@pytest.mark.parametrize("durability", ["durable", "relaxed"])
def test_timeouts_are_those_that_were_asked_for(
    db: terrace.Database, held: terrace.Table, durability: str
) -> None:
    calls: list[Callable[..., object]] = [
        lambda **how: held.put(b"a", b"2", **how), lambda **how: held.delete(b"a", **how),
        lambda **how: batch(db, held).commit(**how),
    ]
    for call in calls:
        begin = time.monotonic()
        with pytest.raises(terrace.TimeoutError, match="waited"):
            call(durability=durability, timeout=0.3)
        assert time.monotonic() - begin >= 0.3
    assert held[b"a"] == b"0"


@pytest.mark.parametrize("durability", ["durable", "relaxed"])
def test_a_longer_timeout_outlasts_shorter_ones(db: terrace.Database, durability: str) -> None:
    """Bug: a commit of a batch dropped its `timeout`. Each call here has one that is shorter than
    what is usual, and one that is longer; all begin to wait before the short ones have ended."""
    table = db["t"]
    table[b"a"] = b"0"
    holder, ended = db.begin(), list[object]()
    holder.put(table, b"a", b"1")
    calls: list[Callable[..., object]] = [
        lambda **how: table.put(b"a", b"2", **how), lambda **how: table.delete(b"a", **how),
        lambda **how: batch(db, table).commit(**how),
    ]

    def wait(call: Callable[..., object]) -> None:
        try:
            ended.append(call(durability=durability, timeout=3600))
        except terrace.Error as error:
            ended.append(error)

    patient = [threading.Thread(target=wait, args=(call,)) for call in calls]
    for thread in patient:
        thread.start()
    for call in calls:
        with pytest.raises(terrace.TimeoutError):
            call(durability=durability, timeout=0.3)
    assert ended == [], "an hour is longer"
    holder.roll_back()
    for thread in patient:
        thread.join(60)
    assert ended == [None] * 3


def test_remote_durability_reaches_the_engine_on_every_path(db: terrace.Database) -> None:
    """Bug: `durability="remote"` was dropped by puts, merges and batches with a time-out, and they
    returned before the shared store had the commit. Cause: these paths asked for `durable`. Fix:
    one function commits all batches. A database that is not shared refuses `remote`, so each
    path that passes it on raises."""
    table, counters = db["t"], db.create_table("c", merge_operator="counter")
    one = (1).to_bytes(8, "big")
    calls: list[Callable[..., object]] = [
        lambda **how: table.put(b"a", b"", **how), lambda **how: table.delete(b"a", **how),
        lambda **how: counters.merge(b"a", one, **how),
        lambda **how: batch(db, table).commit(**how),
    ]
    for call in calls:
        for how in ({}, {"timeout": 5}):
            with pytest.raises(terrace.InvalidError, match="shared"):
                call(durability="remote", **how)
    with pytest.raises(terrace.InvalidError, match="shared"):
        table.update({b"a": b""}, durability="remote")
    with pytest.raises(terrace.InvalidError, match="shared"):
        db.enqueue(batch(db, table), durability="remote")
    for end in (terrace.Transaction.commit, terrace.Transaction.enqueue):
        txn = db.begin(durability="remote")
        txn.put(table, b"a", b"")
        with pytest.raises(terrace.InvalidError, match="shared"):
            end(txn)
    assert list(table) == [] and list(counters) == []


def test_an_optimistic_commit_waits_as_long_as_lock_wait_says(
    db: terrace.Database, held: terrace.Table
) -> None:
    """Bug: the commit of an optimistic transaction waited 0.2 s for a lock, whatever `lock_wait`
    said. Cause: the engine had a slice of the wait, and the commit was not tried again. Fix: a
    commit that has waited for a slice goes on.

    Bug: it waited 10 s where less was asked for, and tried again without a pause. Cause: an end had
    the patience of a write, and each try waited for the lock anew. Fix: the end of an optimistic
    one has the time that its locks may take."""
    txn = db.begin(optimistic=True, lock_wait=0.7)
    txn.put(held, b"a", b"2")
    begin = time.monotonic()
    with pytest.raises(terrace.TimeoutError):
        txn.commit()
    assert 0.7 <= time.monotonic() - begin < 5
    with pytest.raises(terrace.ClosedError):
        txn.put(held, b"a", b"3")
    txn = db.begin(optimistic=True, lock_wait="no_wait")
    txn.put(held, b"a", b"2")
    begin = time.monotonic()
    with pytest.raises(terrace.TimeoutError, match="locked by"):
        txn.commit()
    assert time.monotonic() - begin < 5


def test_all_who_wait_for_a_commit_get_its_outcome(db: terrace.Database) -> None:
    """Bug: a second thread in `PendingCommit.wait()` returned before the commit was durable.
    Cause: the first one had taken the commit. Fix: it stays until its outcome is known."""
    table = db["t"]
    for number in range(50):
        changes = db.batch()
        for row in range(40):
            changes.put(table, b"%d-%d" % (number, row), bytes(1000))
        pending, early = db.enqueue(changes), []
        barrier = threading.Barrier(3)

        def wait() -> None:
            barrier.wait()
            pending.wait()
            durable = db.stats()["commit"]["durable"]
            if durable < pending.number:
                early.append(durable)

        threads = [threading.Thread(target=wait) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert early == []
        pending.wait(timeout=0)


def test_a_pending_commit_that_is_dropped_gives_its_locks_back(db: terrace.Database) -> None:
    """Bug: to drop a pending commit waited for the device with the interpreter's lock held. Fix:
    the engine waits for it, and gives its row locks back."""
    table = db["t"]
    with db.begin() as txn:
        txn.put(table, b"a", b"0")
    for number in range(100):
        changes = db.batch()
        changes.put(table, b"a", b"%d" % number)
        db.enqueue(changes)
        table.put(b"a", b"x", timeout=60)
    txn = db.begin()
    txn.put(table, b"a", b"last")
    txn.enqueue()
    assert table[b"a"] in (b"x", b"last")


@pytest.mark.parametrize("limit", [None, 100])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("how", ["beginning", "sought", "given"])
def test_an_iterator_of_a_transaction_keeps_its_place(
    db: terrace.Database, limit: int | None, reverse: bool, how: str
) -> None:
    """Bug: an iterator of a transaction lost its first rows when another thread wrote in it before
    the first row was given. Cause: it forgot what it had read ahead, and went back only to a row
    that it had given. Fix: it goes back to its beginning, or to where it was sought."""
    table, other = db["t"], db["u"]
    table.update({b"%05d" % n: b"" for n in range(100)})
    keys = [b"%05d" % n for n in range(100)]
    if reverse:
        keys.reverse()
    txn, stop = db.begin(), threading.Event()

    def write() -> None:
        while not stop.is_set():
            txn.put(other, b"k", b"")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(60):
            rows = txn.keys(table, reverse=reverse, limit=limit)
            if how == "sought":
                rows.seek(keys[10])
                assert list(rows) == keys[10:]
            elif how == "given":
                assert next(rows) == keys[0]
                assert list(rows) == keys[1:]
            else:
                assert list(rows) == keys
    finally:
        stop.set()
        thread.join(60)
    txn.roll_back()


def test_an_iterator_of_a_transaction_shows_rows_that_are_written_before_its_first_one(
    db: terrace.Database,
) -> None:
    table = db["t"]
    table.update({b"b": b"", b"d": b""})
    for reverse in (False, True):
        txn = db.begin()
        rows = txn.keys(table, reverse=reverse)
        txn.put(table, b"a", b"")
        txn.put(table, b"e", b"")
        txn.delete(table, b"d")
        assert list(rows) == sorted([b"a", b"b", b"e"], reverse=reverse)
        txn.roll_back()


CALLS = [
    "t.put(b'a', b'2')", "t.put(b'a', b'2', durability='relaxed')", "t.get(b'a')", "list(t)",
    "db.stats()", "db.snapshot().close()", "db.run(lambda txn: txn.get(t, b'a'))",
    "db.enqueue(db.batch()).wait()", "t.pop(b'a', None)", "db.verify()",
    "t.bulk_load((b'a', b'2') for _ in slow())", "t.update((b'a', b'2') for _ in slow())",
    "t.multi_get(b'a' for _ in slow())",
]


@pytest.mark.parametrize("call", CALLS)
def test_a_daemon_thread_in_a_call_does_not_abort_the_process(path: Path, call: str) -> None:
    """Bug: the process ended with SIGABRT where a daemon thread was in a call. Cause: the
    interpreter unwinds a thread that asks for its lock at the end, through frames of Rust. Fix:
    such a thread stops before it asks. The same where a call takes objects out of a generator."""
    program = (
        "import sys, threading, time, terrace\n"
        "db = terrace.open(sys.argv[1], pm_size='4MiB')\n"
        "t, started = db['t'], threading.Semaphore(0)\n"
        "t[b'a'] = b'1'\n"
        "def slow():\n"
        "    started.release()\n"
        "    while True: yield time.sleep(0.001)\n"
        "def work():\n"
        f"    {call}\n"
        "    started.release()\n"
        f"    while True: {call}\n"
        "for _ in range(2): threading.Thread(target=work, daemon=True).start()\n"
        "for _ in range(2): started.acquire()\n"
    )
    command = [sys.executable, "-c", program, str(path)]
    for _ in range(3):
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr


def test_a_callback_of_the_end_may_wait_for_a_thread_that_calls(path: Path) -> None:
    """Bug: a process did not end where an `atexit` callback waited for a thread that used the
    database. Cause: threads were stopped before the callbacks that were registered before the
    import. Fix: they are stopped behind all of them."""
    program = (
        "import atexit, queue, sys, threading\n"
        "keys = queue.Queue()\n"
        "def work():\n"
        "    for key in iter(keys.get, None): table[key] = b'1'\n"
        "thread = threading.Thread(target=work, daemon=True)\n"
        "thread.start()\n"
        "def end():\n"
        "    keys.put(b'a')\n"
        "    keys.put(None)\n"
        "    thread.join()\n"
        "atexit.register(end)\n"
        "import terrace\n"
        "table = terrace.open(sys.argv[1], pm_size='4MiB')['t']\n"
    )
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    with terrace.open(path) as db:
        assert db["t"][b"a"] == b"1"


def test_a_callback_that_runs_for_ever_does_not_keep_the_process(path: Path) -> None:
    """Bug: a process did not end while a daemon thread was in a callback that never returned.
    Cause: the end waited for such a thread without a bound. Fix: it waits for ten seconds."""
    program = (
        "import sys, threading, terrace\n"
        "db = terrace.open(sys.argv[1], pm_size='4MiB')\n"
        "started, never = threading.Event(), threading.Event()\n"
        "def progress(_):\n"
        "    started.set()\n"
        "    never.wait()\n"
        "db['t'][b'a'] = b'1'\n"
        "work = lambda: db.backup(sys.argv[1] + '-backup', progress=progress)\n"
        "threading.Thread(target=work, daemon=True).start()\n"
        "assert started.wait(60)\n"
    )
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


def test_a_kill_ends_a_transaction_whose_call_waits(
    db: terrace.Database, held: terrace.Table
) -> None:
    """A kill needs no lock of the interpreter while the engine ends the call that waits."""
    txn, raised = db.begin(lock_wait="endless"), list[BaseException]()

    def work() -> None:
        try:
            txn.put(held, b"a", b"2")
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(0.5)
    assert thread.is_alive(), "it waits"
    assert db.kill_transaction(txn.id)
    thread.join(60)
    assert not thread.is_alive() and [type(error) for error in raised] != []
    assert isinstance(raised[0], terrace.Error) and held[b"a"] == b"0"


CHILD_DROPS = {
    "snapshot": "db.snapshot()",
    "transaction": "db.begin(durability='relaxed')",
    "rows": "iter(t.items())",
    "pending": "db.enqueue(db.batch(), durability='relaxed')",
    "table": "db['t']",
    "batch": "db.batch()",
}
BUSY = {
    "snapshot": "db.snapshot().close()",
    "transaction": "db.run(lambda txn: txn.put(t, b'%d' % n, b''), durability='relaxed')",
    "rows": "list(t.items(limit=30))",
    "pending": "db.enqueue(db.batch(), durability='relaxed').wait()",
    "table": "t.put(b'%d' % n, b'', durability='relaxed')",
    "batch": "t.update({b'%d' % n: b''}, durability='relaxed')",
}


@pytest.mark.parametrize("what", CHILD_DROPS)
def test_a_forked_child_drops_objects_while_threads_of_its_parent_are_busy(
    path: Path, what: str
) -> None:
    """Bug: a forked child that dropped a snapshot, a transaction or a pending commit could hang.
    Cause: a thread of the parent held a lock of the engine at the fork, and the child has no such
    thread. Fix: in a forked child nothing that others share is touched."""
    program = (
        "import os, signal, sys, threading, terrace\n"
        "db = terrace.open(sys.argv[1], pm_size='4MiB')\n"
        "t, stop = db['t'], threading.Event()\n"
        "t.update({b'%05d' % n: b'' for n in range(100)})\n"
        "def work(n):\n"
        "    while not stop.is_set():\n"
        f"        {BUSY[what]}\n"
        "threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]\n"
        "for thread in threads: thread.start()\n"
        "bad = []\n"
        "for _ in range(60):\n"
        f"    kept = {CHILD_DROPS[what]}\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        signal.signal(signal.SIGALRM, signal.SIG_DFL)\n"
        "        signal.alarm(60)\n"
        "        del kept\n"
        "        os._exit(0)\n"
        "    status = os.waitpid(child, 0)[1]\n"
        "    if status: bad.append(status); break\n"
        "stop.set()\n"
        "for thread in threads: thread.join()\n"
        "assert not bad, bad\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


def test_a_signal_handler_may_use_the_database_while_a_call_waits(
    db: terrace.Database, held: terrace.Table
) -> None:
    """A handler of Python runs between two slices, outside of the engine: it may call and close."""
    seen: list[bytes] = []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(held[b"a"]))
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(terrace.TimeoutError):
            held.put(b"a", b"2", timeout=0.8)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert seen == [b"0"]
