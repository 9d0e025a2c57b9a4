"""Progress of long calls: what is told, and how `False`, an exception and Ctrl-C end them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import terrace

#: A call with a function that is told of progress. It opens what it needs by itself.
Work = Callable[[Path, Any], object]


def fill(path: Path) -> None:
    with terrace.open(path / "db", pm_size="4MiB") as db:
        db["t"].bulk_load((b"%06d" % n, os.urandom(300)) for n in range(6000))
        db["t"].update({b"new %04d" % n: os.urandom(300) for n in range(3000)})
        db.backup(path / "set")
        db["t"].update({b"last %04d" % n: os.urandom(300) for n in range(1000)})


def of_open(call: Callable[[terrace.Database, Path, Any], object]) -> Work:
    def work(path: Path, told: Any) -> None:
        with terrace.open(path / "db") as db:
            call(db, path, told)

    return work


def rows() -> Iterator[tuple[bytes, bytes]]:
    return ((b"load %06d" % n, b"value") for n in range(5000))


WORK: dict[str, tuple[str, Work]] = {
    "open": ("open", lambda path, told: terrace.open(path / "db", progress=told).close()),
    "read only": (
        "open",
        lambda path, told: terrace.open(path / "db", read_only=True, progress=told).close(),
    ),
    "verify": ("verify", lambda path, told: terrace.verify(path / "db", progress=told)),
    "verify of open": ("verify", of_open(lambda db, _, told: db.verify(progress=told))),
    "verify of set": (
        "verify",
        lambda path, told: terrace.BackupSet(path / "set").verify(progress=told),
    ),
    "backup": ("backup", of_open(lambda db, path, told: db.backup(path / "set", progress=told))),
    "restore": (
        "restore",
        lambda path, told: terrace.restore(path / "set", path / "to", progress=told),
    ),
    "restore of one": (
        "restore",
        lambda path, told: terrace.BackupSet(path / "set").restore(1, path / "to", progress=told),
    ),
    "salvage": ("salvage", lambda path, told: terrace.salvage(path / "db", path / "to", progress=told)),
    "bulk load": (
        "bulk_load",
        of_open(lambda db, _, told: db["loaded"].bulk_load(rows(), progress=told)),
    ),
}


@pytest.fixture
def interrupts() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also where the tests run as a background job of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def check_left(path: Path, name: str) -> None:
    """What a call leaves that was ended; done once more, it comes to its end."""
    assert len(terrace.BackupSet(path / "set").list()) == 1
    assert terrace.verify(path / "db")["damages"] == []
    with terrace.open(path / "db") as db:
        assert len(list(db["t"].keys())) == 10_000
        assert not list(db["loaded"].keys())
    with pytest.raises(terrace.InvalidError):
        terrace.open(path / "to", must_exist=True)
    WORK[name][1](path, None)


@pytest.mark.parametrize("name", WORK)
def test_each_long_call_tells_how_far_it_is(tmp_path: Path, name: str) -> None:
    fill(tmp_path)
    operation, work = WORK[name]
    told: list[Any] = []
    threads: set[int] = set()

    def tell(at: Any) -> None:
        threads.add(threading.get_ident())
        told.append(at)

    work(tmp_path, tell)
    assert len(told) >= 2 and threads == {threading.get_ident()}
    assert {at["operation"] for at in told} == {operation}
    assert set(told[0]) == {"operation", "done", "total", "unit"}
    done = [at["done"] for at in told]
    assert done == sorted(done) and done[0] == 0 and done[-1] == told[-1]["total"] > 0


@pytest.mark.parametrize("name", WORK)
def test_false_ends_each_long_call(tmp_path: Path, name: str) -> None:
    fill(tmp_path)
    told: list[Any] = []

    def end(at: Any) -> bool:
        told.append(at)
        return False

    with pytest.raises(terrace.CancelledError) as raised:
        WORK[name][1](tmp_path, end)
    assert len(told) == 1 and raised.value.kind == "cancelled"
    report = raised.value.report
    assert (report is not None) == name.startswith("verify")
    assert report is None or report["not_checked"] != []
    check_left(tmp_path, name)


@pytest.mark.parametrize("name", WORK)
def test_an_exception_ends_each_long_call(tmp_path: Path, name: str) -> None:
    fill(tmp_path)
    told: list[Any] = []

    def fail(at: Any) -> None:
        told.append(at)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        WORK[name][1](tmp_path, fail)
    assert len(told) == 1
    check_left(tmp_path, name)


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("name", WORK)
def test_ctrl_c_ends_each_long_call(tmp_path: Path, name: str) -> None:
    """Bug: after Ctrl-C a call raised, and its work went on to its end in a thread. Cause: nothing
    told the engine. Fix: the work ends, and the call with it."""
    fill(tmp_path)
    told: list[Any] = []

    def interrupt(at: Any) -> None:
        told.append(at)
        os.kill(os.getpid(), signal.SIGINT)
        # The interpreter looks at signals between two of its own steps.
        for _ in range(1000):
            pass

    with pytest.raises(KeyboardInterrupt):
        WORK[name][1](tmp_path, interrupt)
    assert len(told) == 1
    check_left(tmp_path, name)


@pytest.mark.usefixtures("interrupts")
def test_ctrl_c_ends_a_call_whose_progress_nobody_is_told(tmp_path: Path) -> None:
    """A signal that comes while the engine works is seen, and the work ends: the directory is free
    for the next opening."""
    fill(tmp_path)
    interrupted = 0
    for _ in range(60):
        ended = threading.Event()

        def interrupt(ended: threading.Event = ended) -> None:
            if not ended.wait(0.002):
                os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        try:
            thread.start()
            assert terrace.verify(tmp_path / "db")["damages"] == []
            ended.set()
            thread.join()
        except KeyboardInterrupt:
            interrupted += 1
            thread.join()
        terrace.open(tmp_path / "db").close()
    assert interrupted > 0


def test_a_closing_is_told_and_cannot_be_ended(path: Path) -> None:
    told: list[Any] = []

    def end(at: Any) -> bool:
        told.append(at)
        return False

    db = terrace.open(path, pm_size="4MiB", progress=end)
    assert told == [], "what was just made is there whatever the function says"
    db["t"][b"k"] = b"v"
    db.close(progress=end)
    assert [at["unit"] for at in told] == ["steps"] * len(told) and len(told) >= 2
    with terrace.open(path) as again:
        assert again["t"][b"k"] == b"v"
        db = again
    created = terrace.create(path.parent / "created", pm_size="4MiB", progress=end)
    created.close()


def test_calls_of_the_database_inside_of_the_function_are_refused(path: Path) -> None:
    """Bug: such a call hung. Cause: it waited for the work, and the work for the function."""
    with terrace.open(path, pm_size="4MiB") as db, terrace.open(
        path.parent / "other", pm_size="4MiB"
    ) as other:
        table, others = db["t"], other["t"]
        table[b"k"] = b"v"
        calls: list[Callable[[], object]] = [
            lambda: table.put(b"k", b"2"),
            lambda: table.get(b"k"),
            lambda: db.verify(),
            lambda: db.verify(progress=print),
            lambda: db.backup(path.parent / "set"),
            lambda: db.run(lambda txn: txn.put(table, b"k", b"2")),
            lambda: db.close(),
        ]
        answers: list[BaseException | None] = []

        def tell(_: object) -> None:
            others[b"k"] = b"v"
            for call in calls:
                try:
                    call()
                    answers.append(None)
                except terrace.InvalidError as error:
                    answers.append(error)

        assert db.verify(progress=tell)["damages"] == []
        assert len(answers) >= 2 * len(calls)
        assert all("progress" in str(answer) for answer in answers), answers
        assert table[b"k"] == b"v" and others[b"k"] == b"v"


def test_a_function_that_is_told_of_events_may_work_and_be_told(path: Path) -> None:
    told: list[Any] = []
    done = threading.Event()
    held: list[terrace.Database] = []
    opened = threading.Event()

    def on_event(event: dict[str, Any]) -> None:
        if event["event"] == "opened":
            opened.wait(60)
            held[0].verify(progress=told.append)
            held[0].close(progress=told.append)
            done.set()

    held.append(terrace.open(path, pm_size="4MiB", on_event=on_event))
    opened.set()
    assert done.wait(60) and {at["operation"] for at in told} == {"verify"}


def test_progress_takes_a_function(path: Path) -> None:
    wrong: Any = 7
    with pytest.raises(TypeError, match="progress"):
        terrace.open(path, progress=wrong)
    with terrace.open(path, pm_size="4MiB") as db, pytest.raises(TypeError, match="progress"):
        db.verify(progress=wrong)


def test_false_ends_a_compaction(db: terrace.Database) -> None:
    table = db["t"]
    for round in range(4):
        table.update({b"%d %05d" % (round, n): bytes(300) for n in range(3000)})
    calls: list[object] = []

    def end(at: object) -> bool:
        calls.append(at)
        return False

    done = table.compact_range(progress=end)
    assert done["is_finished"] or len(calls) == 1
