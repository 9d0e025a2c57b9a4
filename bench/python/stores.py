"""The stores that are held against each other, each as its documentation advises for this work.

Every store gets the same memory for caches where it has a setting for it, and no compression, so
that no store saves what others do not. ``settings`` is what the table prints.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

Row = tuple[bytes, bytes]

#: Rows of a batch that loads a store before it is read.
LOAD_ROWS = 10_000


class Store(Protocol):
    """What the figures do with a store."""

    settings: str

    def __init__(self, path: Path, memory: int) -> None: ...
    def put(self, key: bytes, value: bytes, durable: bool) -> None: ...
    def batch(self, rows: list[Row], durable: bool) -> None: ...
    def get(self, key: bytes) -> bytes | None: ...
    def range(self, start: bytes, limit: int | None) -> Iterable[Row]: ...
    def settle(self) -> None: ...
    def close(self) -> None: ...


class Terrace:
    """Terrace, with the region at a quarter of the memory."""

    def __init__(self, path: Path, memory: int) -> None:
        import terrace

        region = max(memory // 4, 16 << 20)
        self.settings = f"{version('terrace')}, region {mib(region)}, cache {mib(memory - region)}"
        self._db = terrace.open(
            path, pm_size=region, cache_size=max(memory - region, 1 << 20), compression="none"
        )
        self._table = self._db["t"]

    def put(self, key: bytes, value: bytes, durable: bool) -> None:
        self._table.put(key, value, durability="durable" if durable else "relaxed")

    def batch(self, rows: list[Row], durable: bool) -> None:
        self._table.update(rows, durability="durable" if durable else "relaxed")

    def get(self, key: bytes) -> bytes | None:
        return self._table.get(key)

    def range(self, start: bytes, limit: int | None) -> Iterable[Row]:
        return self._table.items(start=start, limit=limit)

    def settle(self) -> None:
        self._table.compact_range()

    def close(self) -> None:
        self._db.close()


class RocksDict:
    """RocksDB by rocksdict, in its raw mode, with blocks of 16 KiB.

    As its tuning guide says: level 1 has the size of level 0, files are an eighth of it, look-ups in
    a block go by its hash index. Logs are recycled, so that a sync does not extend a file.
    """

    block_size = 16 << 10

    def __init__(self, path: Path, memory: int) -> None:
        import rocksdict

        buffer, cache = max(memory // 8, 4 << 20), max(memory * 3 // 4, 8 << 20)
        self.settings = (
            f"{version('rocksdict')}, blocks of {self.block_size >> 10} KiB with hash indexes, "
            f"filters of 10 bits, cache {mib(cache)}, 2 write buffers of {mib(buffer)}, "
            f"level 1 of {mib(buffer * 4)}, logs recycled"
        )
        options = rocksdict.Options(raw_mode=True)
        table = rocksdict.BlockBasedOptions()
        table.set_block_cache(rocksdict.Cache(cache))
        table.set_block_size(self.block_size)
        table.set_bloom_filter(10, False)
        table.set_format_version(5)
        table.set_data_block_index_type(rocksdict.DataBlockIndexType.binary_and_hash())
        options.set_block_based_table_factory(table)
        options.set_write_buffer_size(buffer)
        options.set_max_write_buffer_number(2)
        options.set_max_bytes_for_level_base(buffer * 4)
        options.set_target_file_size_base(buffer // 2)
        options.set_level_compaction_dynamic_level_bytes(True)
        options.set_recycle_log_file_num(2)
        options.increase_parallelism(os.cpu_count() or 1)
        options.set_compression_type(rocksdict.DBCompressionType.none())
        self._db = rocksdict.Rdict(str(path), options)
        self._batches: Any = rocksdict.WriteBatch
        self._how = {}
        for durable in (False, True):
            self._how[durable] = rocksdict.WriteOptions()
            self._how[durable].sync = durable

    def put(self, key: bytes, value: bytes, durable: bool) -> None:
        self._db.put(key, value, write_opt=self._how[durable])

    def batch(self, rows: list[Row], durable: bool) -> None:
        batch = self._batches(raw_mode=True)
        for key, value in rows:
            batch.put(key, value)
        self._db.write(batch, write_opt=self._how[durable])

    def get(self, key: bytes) -> bytes | None:
        found: bytes | None = self._db.get(key)
        return found

    def range(self, start: bytes, limit: int | None) -> Iterable[Row]:
        rows: Any = self._db.items(from_key=start)
        return rows if limit is None else first(rows, limit)

    def settle(self) -> None:
        self._db.flush()
        self._db.compact_range(None, None)

    def close(self) -> None:
        self._db.close()


class RocksDict4k(RocksDict):
    """The same with blocks of 4 KiB, which are RocksDB's default."""

    block_size = 4 << 10


class Lmdb:
    """LMDB. Its pages are those of the system's cache, which no setting bounds.

    Relaxed writes go through a map of the file, which its documentation calls faster.
    """

    def __init__(self, path: Path, memory: int) -> None:
        import lmdb

        self.settings = (
            f"{version('lmdb')}, map of 64 GiB, the system's cache, relaxed with writemap"
        )
        self._lmdb, self._path = lmdb, path
        self._open(durable=True)

    def _open(self, durable: bool) -> None:
        self._durable = durable
        self._db = self._lmdb.open(
            str(self._path),
            map_size=64 << 30,
            sync=durable,
            metasync=durable,
            writemap=not durable,
            max_dbs=0,
        )

    def _be(self, durable: bool) -> None:
        if durable != self._durable:
            self._db.close()
            self._open(durable)

    def put(self, key: bytes, value: bytes, durable: bool) -> None:
        self._be(durable)
        with self._db.begin(write=True) as txn:
            txn.put(key, value)

    def batch(self, rows: list[Row], durable: bool) -> None:
        self._be(durable)
        with self._db.begin(write=True) as txn, txn.cursor() as cursor:
            cursor.putmulti(rows)

    def get(self, key: bytes) -> bytes | None:
        with self._db.begin() as txn:
            found: bytes | None = txn.get(key)
            return found

    def range(self, start: bytes, limit: int | None) -> Iterable[Row]:
        with self._db.begin() as txn, txn.cursor() as cursor:
            if cursor.set_range(start):
                rows = cursor.iternext(keys=True, values=True)
                yield from rows if limit is None else first(rows, limit)

    def settle(self) -> None:
        self._db.sync(True)

    def close(self) -> None:
        self._db.close()


class Plyvel:
    """LevelDB by plyvel, with its default blocks of 4 KiB, of which a look-up reads one."""

    def __init__(self, path: Path, memory: int) -> None:
        import plyvel

        buffer, cache = max(memory // 8, 4 << 20), max(memory * 3 // 4, 8 << 20)
        self.settings = (
            f"{version('plyvel')}, blocks of 4 KiB, filters of 10 bits, cache {mib(cache)}, "
            f"write buffer {mib(buffer)}"
        )
        self._db = plyvel.DB(
            str(path), create_if_missing=True, write_buffer_size=buffer, lru_cache_size=cache,
            bloom_filter_bits=10, compression=None,
        )

    def put(self, key: bytes, value: bytes, durable: bool) -> None:
        self._db.put(key, value, sync=durable)

    def batch(self, rows: list[Row], durable: bool) -> None:
        with self._db.write_batch(sync=durable) as batch:
            for key, value in rows:
                batch.put(key, value)

    def get(self, key: bytes) -> bytes | None:
        found: bytes | None = self._db.get(key)
        return found

    def range(self, start: bytes, limit: int | None) -> Iterable[Row]:
        rows = self._db.iterator(start=start)
        return rows if limit is None else first(rows, limit)

    def settle(self) -> None:
        self._db.compact_range()

    def close(self) -> None:
        self._db.close()


class Sqlite:
    """SQLite with a write-ahead log, a table without row numbers, and the lock of one process."""

    def __init__(self, path: Path, memory: int) -> None:
        import sqlite3

        path.mkdir()
        self.settings = (
            f"{sqlite3.sqlite_version}, WAL, WITHOUT ROWID, locking_mode EXCLUSIVE, "
            f"cache {mib(memory)}"
        )
        self._db = sqlite3.connect(path / "db", isolation_level=None)
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute(f"PRAGMA cache_size = {-(memory // 1024)}")
        self._db.execute("CREATE TABLE t (k BLOB PRIMARY KEY, v BLOB) WITHOUT ROWID")
        self._durable: bool | None = None

    def _be(self, durable: bool) -> None:
        if durable != self._durable:
            self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._durable = durable

    def put(self, key: bytes, value: bytes, durable: bool) -> None:
        self._be(durable)
        self._db.execute("INSERT OR REPLACE INTO t VALUES (?, ?)", (key, value))

    def batch(self, rows: list[Row], durable: bool) -> None:
        self._be(durable)
        self._db.execute("BEGIN")
        self._db.executemany("INSERT OR REPLACE INTO t VALUES (?, ?)", rows)
        self._db.execute("COMMIT")

    def get(self, key: bytes) -> bytes | None:
        found = self._db.execute("SELECT v FROM t WHERE k = ?", (key,)).fetchone()
        return None if found is None else found[0]

    def range(self, start: bytes, limit: int | None) -> Iterable[Row]:
        most = -1 if limit is None else limit
        return self._db.execute("SELECT k, v FROM t WHERE k >= ? ORDER BY k LIMIT ?", (start, most))

    def settle(self) -> None:
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        self._db.close()


STORES: dict[str, type[Store]] = {
    "terrace": Terrace,
    "rocksdict, 16 KiB": RocksDict,
    "rocksdict, 4 KiB": RocksDict4k,
    "lmdb": Lmdb,
    "plyvel": Plyvel,
    "sqlite3": Sqlite,
}


def first(rows: Iterable[Row], limit: int) -> Iterator[Row]:
    """So many rows."""
    for row, _ in zip(rows, range(limit), strict=False):
        yield row


def version(package: str) -> str:
    """The version of an installed package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return str(getattr(__import__(package), "__version__", "of unknown version"))


def mib(size: int) -> str:
    """A size in whole MiB."""
    return f"{size >> 20} MiB"


def bytes_on_disk(path: Path) -> int:
    """Bytes of all files of a store, as the device has them."""
    return sum(file.stat().st_blocks * 512 for file in path.rglob("*") if file.is_file())


def remove(path: Path) -> None:
    """Removes a store."""
    shutil.rmtree(path, ignore_errors=True)
