"""Merge operators: operands of tables, batches and transactions."""

from __future__ import annotations

from pathlib import Path

import pytest

import terrace


def number(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


def members(*names: bytes) -> bytes:
    """A set as the operator set_union has it."""
    return b"".join(len(name).to_bytes(4, "little") + name for name in sorted(names))


def test_a_counter_counts_through_tables_batches_and_transactions(db: terrace.Database) -> None:
    table = db.create_table("hits", merge_operator="counter")
    assert table.options["merge_operator"] == "counter"
    for n in range(200):
        table.merge(b"k", number(n), durability="relaxed")
    table.merge(bytearray(b"k"), memoryview(number(-9_900)))
    with db.batch() as batch:
        batch.merge(table, b"k", number(2))
        batch.put(table, b"new", number(5))
        batch.merge(table, b"new", number(1))
    for attempt in db.transactions():
        with attempt as txn:
            txn.merge(table, b"k", number(3))
            assert txn.get(table, b"k") == number(10_005)
    assert table[b"k"] == number(10_005) and table[b"new"] == number(6)
    assert list(table.items()) == [(b"k", number(10_005)), (b"new", number(6))]


@pytest.mark.parametrize(
    ("operator", "operands", "value"),
    [
        ("append", [b"a", b"", b"bc"], b"abc"),
        ("max", [b"b", b"ab", b"a"], b"b"),
        ("set_union", [members(b"red"), members(b"blue", b"red")], members(b"blue", b"red")),
    ],
)
def test_the_other_operators(
    path: Path, operator: str, operands: list[bytes], value: bytes
) -> None:
    with terrace.open(path, pm_size="4MiB") as db:
        table = db.table("t", merge_operator=operator)
        for operand in operands:
            table.merge(b"k", operand)
        assert table[b"k"] == value
        table.compact_range()
        assert table[b"k"] == value
    with terrace.open(path) as db:
        assert db["t"][b"k"] == value


def test_what_cannot_be_merged_is_told(db: terrace.Database) -> None:
    plain = db["plain"]
    with pytest.raises(terrace.InvalidError, match="no merge operator"):
        plain.merge(b"k", b"")
    with pytest.raises(terrace.InvalidError, match="no merge operator"), db.batch() as batch:
        batch.merge(plain, b"k", b"")
    with pytest.raises(terrace.InvalidError, match="no merge operator"), db.begin() as txn:
        txn.merge(plain, b"k", b"")
    counter = db.table("counter", merge_operator="counter")
    counter.merge(b"k", b"short")
    with pytest.raises(terrace.InvalidError, match="a counter has 8"):
        counter[b"k"]
    with pytest.raises(terrace.InvalidError, match="a counter has 8"), db.begin() as txn:
        txn.merge(counter, b"other", b"short")
    assert b"other" not in counter
    with pytest.raises(terrace.InvalidError, match="a time to live"):
        db.table("both", merge_operator="counter", ttl="7d")
    with pytest.raises(TypeError, match="bytes"):
        counter.merge(b"k", "text")  # type: ignore[arg-type]


def test_a_merge_waits_for_a_locked_row(db: terrace.Database) -> None:
    table = db.table("t", merge_operator="append")
    with db.begin() as txn:
        txn.put(table, b"k", b"1")
        with pytest.raises(TimeoutError):
            table.merge(b"k", b"2", timeout=0.01)
    table.merge(b"k", b"2", timeout=1)
    assert table[b"k"] == b"12"
