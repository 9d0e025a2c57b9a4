"""Transactions: what they see, locks, retries, savepoints, two phases."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

import terrace


def test_a_block_commits_and_one_that_raises_rolls_back(db: terrace.Database) -> None:
    table = db["t"]
    with db.begin() as txn:
        txn.put(table, b"a", b"1")
        assert txn.get(table, b"a") == b"1" and table.get(b"a") is None
    assert table[b"a"] == b"1"
    with pytest.raises(ZeroDivisionError), db.begin() as txn:
        txn.put(table, b"a", b"2")
        raise ZeroDivisionError
    assert table[b"a"] == b"1"
    with pytest.raises(terrace.ClosedError, match="has ended"):
        txn.get(table, b"a")


def test_one_that_ended_inside_of_its_block_is_left_alone(db: terrace.Database) -> None:
    table = db["t"]
    with db.begin() as txn:
        txn.put(table, b"a", b"1")
        txn.commit()
    with db.begin() as txn:
        txn.put(table, b"b", b"1")
        txn.roll_back()
    assert list(table) == [b"a"]


def test_a_conflict_is_run_again(db: terrace.Database) -> None:
    table = db["t"]
    table[b"n"] = b"0"
    seen: list[bytes] = []
    for attempt in db.transactions():
        with attempt as txn:
            value = txn.get(table, b"n")
            assert value is not None
            if not seen:
                table[b"n"] = b"7"
            seen.append(value)
            txn.put(table, b"n", value + b"!")
    assert seen == [b"0", b"7"] and table[b"n"] == b"7!" and attempt.number == 2


def test_attempts_come_to_an_end(db: terrace.Database) -> None:
    table = db["t"]
    runs = []
    with pytest.raises(terrace.ConflictError) as raised:
        for attempt in db.transactions(attempts=3):
            with attempt as txn:
                runs.append(txn.id)
                txn.get(table, b"n")
                table[b"n"] = b"%d" % len(runs)
                txn.put(table, b"n", b"mine")
    assert len(runs) == 3 and isinstance(raised.value, terrace.RetryableError)
    assert table[b"n"] == b"3"


def test_another_error_is_not_run_again(db: terrace.Database) -> None:
    runs = 0
    with pytest.raises(ZeroDivisionError):
        for attempt in db.transactions():
            with attempt:
                runs += 1
                raise ZeroDivisionError
    assert runs == 1
    with pytest.raises(terrace.InvalidError, match="with attempt as txn"):
        for _ in db.transactions():
            pass


def test_a_function_runs_in_a_transaction(db: terrace.Database) -> None:
    table = db["t"]

    def count(txn: terrace.Transaction) -> int:
        count = int(txn.get_for_update(table, b"n") or b"0") + 1
        txn.put(table, b"n", b"%d" % count)
        return count

    assert db.run(count) == 1
    assert db.run(count, isolation="serializable") == 2

    @db.transactional
    def add(txn: terrace.Transaction, by: int, *, times: int = 1) -> int:
        """Adds."""
        total = int(txn.get_for_update(table, b"n") or b"0") + by * times
        txn.put(table, b"n", b"%d" % total)
        return total

    assert add(5) == 7 and add(5, times=2) == 17
    assert add.__name__ == "add" and add.__doc__ == "Adds."

    @db.transactional(isolation="read_committed")
    def read(txn: terrace.Transaction) -> bytes | None:
        return txn.get(table, b"n")

    assert read() == b"17"


def test_counters_of_threads_lose_nothing(db: terrace.Database) -> None:
    table = db["t"]
    table[b"n"] = b"0"

    def work() -> None:
        for _ in range(25):
            for attempt in db.transactions(optimistic=True, isolation="serializable"):
                with attempt as txn:
                    n = int(txn.get(table, b"n") or b"0")
                    txn.put(table, b"n", b"%d" % (n + 1))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert table[b"n"] == b"100"


def test_levels_see_what_they_say(db: terrace.Database) -> None:
    table = db["t"]
    table[b"a"] = b"1"
    with db.begin(isolation="snapshot") as fixed, db.begin(isolation="read_committed") as moving:
        assert fixed.get(table, b"a") == moving.get(table, b"a") == b"1"
        table[b"a"] = b"2"
        assert fixed.get(table, b"a") == b"1" and moving.get(table, b"a") == b"2"
    with pytest.raises(terrace.InvalidError, match="serializable"):
        db.begin(isolation="chaos")  # type: ignore[arg-type]
    with pytest.raises(terrace.InvalidError):
        db.begin(isolation="read_committed", optimistic=True)


def test_a_locked_row_times_out(db: terrace.Database) -> None:
    table = db["t"]
    with db.begin() as holder:
        holder.put(table, b"a", b"1")
        with db.begin(lock_wait="no_wait") as txn:
            begin = time.monotonic()
            with pytest.raises(TimeoutError):
                txn.get_for_update(table, b"a")
            assert time.monotonic() - begin < 5
            txn.set_lock_wait(0.5)
            begin = time.monotonic()
            with pytest.raises(terrace.TimeoutError, match="locked by"):
                txn.put(table, b"a", b"2")
            assert time.monotonic() - begin >= 0.5
            assert list(txn.keys(table, lock="skip_locked")) == []
        with pytest.raises(terrace.TimeoutError):
            table.put(b"a", b"3", timeout=0.3)
    assert table[b"a"] == b"1"


def test_a_wait_longer_than_a_slice_gets_its_lock(db: terrace.Database) -> None:
    table = db["t"]
    holder = db.begin()
    holder.put(table, b"a", b"1")
    timer = threading.Timer(0.7, holder.commit)
    timer.start()
    with db.begin(isolation="read_committed") as txn:
        assert txn.get_for_update(table, b"a") == b"1"
    timer.join()


def test_a_deadlock_ends(db: terrace.Database) -> None:
    table = db["t"]
    table.update({b"a": b"0", b"b": b"0"})
    barrier = threading.Barrier(2)
    deadlocks = []

    def work(first: bytes, second: bytes) -> None:
        met = False
        for attempt in db.transactions(isolation="read_committed"):
            with attempt as txn:
                try:
                    txn.put(table, first, b"%d" % (int(txn.get_for_update(table, first) or b"") + 1))
                    if not met:
                        met = True
                        barrier.wait()
                    txn.put(
                        table, second, b"%d" % (int(txn.get_for_update(table, second) or b"") + 1)
                    )
                except terrace.DeadlockError as error:
                    deadlocks.append(error)
                    raise

    threads = [threading.Thread(target=work, args=keys) for keys in [(b"a", b"b"), (b"b", b"a")]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # The other one may be between two slices of its wait when the victim comes again.
    assert deadlocks and table.multi_get([b"a", b"b"]) == [b"2", b"2"]


def test_rows_at_the_ends_and_conditional_writes(db: terrace.Database) -> None:
    table = db["t"]
    table[b"b"] = b"2"
    with db.begin() as txn:
        assert txn.first(table) == txn.last(table) == (b"b", b"2")
        txn.put(table, b"a", b"1")
        assert txn.first(table) == (b"a", b"1") and table.first() == (b"b", b"2")
        assert not txn.compare_and_set(table, b"b", b"3", b"4")
        assert txn.compare_and_set(table, b"b", b"2", None)
        assert txn.last(table) == (b"a", b"1")
        assert txn.compare_and_set(table, b"c", None, b"5")
    assert list(table.items()) == [(b"a", b"1"), (b"c", b"5")]
    with pytest.raises(terrace.ClosedError):
        txn.first(table)


def test_a_share_lock_goes_with_others_of_its_kind(db: terrace.Database) -> None:
    table = db["t"]
    table[b"k"] = b"v"
    with db.begin() as one, db.begin(lock_wait="no_wait") as other:
        assert one.get_for_share(table, b"k") == other.get_for_share(table, b"k") == b"v"
        assert one.get_for_share(table, b"missing") is None
        with pytest.raises(terrace.TimeoutError):
            other.put(table, b"k", b"w")


def test_a_view_is_of_one_moment(db: terrace.Database) -> None:
    table = db["t"]
    table[b"k"] = b"before"
    with db.begin(isolation="read_committed") as txn:
        txn.take_view()
        table[b"k"] = b"after"
        assert txn.get(table, b"k") == b"before"
        assert txn.get_for_update(table, b"k") == b"after"
        txn.drop_view()
        assert txn.get(table, b"k") == b"after"
    with db.begin() as txn, pytest.raises(terrace.InvalidError):
        txn.take_view()


def test_savepoints(db: terrace.Database) -> None:
    table = db["t"]
    with db.begin() as txn:
        txn.put(table, b"a", b"1")
        with pytest.raises(ZeroDivisionError), txn.savepoint():
            txn.put(table, b"b", b"2")
            raise ZeroDivisionError
        with txn.savepoint("inner"):
            txn.put(table, b"c", b"3")
        txn.set_savepoint("s")
        txn.delete_range(table)
        txn.roll_back_to("s")
        txn.release_savepoint("s")
        with pytest.raises(terrace.InvalidError):
            txn.roll_back_to("s")
    assert list(table) == [b"a", b"c"]


def test_a_range_shows_what_the_transaction_writes_under_it(db: terrace.Database) -> None:
    table = db["t"]
    table.update({b"%03d" % n: b"old" for n in range(300)})
    with db.begin() as txn:
        rows = txn.items(table)
        for n in range(300):
            key, value = next(rows)
            assert (key, value) == (b"%03d" % n, b"new" if n % 2 and n else b"old")
            txn.put(table, b"%03d" % (n + 1), b"new" if n % 2 == 0 else b"old")
        assert next(rows)[0] == b"300"
        for key in txn.keys(table, reverse=True):
            txn.delete(table, key)
        assert list(txn.keys(table)) == []
        txn.roll_back()
    assert len(list(table)) == 300


def test_limits_of_ranges_hold_when_the_transaction_writes(db: terrace.Database) -> None:
    table = db["t"]
    table.update({bytes([n]): b"" for n in range(100)})
    with db.begin(isolation="serializable") as txn:
        seen = []
        for key in txn.keys(table, limit=40, start=b"\x05"):
            seen.append(key[0])
            txn.delete(table, key)
        assert seen == list(range(5, 45))
        assert len(list(txn.keys(table))) == 60


def test_a_transaction_is_a_mapping_of_its_tables(db: terrace.Database) -> None:
    table = db["t"]
    with db.begin() as txn:
        view = txn[table]
        view[b"a"] = b"1"
        assert view[b"a"] == b"1" and b"a" in view and list(view.items()) == [(b"a", b"1")]
        view[b"b"] = b"2"
        del view[b"a"]
        with pytest.raises(KeyError):
            del view[b"a"]
        assert txn.multi_get(table, [b"a", b"b"], for_update=True) == [None, b"2"]
        assert txn.insert_if_absent(table, b"c", b"3")
        assert txn.pop_first(table) == (b"b", b"2") and txn.pop_last(table) == (b"c", b"3")
        assert txn.contains_key(table, b"c") is False
    assert list(table) == []


def test_workers_take_different_jobs(db: terrace.Database) -> None:
    jobs = db["jobs"]
    jobs.update({b"%d" % n: b"" for n in range(4)})
    with db.begin() as first, db.begin() as second:
        [one] = first.keys(jobs, lock="skip_locked", limit=1)
        [two] = second.keys(jobs, lock="skip_locked", limit=1)
        assert (one, two) == (b"0", b"1")
        with pytest.raises(terrace.InvalidError, match="skip_locked"):
            first.keys(jobs, lock="all")  # type: ignore[arg-type]


def test_a_prepared_transaction_survives(path: Path) -> None:
    with terrace.open(path, pm_size="4MiB") as db:
        txn = db.begin()
        txn.put(db["t"], b"a", b"1")
        txn.prepare(b"transfer 1")
        with pytest.raises(terrace.ClosedError):
            txn.commit()
    with terrace.open(path) as db:
        assert [found["id"] for found in db.list_prepared()] == [b"transfer 1"]
        assert db["t"].get(b"a") is None
        db.commit_prepared(b"transfer 1")
        assert db["t"][b"a"] == b"1"
        with pytest.raises(terrace.InvalidError):
            db.roll_back_prepared(b"transfer 1")
        other = db.begin()
        other.put(db["t"], b"b", b"2")
        other.prepare(b"transfer 2")
        with pytest.raises(terrace.InvalidError, match="share"):
            db.roll_back_prepared(b"transfer 2", durability="remote")
        db.roll_back_prepared(b"transfer 2")
        assert db["t"].get(b"b") is None


def test_the_keys_of_a_transaction_read_no_values(db: terrace.Database) -> None:
    """Bug: `keys` of a transaction read each value that lies apart. Cause: the keys were taken out
    of whole rows. Fix: the engine leaves the values out."""
    table = db.table("t", large_values="4KiB", compression="none")
    table.bulk_load((b"%d" % n, bytes(100_000)) for n in range(8))
    with db.begin() as txn:
        before = db.stats()["disk"]["read_bytes"]
        assert len(list(txn.keys(table))) == len(list(txn[table])) == 8
        assert len(list(txn.keys(table, lock="for_update"))) == 8
        assert len(list(txn.keys(table, lock="skip_locked"))) == 8
        assert db.stats()["disk"]["read_bytes"] - before < 100_000


def test_a_transaction_can_be_watched_and_killed(db: terrace.Database) -> None:
    table = db["t"]
    txn = db.begin(isolation="serializable")
    txn.put(table, b"a", b"1")
    [info] = db.running_transactions()
    assert info["id"] == txn.id and info["isolation"] == "serializable" and info["writes"] == 1
    assert txn.isolation == "serializable" and db.begin().isolation == "snapshot"
    assert db.kill_transaction(txn.id) and not db.kill_transaction(1 << 40)
    with pytest.raises(terrace.Error):
        txn.commit()
    pending = db.begin()
    pending.put(table, b"b", b"2")
    pending.set_blob(b"blob")
    pending.enqueue().wait()
    assert list(table) == [b"b"] and db.last_blob() == b"blob"
