"""A database that several machines share: takeovers, followers, standbys."""

from __future__ import annotations

import gc
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import terrace


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path / 'bucket'}"


@pytest.fixture
def writer(url: str, tmp_path: Path) -> Iterator[terrace.Database]:
    options = {"pm_size": "4MiB", "object_store": url, "share": True}
    db = terrace.open(tmp_path / "writer", **options)  # type: ignore[arg-type]
    db["users"].put(b"ada", b"1815", durability="remote")
    yield db
    try:
        db.close()
    except terrace.Error:
        # Another writer has taken the store over.
        pass


def wait_for(follower: terrace.Follower, key: bytes) -> bytes:
    """The value of a key, once a follower has it. It has a minute."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        db = follower.database()
        if "users" in db and (found := db["users"].get(key)) is not None:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{key!r} is not there after a minute: {follower.status()}")


def test_a_follower_shows_what_the_writer_commits(
    writer: terrace.Database, url: str, tmp_path: Path
) -> None:
    with terrace.follow(url, tmp_path / "follower", pm_size="4MiB") as follower:
        assert wait_for(follower, b"ada") == b"1815"
        writer["users"].put(b"alan", b"1912", durability="remote")
        assert wait_for(follower, b"alan") == b"1912"
        status, db = follower.status(), follower.database()
        assert status["commit"] > 0 and status["store"] and status["note"] is None
        assert db.path == status["directory"] and db.path.is_relative_to(tmp_path / "follower")
        with pytest.raises(terrace.InvalidError):
            db["users"][b"emmy"] = b""
        with pytest.raises(terrace.InvalidError, match="missing"):
            db["missing"]
        with pytest.raises(terrace.InvalidError, match=r"terrace\.standby"):
            follower.promote()
        with pytest.raises(terrace.PicklingError):
            pickle.dumps(follower)
    follower.close()
    with pytest.raises(terrace.ClosedError):
        follower.database()


def test_a_standby_becomes_the_writer(
    writer: terrace.Database, url: str, tmp_path: Path
) -> None:
    """The path is that of the database: a node that was promoted names its own directory, which
    holds no database."""
    standby = terrace.standby(url, tmp_path / "standby", pm_size="4MiB")
    assert wait_for(standby, b"ada") == b"1815"
    db = standby.promote()
    db["users"].put(b"grace", b"1906", durability="remote")
    with pytest.raises(terrace.FencedError):
        writer["users"].put(b"emmy", b"1882", durability="remote")
    with pytest.raises(terrace.ClosedError):
        standby.promote()
    path = db.path
    assert path != tmp_path / "standby" and path.is_relative_to(tmp_path / "standby")
    db.close()
    with terrace.open(path, must_exist=True, object_store=url, share=True) as db:
        assert list(db["users"]) == [b"ada", b"grace"]


def test_a_prepared_commit_waits_for_the_store(
    writer: terrace.Database, url: str, tmp_path: Path
) -> None:
    """Bug: a takeover found a transaction prepared whose commit had returned. Cause:
    `commit_prepared` took no durability. Fix: it takes one."""
    txn = writer.begin(durability="remote")
    txn.put(writer["users"], b"alan", b"1912")
    txn.prepare(b"transfer 1")
    writer.commit_prepared(b"transfer 1", durability="remote")
    with terrace.open_shared(url, tmp_path / "other", pm_size="4MiB") as other:
        assert other.list_prepared() == [] and other["users"][b"alan"] == b"1912"


def interrupted_promotion(standby: terrace.Follower) -> None:
    calls = False

    def interrupt(*_: object) -> None:
        if calls:
            raise KeyboardInterrupt
        signal.setitimer(signal.ITIMER_REAL, 0.001)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            # The interpreter looks at no signal between this and the call.
            calls = True
            standby.promote()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("writer")
def test_a_promotion_goes_on_after_ctrl_c(url: str, tmp_path: Path) -> None:
    """Bug: after Ctrl-C in a promotion no process wrote: the database of the promotion was closed,
    and a second call raised ClosedError. Cause: the outcome was dropped. Fix: it is kept for the
    next call."""
    standby = terrace.standby(url, tmp_path / "standby", pm_size="4MiB")
    assert wait_for(standby, b"ada") == b"1815"
    interrupted_promotion(standby)
    db = standby.promote()
    assert db["users"][b"ada"] == b"1815" and db.path == standby.status()["directory"]
    db.close()


@pytest.mark.usefixtures("writer")
def test_a_promotion_that_nobody_asks_for_again_ends_with_its_standby(
    url: str, tmp_path: Path
) -> None:
    """Bug: a standby that was closed after Ctrl-C in a promotion went on as the writer, and kept its
    directory. Cause: the database was kept for a second call as long as the object. Fix: `close`
    closes it."""
    with terrace.standby(url, tmp_path / "standby", pm_size="4MiB") as standby:
        assert wait_for(standby, b"ada") == b"1815"
        interrupted_promotion(standby)
        end = time.monotonic() + 60
        with pytest.raises(terrace.ClosedError):
            while time.monotonic() < end:
                standby.database()
                time.sleep(0.02)
        path = standby.status()["directory"]
    with terrace.open(path, must_exist=True, object_store=url, share=True) as db:
        assert db["users"][b"ada"] == b"1815"
    with pytest.raises(terrace.ClosedError):
        standby.promote()


def test_a_forked_child_does_not_wait_for_a_promotion_of_its_parent(tmp_path: Path) -> None:
    """Bug: `promote` in a forked child waited for ever. Cause: it took the lock that a thread of the
    parent had at the fork. Fix: it asks for the process first."""
    program = (
        "import os, pathlib, signal, sys, threading, time, terrace\n"
        "root = pathlib.Path(sys.argv[1])\n"
        "url = f'file://{root}/bucket'\n"
        "db = terrace.open(root / 'writer', pm_size='4MiB', object_store=url, share=True)\n"
        "db['t'].put(b'k', b'', durability='remote')\n"
        "standby = terrace.standby(url, root / 'standby', pm_size='4MiB')\n"
        "db.close()\n"
        "(root / 'bucket').rename(root / 'away')\n"
        "(root / 'bucket').write_bytes(b'')\n"
        "def promote():\n"
        "    try: standby.promote()\n"
        "    except terrace.Error: pass\n"
        "thread = threading.Thread(target=promote)\n"
        "thread.start()\n"
        "forks = 0\n"
        "while thread.is_alive():\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        signal.alarm(60)\n"
        "        try: standby.promote()\n"
        "        except terrace.UnavailableError: os._exit(0)\n"
        "        os._exit(1)\n"
        "    status = os.waitpid(child, 0)[1]\n"
        "    assert status == 0, status\n"
        "    forks += 1\n"
        "print(forks)\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and int(done.stdout) > 0, done.stderr


@pytest.mark.usefixtures("writer")
def test_a_takeover_has_what_was_remote(url: str, tmp_path: Path) -> None:
    path = tmp_path / "second"
    with terrace.open_shared(url, path, create_tables=False, pm_size="4MiB") as db:
        assert db["users"][b"ada"] == b"1815" and db.path == path
        with pytest.raises(terrace.InvalidError):
            db["typo"]
    with pytest.raises(terrace.InvalidError):
        terrace.open_shared(url, path)


@pytest.mark.usefixtures("writer")
def test_registered_followers_are_listed_until_they_are_forgotten(
    url: str, tmp_path: Path
) -> None:
    follower = terrace.follow(url, tmp_path / "f", pm_size="4MiB", follower_name="reports")
    del follower
    gc.collect()
    found = terrace.shared_status(url)
    assert [known["name"] for known in found["followers"]] == ["reports"] and found["commit"] > 0
    terrace.forget_follower(url, "reports")
    assert terrace.shared_status(url)["followers"] == []
    with pytest.raises(terrace.InvalidError):
        terrace.forget_follower(url, "not a name")


def test_a_store_without_a_shared_database_is_told(tmp_path: Path) -> None:
    url = f"file://{tmp_path / 'empty'}"
    with pytest.raises(terrace.Error, match="no shared database"):
        terrace.shared_status(url)
    with pytest.raises(terrace.Error, match="no shared database"):
        terrace.follow(url, tmp_path / "f", pm_size="4MiB")


def test_a_name_creates_no_table_where_that_is_not_wanted(path: Path) -> None:
    with terrace.create(path, create_tables=False, pm_size="4MiB") as db:
        with pytest.raises(terrace.InvalidError, match="typo"):
            db["typo"]
        db.table("users")[b"ada"] = b"1815"
        assert db["users"][b"ada"] == b"1815" and list(db) == ["users"]
    with terrace.open(path, read_only=True) as db, pytest.raises(terrace.InvalidError):
        db["typo"]
    with terrace.open(path) as db:
        assert list(db["typo"]) == [] and db.path == path
