"""Pending commits in event loops of asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path

import pytest

import terrace
from terrace import _await


def enqueue(db: terrace.Database, key: bytes) -> terrace.PendingCommit:
    batch = db.batch()
    batch.put(db["t"], key, b"")
    return db.enqueue(batch)


def waiting() -> int:
    """How many commits the tasks of the running loop wait for."""
    waits = _await._loops.get(asyncio.get_running_loop())
    return 0 if waits is None else len(waits._commits)


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


def test_several_tasks_await_one_commit(db: terrace.Database) -> None:
    async def main() -> None:
        commit = enqueue(db, b"k")

        async def wait() -> None:
            await commit

        await asyncio.wait_for(asyncio.gather(*[wait() for _ in range(10)]), 60)
        assert waiting() == 0

    asyncio.run(main())


def test_a_cancelled_task_leaves_nothing_behind(tmp_path: Path) -> None:
    """A commit that the shared store does not acknowledge is awaited until its task is cancelled.
    Other tasks of the loop go on meanwhile, and other commits are awaited."""
    bucket = tmp_path / "bucket"
    db = terrace.open(
        tmp_path / "db", pm_size="4MiB", object_store=f"file://{bucket}", share=True
    )
    table = db["t"]
    table.put(b"first", b"", durability="remote")
    bucket.rename(tmp_path / "away")
    bucket.write_bytes(b"")

    async def main() -> None:
        batch = db.batch()
        batch.put(table, b"remote", b"")

        async def wait() -> None:
            await db.enqueue(batch, durability="remote")

        task = asyncio.create_task(wait())
        while waiting() == 0:
            await asyncio.sleep(0)
        await asyncio.wait_for(enqueue(db, b"k"), 60)
        assert not task.done() and waiting() == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert waiting() == 0

    asyncio.run(main())
    assert b"remote" in table and b"k" in table
    bucket.unlink()
    (tmp_path / "away").rename(bucket)
    db.close()


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
