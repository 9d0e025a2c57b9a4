"""Batches, snapshots, bulk loads, and what a database tells of itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import terrace


def test_a_batch_commits_at_the_end_of_its_block(db: terrace.Database) -> None:
    a, b = db["a"], db["b"]
    with db.batch() as batch:
        batch.put(a, b"k", b"1")
        batch.put(b, bytearray(b"k"), memoryview(b"2"))
        batch.set_blob(b"position 7")
        assert len(batch) == 2
        assert b"k" not in a
    assert a[b"k"] == b"1" and b[b"k"] == b"2"
    assert db.last_blob() == b"position 7"
    with pytest.raises(terrace.ClosedError):
        batch.put(a, b"x", b"")


def test_a_batch_whose_block_raises_leaves_nothing(db: terrace.Database) -> None:
    table = db["t"]
    with pytest.raises(ZeroDivisionError), db.batch() as batch:
        batch.put(table, b"k", b"1")
        raise ZeroDivisionError
    assert list(table) == []


def test_a_commit_that_is_refused_ends_its_batch(db: terrace.Database) -> None:
    """Bug: a batch whose commit was refused for its durability was committed by the end of its
    block. Cause: the durability was looked at first. Fix: the batch is taken first."""
    table = db["t"]
    with db.batch() as batch:
        batch.put(table, b"k", b"1")
        with pytest.raises(terrace.InvalidError):
            batch.commit(durability="x")  # type: ignore[arg-type]
    assert list(table) == []


def test_in_a_batch_the_last_operation_counts(db: terrace.Database) -> None:
    table = db["t"]
    table[b"b"] = b"old"
    with db.batch() as batch:
        batch.put(table, b"a", b"1")
        batch.delete_range(table, prefix=b"")
        batch.put(table, b"c", b"3")
        batch.delete(table, b"d")
    assert list(table) == [b"c"]
    batch = db.batch()
    batch.put(table, b"e", b"5")
    batch.commit(durability="relaxed")
    assert table[b"e"] == b"5"


def test_a_batch_takes_tables_of_its_database_alone(db: terrace.Database, tmp_path: Path) -> None:
    with terrace.open(tmp_path / "other", pm_size="4MiB") as other:
        foreign = other["t"]
        with pytest.raises(terrace.InvalidError, match="another database"), db.batch() as batch:
            batch.put(foreign, b"k", b"")
        snapshot, txn, batch = db.snapshot(), db.begin(), db.batch()
        batch.delete_range(foreign)
        calls: list[Callable[[], object]] = [
            lambda: snapshot.get(foreign, b"k"), lambda: snapshot.multi_get(foreign, [b"k"]),
            lambda: snapshot.contains_key(foreign, b"k"), lambda: snapshot.first(foreign),
            lambda: list(snapshot.items(foreign)), lambda: txn.put(foreign, b"k", b""),
            lambda: txn.get(foreign, b"k"), lambda: txn.get_for_share(foreign, b"k"),
            lambda: txn.last(foreign), lambda: list(txn.items(foreign)),
            lambda: txn.items(foreign, lock="for_update"), lambda: txn.delete_range(foreign),
            lambda: txn.compare_and_set(foreign, b"k", None, b""), lambda: txn.pop_first(foreign),
            lambda: batch.commit(),
        ]
        for number, call in enumerate(calls):
            with pytest.raises(terrace.InvalidError, match="another database"):
                call()
                pytest.fail(f"call {number} went well")
        txn.roll_back()
        snapshot.close()


def test_commits_can_be_enqueued_and_waited_for(db: terrace.Database) -> None:
    table = db["t"]
    pending = []
    for n in range(5):
        batch = db.batch()
        batch.put(table, bytes([n]), b"")
        pending.append(db.enqueue(batch))
    numbers = [commit.number for commit in pending]
    assert numbers == sorted(set(numbers))
    pending[-1].wait()
    pending[-1].wait()
    assert len(list(table)) == 5


def test_a_sync_makes_relaxed_commits_durable(db: terrace.Database) -> None:
    table = db["t"]
    for n in range(5):
        table.put(bytes([n]), b"", durability="relaxed")

    def syncs() -> int:
        return sum(part["syncs"] for part in db.stats()["persistence"])

    before = syncs()
    db.sync()
    assert syncs() > before
    db.sync()
    db.close()
    with pytest.raises(terrace.ClosedError):
        db.sync()


def test_a_snapshot_stays_as_it_was(db: terrace.Database) -> None:
    table = db["t"]
    table.update({b"a": b"1", b"b": b"2"})
    with db.snapshot() as before:
        table.update({b"a": b"9", b"c": b"3"})
        del table[b"b"]
        assert before.get(table, b"a") == b"1" and before.get(table, b"c", b"-") == b"-"
        assert before.multi_get(table, [b"a", b"c"]) == [b"1", None]
        assert list(before.items(table)) == [(b"a", b"1"), (b"b", b"2")]
        assert before.contains_key(table, b"b")
        assert before.first(table) == (b"a", b"1") and before.last(table) == (b"b", b"2")
        view = before[table]
        assert view[b"a"] == b"1" and b"c" not in view and list(view) == [b"a", b"b"]
        assert view.get(b"c") is None and list(view.values(reverse=True)) == [b"2", b"1"]
        with pytest.raises(KeyError):
            view[b"c"]
        rows = before.items(table)
    with pytest.raises(terrace.ClosedError):
        before.get(table, b"a")
    assert len(list(rows)) == 2, "an iterator keeps what it reads"
    with pytest.raises(TypeError, match="Table"):
        db.snapshot()["t"]  # type: ignore[index]


def test_a_bulk_load_takes_any_iterator(table: terrace.Table) -> None:
    assert table.bulk_load((b"%06d" % n, b"v%d" % n) for n in range(5000)) == 5000
    assert table[b"004711"] == b"v4711"
    assert len(list(table.keys(prefix=b"0012"))) == 100
    with pytest.raises(terrace.InvalidError):
        table.bulk_load({b"004711": b""})
    assert table.bulk_load({b"004711": b"new"}, existing="replace") == 1
    assert table[b"004711"] == b"new"
    with pytest.raises(terrace.InvalidError):
        table.bulk_load([(b"b", b""), (b"a", b"")])
    assert table.bulk_load([]) == 0


def test_a_bulk_load_that_raises_leaves_nothing(table: terrace.Table) -> None:
    def rows() -> Iterator[tuple[bytes, bytes]]:
        for n in range(3000):
            yield b"%06d" % n, b""
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        table.bulk_load(rows())
    for wrong in [[b"ab"], [(b"a",)], [(b"a", "b")], [(b"a", b"b", b"c")], 7]:
        with pytest.raises((TypeError, ValueError)):
            table.bulk_load(wrong)  # type: ignore[arg-type]
    assert list(table) == []


def test_large_values_and_times_to_live(db: terrace.Database) -> None:
    blobs = db.table("blobs", large_values="4KiB", ttl="1h")
    value = bytes(range(256)) * 400
    blobs.bulk_load((b"%04d" % n, value) for n in range(20))
    assert blobs[b"0007"] == value
    assert [len(value) for value in blobs.values(limit=2)] == [102_400] * 2


def test_statistics_estimates_and_verification(db: terrace.Database) -> None:
    table = db["t"]
    table.update({b"%06d" % n: bytes(100) for n in range(2000)})
    stats = db.stats()
    assert stats["commit"]["records"] >= 2000
    assert [found["name"] for found in stats["tables"]] == ["t"]
    assert 1000 < table.approximate_len() < 4000
    assert table.approximate_size(start=b"001000") < table.approximate_size()
    report = db.verify()
    assert report["checked"] > 0
    assert report["damages"] == [] and report["unreadable"] == []
    seen: list[object] = []
    assert table.compact_range(progress=seen.append)["is_finished"]
    assert len(list(table)) == 2000


def test_a_compaction_whose_progress_raises_stops(db: terrace.Database) -> None:
    table = db["t"]
    for _ in range(4):
        table.update({b"%06d" % n: bytes(200) for n in range(3000)})
    calls = []

    def stop(progress: object) -> None:
        calls.append(progress)
        raise ZeroDivisionError

    try:
        table.compact_range(progress=stop)
    except ZeroDivisionError:
        assert len(calls) == 1
    else:
        assert calls == []
    assert len(list(table)) == 3000


def test_a_backup_is_restored(db: terrace.Database, tmp_path: Path) -> None:
    table = db["t"]
    table.update({b"%06d" % n: bytes(100) for n in range(2000)})
    told: list[Any] = []
    info = db.backup(tmp_path / "set", progress=told.append)
    assert info["number"] == 1
    assert told[-1]["operation"] == "backup" and told[-1]["done"] == told[-1]["total"] > 0
    table.delete_range()
    assert db.backup(tmp_path / "set")["number"] == 2
    backups = terrace.BackupSet(tmp_path / "set", pm_size="4MiB")
    assert [backup["number"] for backup in backups.list()] == [1, 2]
    assert backups.verify()["damages"] == []
    backups.restore(1, tmp_path / "first", progress=told.append)
    with terrace.open(tmp_path / "first") as restored:
        assert len(list(restored["t"])) == 2000
    terrace.restore(tmp_path / "set", tmp_path / "last", pm_size="4MiB")
    with terrace.open(tmp_path / "last") as restored:
        assert list(restored["t"]) == []
    backups.delete(1)
    with pytest.raises(terrace.InvalidError):
        backups.restore(1, tmp_path / "again")
    with pytest.raises(terrace.InvalidError):
        terrace.BackupSet(tmp_path / "none")


def test_a_damaged_file_is_told_with_its_place(path: Path, tmp_path: Path) -> None:
    rows = [(b"%06d" % n, b"value %06d" % n * 10) for n in range(20_000)]
    with terrace.open(path, pm_size="4MiB", compression="none") as db:
        db["t"].bulk_load(rows)
    assert terrace.verify(path)["damages"] == []
    value = rows[12_345][1]
    files = [file for file in path.rglob("*") if file.is_file()]
    [extents] = [file for file in files if value in file.read_bytes()]
    with extents.open("r+b") as file:
        file.seek(extents.read_bytes().index(value))
        file.write(bytes(10))
    damages = terrace.verify(path)["damages"]
    assert damages and damages[0]["file"].endswith(extents.name)
    with terrace.open(path) as db, pytest.raises(terrace.CorruptError) as raised:
        list(db["t"].items())
    assert isinstance(raised.value, OSError)
    assert raised.value.damage is not None and raised.value.damage["offset"] > 0
    report = terrace.salvage(path, tmp_path / "rescued")
    assert report["lost"] and 0 < report["records"] < 20_000


def test_verification_and_salvage_take_the_options_of_opening(path: Path, tmp_path: Path) -> None:
    """Bug: a sound database whose region lies elsewhere was told damaged, and its salvage left the
    whole region behind. Cause: `verify` and `salvage` took no options. Fix: they take those of
    `open`."""
    options = {"pm_path": str(tmp_path / "region"), "object_store": f"file://{tmp_path / 'bucket'}"}
    with terrace.open(path, pm_size="4MiB", **options) as db:  # type: ignore[arg-type]
        cold = db.table("cold", cold="object")
        cold.update((b"%04d" % n, b"cold") for n in range(1000))
        cold.compact_range()
        assert cold.stats()["object_bytes"] > 0
        db["hot"][b"k"] = b"v"
    assert terrace.verify(path, **options)["damages"] == []  # type: ignore[arg-type]
    report = terrace.salvage(path, tmp_path / "rescued", **options)  # type: ignore[arg-type]
    assert report["lost"] == []
    with terrace.open(tmp_path / "rescued") as rescued:
        assert len(list(rescued["cold"])) == 1000 and rescued["hot"][b"k"] == b"v"
