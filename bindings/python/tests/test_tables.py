"""Databases and tables as mappings."""

from __future__ import annotations

import array
import os
from collections.abc import Callable, Mapping, MutableMapping
from datetime import timedelta
from pathlib import Path
from typing import Any, assert_type

import pytest

import terrace


def test_what_was_put_is_there_after_another_opening(path: Path) -> None:
    with terrace.open(path, pm_size="4MiB") as db:
        db["t"][b"k"] = b"v"
    with terrace.open(path) as db:
        assert db["t"][b"k"] == b"v"


def test_a_table_is_a_mapping(table: terrace.Table) -> None:
    table[b"a"] = b"1"
    table[b"b"] = b""
    assert table[b"a"] == b"1"
    assert table[b"b"] == b""
    assert b"a" in table and b"c" not in table
    assert table.get(b"c") is None
    assert table.get(b"c", b"x") == b"x"
    assert list(table) == [b"a", b"b"]
    del table[b"a"]
    with pytest.raises(KeyError) as raised:
        table[b"a"]
    assert raised.value.args == (b"a",)
    with pytest.raises(terrace.NotFoundError):
        del table[b"a"]
    assert bool(table), "an empty table is no false one"


def test_pop_and_setdefault_are_those_of_a_dictionary(table: terrace.Table) -> None:
    assert table.setdefault(b"a", b"1") == b"1"
    assert table.setdefault(b"a", b"2") == b"1"
    assert table.pop(b"a") == b"1"
    assert table.pop(b"a", None) is None
    with pytest.raises(KeyError):
        table.pop(b"a")
    with pytest.raises(TypeError):
        table.pop(b"a", 1, 2)  # type: ignore[call-overload]


def test_ranges_have_bounds_ends_and_limits(table: terrace.Table) -> None:
    table.update({bytes([n]): bytes([n, n]) for n in range(100)})

    def keys(**range: Any) -> list[int]:
        return [key[0] for key in table.keys(**range)]

    assert keys() == list(range(100))
    assert keys(start=b"\x10", stop=b"\x14") == [16, 17, 18, 19]
    assert keys(stop=b"\x03", reverse=True) == [2, 1, 0]
    assert keys(start=b"\x05", limit=2) == [5, 6]
    assert keys(reverse=True, limit=1) == [99]
    assert keys(limit=0) == []
    assert keys(start=b"\x20", stop=b"\x10") == []
    assert list(table.items(limit=1)) == [(b"\x00", b"\x00\x00")]
    assert list(table.values(start=b"\x63")) == [b"\x63\x63"]
    assert list(table[b"\x01":b"\x03"]) == [(b"\x01", b"\x01\x01"), (b"\x02", b"\x02\x02")]
    del table[b"\x01":]
    assert keys() == [0]


def test_a_prefix_goes_with_bounds(table: terrace.Table) -> None:
    table.update([(key, b"") for key in [b"a", b"b", b"ba", b"bb", b"bc", b"c", b"\xff\xff\x01"]])
    assert list(table.keys(prefix=b"b")) == [b"b", b"ba", b"bb", b"bc"]
    assert list(table.keys(prefix=b"b", start=b"bb")) == [b"bb", b"bc"]
    assert list(table.keys(prefix=b"b", start=b"a", stop=b"bb")) == [b"b", b"ba"]
    assert list(table.keys(prefix=b"\xff\xff")) == [b"\xff\xff\x01"]
    assert list(table.keys(prefix=b"b", stop=b"z", reverse=True, limit=1)) == [b"bc"]
    table.delete_range(prefix=b"b", start=b"bb")
    assert list(table.keys(prefix=b"b")) == [b"b", b"ba"]


def test_a_range_can_seek_and_its_limit_counts_on(table: terrace.Table) -> None:
    table.update({bytes([n]): b"" for n in range(200)})
    rows = table.items(limit=5)
    assert [next(rows)[0][0] for _ in range(2)] == [0, 1]
    rows.seek(b"\x80")
    assert [key[0] for key, _ in rows] == [128, 129, 130]
    rows = table.items(reverse=True)
    assert next(rows.seek(b"\x10"))[0] == b"\x10"


def test_a_range_is_of_one_moment(table: terrace.Table) -> None:
    table.update({bytes([n]): b"" for n in range(100)})
    rows = table.keys()
    next(rows)
    table.delete_range()
    assert len(list(rows)) == 99
    assert list(table) == []


def test_every_buffer_is_a_key_and_a_value(table: terrace.Table) -> None:
    numbers = array.array("H", [1, 2])
    keys: list[Any] = [b"k", bytearray(b"k"), memoryview(b"xkx")[1:2], memoryview(b"k-")[::2]]
    for key in keys:
        table[key] = numbers
        assert table[b"k"] == numbers.tobytes()
        assert key in table
        del table[key]
        assert key not in table


@pytest.mark.parametrize("wrong", ["text", 7, None, [1], object()])
def test_what_is_no_buffer_is_refused(table: terrace.Table, wrong: Any) -> None:
    calls: list[Callable[[], object]] = [
        lambda: table[wrong],
        lambda: table.put(wrong, b""),
        lambda: table.put(b"", wrong),
        lambda: wrong in table,
    ]
    for call in calls:
        with pytest.raises(TypeError, match="bytes"):
            call()


def test_limits_are_told_with_numbers(table: terrace.Table) -> None:
    with pytest.raises(ValueError, match="65537 bytes is too long: the limit is 65536"):
        table[b"k" * 65_537] = b""
    with pytest.raises(terrace.InvalidError, match="1048577"):
        table[b"k"] = bytes((1 << 20) + 1)
    table[b"k" * 65_536] = bytes(1 << 20)
    assert table.get(b"k" * 65_536) == bytes(1 << 20)


@pytest.mark.parametrize("wrong", [-1, 1 << 64, 1 << 70])
def test_counts_and_sizes_that_cannot_be_are_refused(db: terrace.Database, wrong: int) -> None:
    table = db["t"]
    calls: list[Callable[[], object]] = [
        lambda: table.items(limit=wrong), lambda: db.grow_pm(wrong),
        lambda: db.begin(write_limit=wrong), lambda: db.create_table("x", block_size=wrong),
        lambda: db.create_table("y", large_values=wrong), lambda: db.kill_transaction(wrong),
        lambda: db.transactions(attempts=wrong), lambda: db.run(print, attempts=wrong),
    ]
    for number, call in enumerate(calls):
        with pytest.raises((OverflowError, ValueError)):
            call()
            pytest.fail(f"call {number} went well")
    assert db.table_names() == ["t"]


def test_names_that_cannot_be_are_refused(db: terrace.Database) -> None:
    wrong: list[Any] = ["", "x" * 256, "a\nb", "\ud800", b"t", None, 7]
    for name in wrong:
        with pytest.raises((TypeError, ValueError)):
            db[name]
    db["x" * 255], db["ä" * 127]
    assert len(db) == 2


def test_tables_by_name(db: terrace.Database) -> None:
    db.table("b", block_size="4KiB", ttl=timedelta(days=7), large_values=4096, level0="matrix")
    db["a"][b"k"] = b"v"
    assert list(db) == db.table_names() == ["a", "b"]
    assert len(db) == 2 and "a" in db and "c" not in db
    assert db["b"].options == {
        "block_size": 4096,
        "filter_bits": 10,
        "ttl": timedelta(days=7),
        "large_values": 4096,
        "cold": "ssd",
        "merge_operator": None,
        "compression": "database",
        "level0": "matrix",
        "tag": 0,
    }
    handle = db["a"]
    db.rename_table("a", "c")
    assert handle.name == "c" and handle[b"k"] == b"v"
    handle.truncate()
    assert list(handle) == []
    del db["c"]
    with pytest.raises(terrace.InvalidError, match="dropped"):
        handle.get(b"k")
    with pytest.raises(terrace.InvalidError, match='there is no table|no table'):
        db.existing_table("c")
    with pytest.raises(terrace.InvalidError):
        db.create_table("b")
    with pytest.raises(terrace.InvalidError):
        db["\n"]
    db.set_table_options("b", ttl=None, filter_bits=12)
    assert db["b"].options["ttl"] is None and db["b"].options["filter_bits"] == 12


def test_an_unknown_option_names_those_there_are(path: Path) -> None:
    with pytest.raises(ValueError, match="pm_size"):
        terrace.open(path, size=3)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="a size in bytes"):
        terrace.open(path, pm_size="much")
    assert not path.exists()


def test_options_take_what_python_has(path: Path) -> None:
    db = terrace.create(
        path, pm_size=4 << 20, compression=("lz4", "zstd"), direct_io=False,
        file_permissions=0o600, memory=None, threads=1,
    )
    with db:
        assert db.stats()["pm"]["capacity"] >= 4 << 20
    assert all(file.stat().st_mode & 0o077 == 0 for file in path.iterdir() if file.is_file())
    with pytest.raises(terrace.InvalidError):
        terrace.create(path)
    with pytest.raises(terrace.InvalidError):
        terrace.open(path.with_name("none"), must_exist=True)
    with terrace.open(path, read_only=True) as db, pytest.raises(terrace.InvalidError):
        db["new"]


def test_a_reader_beside_a_writer(path: Path) -> None:
    with terrace.open(path, pm_size="4MiB") as db:
        db["t"][b"a"] = b"1"
        with terrace.open(path, read_only=True) as reader:
            db["t"][b"a"] = b"2"
            with reader.refresh() as later:
                assert (reader["t"][b"a"], later["t"][b"a"]) == (b"1", b"2")
                assert later.stats()["open"]["beside_writer"]
            report = terrace.verify(path)
            assert report["damages"] == [] and report["commit"]
            assert db.stats()["disk"]["readers"] == 1
        with pytest.raises(terrace.ClosedError):
            reader.refresh()


def test_a_database_in_memory_leaves_nothing(path: Path) -> None:
    with terrace.open(path, in_memory="64MiB", pm_size="4MiB") as db:
        db["t"][b"a"] = b"1"
        db.backup(path.with_name("set"))
    assert not path.exists() and not path.with_name("set").exists()


def test_relaxed_writes_and_timeouts(table: terrace.Table) -> None:
    table.put(b"a", b"1", durability="relaxed")
    table.put(b"b", b"2", timeout=1.5)
    table.put(b"c", b"3", timeout=timedelta(seconds=1))
    table.delete(b"a", durability="relaxed")
    assert list(table) == [b"b", b"c"]
    with pytest.raises(terrace.InvalidError, match="durable, relaxed and remote"):
        table.put(b"a", b"", durability="never")  # type: ignore[arg-type]
    with pytest.raises(terrace.InvalidError):
        table.put(b"a", b"", timeout=-1)
    table.put(b"a", b"", durability="relaxed", timeout=1)


def test_rows_at_the_ends(table: terrace.Table) -> None:
    assert table.first() is None and table.pop_last() is None
    table.update([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")])
    assert table.first() == (b"a", b"1") and table.last() == (b"c", b"3")
    assert table.pop_first() == (b"a", b"1") and table.pop_last() == (b"c", b"3")
    assert table.multi_get([b"a", b"b"]) == [None, b"2"]
    assert table.multi_get(key for key in (b"b",)) == [b"2"]


def test_changes_of_one_row_are_atomic(table: terrace.Table) -> None:
    assert table.insert_if_absent(b"a", b"1") and not table.insert_if_absent(b"a", b"2")
    assert table.compare_and_set(b"a", b"1", b"3") and not table.compare_and_set(b"a", b"1", None)
    assert table.compare_and_set(b"a", b"3", None) and b"a" not in table
    assert table.compare_and_set(b"a", None, b"4") and table[b"a"] == b"4"


def test_a_table_is_a_mutable_mapping_and_a_database_a_mapping(db: terrace.Database) -> None:
    table = db["t"]
    assert isinstance(table, MutableMapping) and isinstance(db, Mapping)
    table.update({bytes([n // 256, n % 256]): b"%d" % n for n in range(5000)})
    assert len(table) == 5000 and bool(table)
    assert next(reversed(table)) == table.popitem()[0] == (4999).to_bytes(2, "big")
    snapshot, copy = db.snapshot(), dict(table)
    table.clear()
    assert len(table) == 0 and list(table) == [] and dict(snapshot[table].items()) == copy
    with pytest.raises(KeyError, match="empty"):
        table.popitem()
    table.update(copy)
    db["u"].update(table)
    assert dict(db["u"]) == copy
    assert table != db["u"] and table == table and len({table, db["u"]}) == 2
    assert list(db.keys()) == ["t", "u"] and [name for name, _ in db.items()] == ["t", "u"]
    assert [one.name for one in db.values()] == ["t", "u"]
    assert db.get("v") is None and db.get("v", 7) == 7 and "v" not in db
    # Bug: a table that was dropped while the tables were walked over was made again.
    db.table("w")
    for _, one in db.items():
        if "w" in db:
            db.drop_table("w")
        assert one is not None
    stray: Any = ("w", 1)
    assert stray not in db.items() and "w" not in db
    found = db.get("t")
    assert found is not None and found.name == "t"
    snapshot.close()


def test_a_limit_that_cannot_be_is_named_with_its_bounds(db: terrace.Database) -> None:
    """Bug: `limit=-1` raised `OverflowError: can't convert negative int to unsigned`, and a wrong
    class a message without the argument. Cause: the conversion of PyO3. Fix: one function reads
    all counts, and one all times."""
    table, most = db["t"], (1 << 64) - 1
    wrong: list[tuple[Callable[[Any], object], str, str]] = [
        (lambda wrong: table.items(limit=wrong), "limit", str(most)),
        (lambda wrong: db.snapshot().keys(table, limit=wrong), "limit", str(most)),
        (lambda wrong: db.begin().values(table, limit=wrong), "limit", str(most)),
        (lambda wrong: db.transactions(attempts=wrong), "attempts", str((1 << 32) - 1)),
        (lambda wrong: db.run(print, attempts=wrong), "attempts", str((1 << 32) - 1)),
        (lambda wrong: db.grow_pm(wrong), "size", str(most)),
        (lambda wrong: db.kill_transaction(wrong), "id", str(most)),
    ]
    for call, name, bound in wrong:
        for number in (-1, 1 << 64, 1 << 200):
            with pytest.raises(terrace.InvalidError, match=f"{name} takes .* 0 to {bound}, not"):
                call(number)
        with pytest.raises(TypeError, match=f"{name} takes .* 0 to {bound}, not .* class str"):
            call("7")
    # Bug: the advice for a time that is too long was to take 0 or more.
    for time in (-1, 1e30, float("nan"), float("inf")):
        with pytest.raises(terrace.InvalidError, match=f"timeout=.* from 0 to {most}, or"):
            table.put(b"k", b"", timeout=time)
    # Bug: permissions that cannot be raised `OverflowError`, without their name.
    for number in (-1, 1 << 32):
        with pytest.raises(terrace.InvalidError, match="option file_permissions takes .* not"):
            terrace.open(db.path / "other", file_permissions=number)
    with pytest.raises(TypeError, match="timeout takes a number of seconds .* class str"):
        table.put(b"k", b"", timeout="1")  # type: ignore[arg-type]


def test_paths_need_not_be_utf_8(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    with terrace.open(path, pm_size="4MiB") as db:
        db["t"][b"k"] = b"v"
        assert db.path == path and repr(db)
        assert db.backup(tmp_path / "set")["number"] == 1
    assert terrace.verify(path)["damages"] == []
    with pytest.raises(terrace.InvalidError, match="pm_path takes text that is UTF-8"):
        terrace.open(tmp_path / "other", pm_path=path)
    with pytest.raises(terrace.InvalidError, match="pm_path takes text that is UTF-8"):
        terrace.open(tmp_path / "other", pm_path=str(path))


def test_what_is_given_has_a_type(db: terrace.Database) -> None:
    """mypy reads this: the stubs say what comes out, by what goes in."""
    table = db["t"]
    table[b"k"] = b"v"
    snapshot = db.snapshot()
    assert_type(next(table.items()), tuple[bytes, bytes])
    assert_type(next(iter(table)), bytes)
    assert_type(list(table[b"k":]), list[tuple[bytes, bytes]])
    assert_type(table.get(b"k"), bytes | None)
    assert_type(table.get(b"k", 7), bytes | int)
    assert_type(table.pop(b"none", 7), bytes | int)
    assert_type(db.get("t", 7), terrace.Table | int)
    assert_type(db.run(lambda _: 7), int)
    assert_type(snapshot[table].get(b"k"), bytes | None)
    assert_type(next(snapshot.keys(table)), bytes)

    @db.transactional
    def add(txn: terrace.Transaction, number: int) -> str:
        return str(number)

    assert_type(add(7), str)
    snapshot.close()
