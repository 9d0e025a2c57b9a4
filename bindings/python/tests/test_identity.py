"""Calls mean the table of their handle, and changes of several threads are all there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import terrace


def together(*works: Callable[[], object]) -> None:
    """Runs functions at once, each on a thread of its own, and raises what one of them raises."""
    barrier, raised = threading.Barrier(len(works)), list[BaseException]()

    def run(work: Callable[[], object]) -> None:
        barrier.wait()
        try:
            work()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    for error in raised:
        raise error


def replaced_by_drop(db: terrace.Database) -> tuple[terrace.Table, terrace.Table]:
    old = db["orders"]
    db.drop_table("orders")
    return old, db["orders"]


def replaced_by_rename(db: terrace.Database) -> tuple[terrace.Table, terrace.Table]:
    old, new = db["orders"], db["staging"]
    db.drop_table(old)
    db.rename_table("staging", "orders")
    return old, new


@pytest.mark.parametrize("replace", [replaced_by_drop, replaced_by_rename])
def test_a_stale_handle_never_reaches_the_table_that_has_its_name(
    db: terrace.Database, replace: Callable[..., tuple[terrace.Table, terrace.Table]]
) -> None:
    """Bug: `truncate()` through the handle of a dropped table emptied the table that had its name
    by then. Cause: the call went by name. Fix: it goes by the table of the handle."""
    old, new = replace(db)
    new[b"2"] = b"precious"
    calls: list[Callable[[], object]] = [
        old.truncate, old.stats, lambda: db.truncate_table(old), lambda: db.drop_table(old),
        lambda: db.rename_table(old, "other"), lambda: db.set_table_options(old, ttl=1),
        lambda: db.__delitem__(old),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(terrace.InvalidError, match="was dropped"):
            call()
            pytest.fail(f"call {number} went through")
    assert list(new.items()) == [(b"2", b"precious")] and new.options["ttl"] is None
    assert db.table_names() == ["orders"]


def test_a_handle_is_followed_through_renames(db: terrace.Database) -> None:
    """Bug, cause and fix as above: a rename in between let `truncate()` hit the wrong table."""
    first, second = db["a"], db["b"]
    for table in (first, second):
        table[b"k"] = table.name.encode()
    db.rename_table(first, "c")
    db.rename_table(second, "a")
    first.truncate()
    assert list(first) == [] and list(second) == [b"k"]
    db.set_table_options(second, block_size="8KiB")
    assert second.options["block_size"] == 8192 and first.options["block_size"] != 8192
    db.drop_table(first)
    assert db.table_names() == ["a"]


def test_handles_of_another_database_are_refused(db: terrace.Database, tmp_path: Path) -> None:
    with terrace.open(tmp_path / "other", pm_size="4MiB") as other:
        foreign, own = other["t"], db["t"]
        own[b"k"] = b""
        for call in (db.truncate_table, db.drop_table):
            with pytest.raises(terrace.InvalidError, match="another database"):
                call(foreign)
        with pytest.raises(TypeError):
            db.drop_table(7)  # type: ignore[arg-type]
        assert list(own) == [b"k"]


def test_a_table_is_opened_or_created_in_one_step(db: terrace.Database) -> None:
    """Bug: of four threads that called `table("jobs", ttl=60)` at once three failed. Cause: the
    call looked for the table, and created it then. Fix: the engine does both in one step."""
    for number in range(30):
        name = f"jobs{number}"

        def work() -> None:
            assert db.table(name, ttl=60).name == name

        together(*[work] * 4)
        assert db[name].options["ttl"] is not None


def test_changes_of_options_at_once_are_all_there(db: terrace.Database) -> None:
    """Bug: of two calls of `set_table_options` at once the options of one were undone. Cause: the
    call read all options, changed some, and wrote all. Fix: the change is made again if another
    one came between."""
    table = db["t"]
    for number in range(60):
        size, bits = 4096 * (1 + number % 4), 8 + number % 7
        together(
            lambda: db.set_table_options("t", block_size=size),
            lambda: db.set_table_options(table, filter_bits=bits),
        )
        options = table.options
        assert (options["block_size"], options["filter_bits"]) == (size, bits)


def test_tables_come_and_go_beside_threads_that_use_their_handles(db: terrace.Database) -> None:
    """Threads empty and drop the tables of their handles while others create tables of the same
    name. No row of a table is lost that no handle of it was used to empty."""
    def churn() -> None:
        for _ in range(25):
            table = db.table("shared")
            try:
                table[b"mine"] = b""
                table.truncate()
                db.drop_table(table)
            except terrace.InvalidError as error:
                assert "was dropped" in str(error)

    kept = db["kept"]
    kept[b"k"] = b"v"
    together(*[churn] * 4)
    assert list(kept.items()) == [(b"k", b"v")]


OPTIONS = [
    {"pm_path": None}, {"pm_path": b"x"}, {"pm_path": 5}, {"mode": None}, {"pm_size": 4.5},
    {"pm_size": True}, {"follower_name": 7}, {"object_store": b"file:///x"}, {"compression": None},
    {"compression": ("lz4", 7)}, {"share": 1}, {"file_permissions": 6.5}, {"threads": [1]},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_options_of_another_class_are_refused(path: Path, options: dict[str, object]) -> None:
    """Bug: `pm_path=None` put the region into a file called `none`, and `pm_path=b"x"` into one
    called `b'x'`. Cause: each value was made text. Fix: an option takes what its text says."""
    [name] = options
    with pytest.raises(TypeError, match=f"option {name} takes|str"):
        terrace.open(path, **options)  # type: ignore[arg-type]
    assert not path.exists()


def test_paths_and_values_that_options_take(path: Path, tmp_path: Path) -> None:
    region = tmp_path / "region"
    with terrace.open(path, pm_size=4 << 20, pm_path=region, memory=None, direct_io=False) as db:
        assert region.exists()
        table = db.table("t", ttl=None, large_values=None, compression="lz4,zstd")
        assert table.options["ttl"] is None
        with pytest.raises(TypeError, match="ttl"):
            db.set_table_options(table, ttl=b"7d")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="lock_wait"):
            db.begin(lock_wait=None)  # type: ignore[arg-type]
        with pytest.raises(terrace.InvalidError, match="no option"):
            db.table("u", unknown=None)  # type: ignore[call-arg]
