"""Events: a function of Python is told of what a database does."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import terrace

LONG = 120


def test_events_are_dictionaries_and_close_waits_for_them(path: Path) -> None:
    """The function needs the interpreter's lock while `close` waits for it."""
    told: list[dict[str, Any]] = []
    with terrace.open(path, pm_size="4MiB", on_event=told.append) as db:
        db["t"][b"key"] = b"value"
        db["t"].compact_range()
    names = [event["event"] for event in told]
    assert names[0] == "opened" and names[-1] == "closed" and "drain" in names
    opened = told[0]
    assert opened["mode"] == "file" and opened["read_only"] is False
    assert opened["records_rebuilt"] == 0 and told[-1]["error"] is None
    assert [event["number"] for event in told] == sorted(event["number"] for event in told)
    flush = told[names.index("flush")]
    assert flush["table"] == "t" and flush["records"] == 1


def test_no_function_and_none_are_the_same(path: Path) -> None:
    terrace.open(path, pm_size="4MiB", on_event=None).close()
    with pytest.raises(TypeError, match="on_event takes a function, or None"):
        terrace.open(path, on_event=7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="on_event"):
        terrace.create(path.with_name("other"), on_event="f")  # type: ignore[arg-type]


def test_what_the_function_raises_goes_to_the_hook(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", raised.append)

    def fails(event: dict[str, Any]) -> None:
        raise KeyError(event["event"])

    db = terrace.open(path, pm_size="4MiB", on_event=fails)
    db["t"][b"key"] = b"value"
    db.close()
    assert [type(one.exc_value) for one in raised[:1]] == [KeyError]
    assert [one.exc_value.args[0] for one in raised][-1] == "closed"
    assert all(one.object is fails for one in raised)
    with terrace.open(path) as db:
        assert db["t"][b"key"] == b"value"


def test_the_function_writes_and_closes_the_database(path: Path) -> None:
    """Bug: a database that its function closes never closed. Cause: `close` worked on a thread of
    its own, and waited there for the function. Fix: the function's thread closes by itself."""
    opened: list[terrace.Database] = []
    ready, closed = threading.Event(), threading.Event()

    def writes_and_closes(event: dict[str, Any]) -> None:
        if event["event"] == "opened":
            ready.wait(LONG)
            [db] = opened
            db["t"][b"of"] = b"the function"
            assert db["t"][b"of"] == b"the function"
            assert len(list(db["t"].items())) == 1
            db.close()
        elif event["event"] == "closed":
            closed.set()

    db = terrace.open(path, pm_size="4MiB", on_event=writes_and_closes)
    opened.append(db)
    ready.set()
    assert closed.wait(LONG)
    db.close()
    with pytest.raises(terrace.ClosedError):
        db["t"][b"key"]
    with terrace.open(path) as db:
        assert db["t"][b"of"] == b"the function"


def test_followers_tell_too(path: Path, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"
    told: list[dict[str, Any]] = []
    with terrace.open(path, pm_size="4MiB", object_store=url, share=True) as db:
        db["t"].put(b"key", b"value", durability="remote")
        options: dict[str, Any] = {"pm_size": "4MiB", "on_event": told.append}
        terrace.follow(url, tmp_path / "follower", **options).close()
    roles = [event["role"] for event in told if event["event"] == "role_change"]
    assert roles == ["follower"]
