"""Pending commits in event loops of asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from weakref import ref

import pytest

import terrace
from terrace import _await
from terrace._terrace import Wakeup


def enqueue(db: terrace.Database, key: bytes) -> terrace.PendingCommit:
    batch = db.batch()
    batch.put(db["t"], key, b"")
    return db.enqueue(batch)


def waiting() -> int:
    """How many commits the tasks of the running loop wait for."""
    known = _await._loops.get(asyncio.get_running_loop())
    waits = None if known is None else known()
    return 0 if waits is None else len(waits._commits)


@pytest.fixture
def away(tmp_path: Path) -> Iterator[terrace.Database]:
    """A shared database whose store is busy: somebody else has its lock all the time."""
    bucket = tmp_path / "bucket"
    db = terrace.open(
        tmp_path / "db", pm_size="4MiB", object_store=f"file://{bucket}", share=True
    )
    db["t"].put(b"first", b"", durability="remote")
    with (bucket / "LOCK").open("r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield db
    db.close()


def enqueue_remote(db: terrace.Database) -> terrace.PendingCommit:
    """A commit that waits for a store that is away, without end."""
    batch = db.batch()
    batch.put(db["t"], b"remote", b"")
    return db.enqueue(batch, durability="remote")


def test_many_tasks_await_their_commits(db: terrace.Database) -> None:
    async def save(number: int) -> int:
        commit = enqueue(db, b"%04d" % number)
        await commit
        await commit
        return commit.number

    async def main() -> list[int]:
        numbers = await asyncio.gather(*map(save, range(200)))
        assert waiting() == 0
        return numbers

    for _ in range(2):
        numbers = asyncio.run(main())
        assert sorted(set(numbers)) == sorted(numbers)
    assert len(db["t"]) == 200


def test_loops_of_several_threads_await_at_once(db: terrace.Database) -> None:
    raised: list[BaseException] = []

    def work(name: bytes) -> None:
        async def main() -> None:
            for number in range(50):
                await enqueue(db, name + b"%d" % number)

        try:
            asyncio.run(main())
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=work, args=(b"%d/" % number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert raised == [] and len(db["t"]) == 200


def test_a_thread_that_looks_takes_no_end_from_a_loop(db: terrace.Database) -> None:
    """Bug: a task hung for ever. Cause: a thread that polled saw the end first, and woke threads
    alone; the engine wakes once. Fix: who sees the end wakes all."""

    async def commits() -> None:
        for number in range(500):
            commit = enqueue(db, b"%04d" % number)
            ended = threading.Event()

            def look(commit: terrace.PendingCommit = commit) -> None:
                while not ended.is_set():
                    with contextlib.suppress(terrace.TimeoutError):
                        return commit.wait(timeout=0)

            thread = threading.Thread(target=look)
            thread.start()
            await asyncio.wait_for(commit, 60)
            ended.set()
            thread.join()

    asyncio.run(commits())


def test_several_tasks_await_one_commit(db: terrace.Database) -> None:
    async def main() -> None:
        commit = enqueue(db, b"k")

        async def wait() -> None:
            await commit

        await asyncio.wait_for(asyncio.gather(*[wait() for _ in range(10)]), 60)
        assert waiting() == 0

    asyncio.run(main())


def test_a_cancelled_task_leaves_nothing_behind(away: terrace.Database) -> None:
    """A commit that the shared store does not acknowledge is awaited until its task is cancelled.
    Other tasks of the loop go on meanwhile, and other commits are awaited."""

    async def main() -> None:
        async def wait() -> None:
            await enqueue_remote(away)

        task = asyncio.create_task(wait())
        while waiting() == 0:
            await asyncio.sleep(0)
        await asyncio.wait_for(enqueue(away, b"k"), 60)
        assert not task.done() and waiting() == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert waiting() == 0

    asyncio.run(main())
    assert b"remote" in away["t"] and b"k" in away["t"]


def test_a_loop_that_is_given_up_is_collected(away: terrace.Database) -> None:
    """Bug: a loop that was closed while a task awaited a commit kept its commits, and so their
    database, for the life of the process. Cause: the table of loops had the loop's futures, which
    have the loop. Fix: the loop alone has them."""

    def leave() -> ref[asyncio.AbstractEventLoop]:
        async def main() -> None:
            while waiting() == 0:
                await asyncio.sleep(0)

        async def wait() -> None:
            await enqueue_remote(away)

        loop = asyncio.new_event_loop()
        # The loop would tell that the task did not end.
        loop.set_exception_handler(lambda *_: None)
        task = loop.create_task(wait())
        loop.run_until_complete(main())
        assert not task.done()
        loop.close()
        return ref(loop)

    left = leave()
    gc.collect()
    assert left() is None


def test_a_loop_is_told_which_commit_has_ended(away: terrace.Database) -> None:
    """Bug: each commit that ended cost a look at all that the loop awaits. Cause: the loop was not
    told which one it was. Fix: the wake-up names it."""
    wakeup, remote = Wakeup(), enqueue_remote(away)
    assert remote._wake(wakeup, 1)
    end = time.monotonic() + 60
    told: list[int] = []
    while 2 not in told and time.monotonic() < end:
        enqueue(away, b"k")._wake(wakeup, 2)
        told += wakeup.ended()
    # The remote one may end too, once.
    assert 2 in told and told.count(1) <= 1 and set(told) <= {1, 2}


def test_an_await_raises_what_a_wait_raises(tmp_path: Path) -> None:
    url = f"file://{tmp_path / 'bucket'}"
    db = terrace.open(tmp_path / "db", pm_size="4MiB", object_store=url, share=True)
    table = db["t"]
    table.put(b"first", b"", durability="remote")

    async def main() -> None:
        batch = db.batch()
        batch.put(table, b"late", b"")
        commit = db.enqueue(batch, durability="remote")
        with pytest.raises(terrace.Error) as awaited:
            await commit
        with pytest.raises(type(awaited.value)):
            commit.wait()

    with terrace.open_shared(url, tmp_path / "second", pm_size="4MiB"):
        asyncio.run(main())
    with contextlib.suppress(terrace.Error):
        db.close()
