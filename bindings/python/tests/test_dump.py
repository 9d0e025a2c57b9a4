"""Dumps into binary files, and loads out of them."""

from __future__ import annotations

import io
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import terrace


@pytest.fixture
def filled(db: terrace.Database) -> terrace.Database:
    """A database with rows, options, operands, an empty table and a blob."""
    rows = db.create_table("rows", block_size=4096, large_values=512)
    rows.update({b"%04d" % n: bytes([n % 256]) * (n * 3) for n in range(400)})
    db.create_table("expiring", ttl="7d")[b"k"] = b"v"
    sums = db.create_table("sums", merge_operator="append")
    sums.merge(b"k", b"a")
    sums.merge(b"k", b"b")
    db.create_table("empty")
    with db.batch() as batch:
        batch.set_blob(b"position")
    return db


def dumped(db: terrace.Database, tables: list[str] | None = None) -> bytes:
    file = io.BytesIO()
    db.dump(file, tables=tables)
    return file.getvalue()


def new(tmp_path: Path) -> terrace.Database:
    return terrace.create(tmp_path / "new", pm_size="4MiB", create_tables=False)


def test_a_dump_makes_the_same_database(filled: terrace.Database, tmp_path: Path) -> None:
    path = tmp_path / "dump"
    with path.open("wb", buffering=0) as raw:
        report = filled.dump(raw)
    assert report == {"tables": 4, "rows": 402}
    with new(tmp_path) as db:
        with path.open("rb") as file:
            assert db.load(file) == report
        assert list(db) == list(filled) and db.last_blob() == b"position"
        for name, table in filled.items():
            assert dict(db[name].items()) == dict(table.items())
            assert db[name].options == table.options
        assert db["expiring"].options["ttl"] == timedelta(days=7)
        assert dumped(db) == path.read_bytes()
        with path.open("rb") as file, pytest.raises(terrace.ExistsError, match="expiring"):
            db.load(file)


def test_tables_are_dumped_and_loaded_by_name(filled: terrace.Database, tmp_path: Path) -> None:
    with new(tmp_path) as db:
        some = dumped(filled, ["rows", "sums"])
        assert db.load(io.BytesIO(some), tables=["sums"]) == {"tables": 1, "rows": 1}
        assert list(db) == ["sums"] and db["sums"][b"k"] == b"ab" and db.last_blob() is None
        with pytest.raises(terrace.MissingTableError, match="typo"):
            db.load(io.BytesIO(some), tables=["typo"])
        with pytest.raises(terrace.MissingTableError, match="typo"):
            dumped(filled, ["typo"])
        with pytest.raises(TypeError):
            filled.dump(io.BytesIO(), tables="rows")
        with pytest.raises(ValueError, match="tables is empty"):
            filled.dump(io.BytesIO(), tables=[])
        with pytest.raises(ValueError, match="tables is empty"):
            db.load(io.BytesIO(some), tables=[])


def test_what_is_no_whole_dump_is_told(filled: terrace.Database, tmp_path: Path) -> None:
    dump = dumped(filled)
    with new(tmp_path) as db:
        with pytest.raises(terrace.CorruptError, match="0 tables with 0 rows are loaded"):
            db.load(io.BytesIO(dump[:-1]))
        with pytest.raises(terrace.InvalidError, match="no dump"):
            db.load(io.BytesIO(b"some text, and no dump of any kind"))
        with pytest.raises(TypeError, match=r"binary file, and read\(\) gave str"):
            db.load(io.StringIO("text"))  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            filled.dump(io.StringIO())  # type: ignore[arg-type]
        with pytest.raises(AttributeError):
            filled.dump(b"path")  # type: ignore[arg-type]
        assert list(db) == []


class Broken(io.RawIOBase):
    """A file that gives and takes some bytes, and raises then."""

    def __init__(self, content: bytes, raises: BaseException) -> None:
        self._content = io.BytesIO(content)
        self._raises = raises

    def read(self, size: int = -1) -> bytes:
        found = self._content.read(min(size, 1000))
        if not found:
            raise self._raises
        return found

    def write(self, data: object) -> int:
        raise self._raises


@pytest.mark.parametrize("raises", [ZeroDivisionError("on purpose"), KeyboardInterrupt()])
def test_what_a_file_raises_is_raised(
    filled: terrace.Database, tmp_path: Path, raises: BaseException
) -> None:
    with pytest.raises(type(raises)):
        filled.dump(Broken(b"", raises))
    dump = dumped(filled, ["empty", "rows"])
    assert len(dump) > 200_000
    with new(tmp_path) as db:
        with pytest.raises(type(raises)) as raised:
            db.load(Broken(dump[:100_000], raises))
        assert raised.value is raises
        assert "tables with 0 rows are loaded" in "".join(raised.value.__notes__)
        assert "rows" not in db


class Short(io.BytesIO):
    """A file that writes a part of what it is given, as a raw one may."""

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        return super().write(bytes(data)[:1000])


def test_short_writes_go_on_and_too_long_reads_are_refused(
    filled: terrace.Database, tmp_path: Path
) -> None:
    file = Short()
    filled.dump(file)
    assert file.getvalue() == dumped(filled)

    class Long(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return b"x" * ((size or 0) + 1)

    with new(tmp_path) as db, pytest.raises(ValueError, match="gave"):
        db.load(Long())


class Says(io.RawIOBase):
    """A raw file that says something of each write, and takes nothing."""

    def __init__(self, says: object) -> None:
        self._says = says

    def write(self, data: object) -> Any:
        return self._says


def test_what_a_write_says_is_not_taken_for_more(filled: terrace.Database) -> None:
    """Bug: a dump into a file that does not block lacked what the file could not take, and `dump`
    returned. One whose `write` gave True had parts twice. Cause: what is no count was taken for all,
    and True for one byte. Fix: None of a raw file raises, and so does all else that is no count."""
    with pytest.raises(BlockingIOError):
        filled.dump(Says(None))
    for says in (True, False, -1, 1 << 40, "text", 1.0):
        with pytest.raises(TypeError, match="write of .* bytes gave "):
            filled.dump(Says(says))
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    with open(reads, "rb"), open(writes, "wb", buffering=0) as full:
        with pytest.raises(BlockingIOError):
            filled.dump(full)

    class Collects:
        """A file that does not count."""

        def __init__(self) -> None:
            self.content = b""

        def write(self, data: bytes) -> None:
            self.content += data

    file = Collects()
    filled.dump(file)
    assert file.content == dumped(filled)


def test_prepared_transactions_are_refused_or_left_out(filled: terrace.Database) -> None:
    before = dumped(filled)
    txn = filled.begin()
    txn.put(filled["rows"], b"prepared", b"")
    txn.prepare(b"name")
    with pytest.raises(terrace.InvalidError, match='the first as "name"'):
        dumped(filled)
    file = io.BytesIO()
    filled.dump(file, without_prepared=True)
    assert file.getvalue() == before
