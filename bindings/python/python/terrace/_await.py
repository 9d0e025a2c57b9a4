"""Pending commits in event loops of asyncio.

The engine wakes a loop through a pipe, without the lock of the interpreter. The loop then looks
at the commits that have ended. So no thread of the engine runs Python, or waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary, ref

from terrace._terrace import PendingCommit, Wakeup


class _Waits:
    """What the tasks of one event loop wait for. The loop alone keeps it: it has the loop's futures,
    and a loop that is given up goes with its commits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._wakeup = Wakeup()
        # By what they are called in `Wakeup`: what they are called there is theirs while they are
        # here.
        self._commits: dict[int, tuple[PendingCommit, set[asyncio.Future[None]]]] = {}
        loop.add_reader(self._wakeup.fileno(), self._look)

    def wait(
        self, commit: PendingCommit, future: asyncio.Future[None]
    ) -> Generator[Any, None, None]:
        name = id(commit)
        _, futures = self._commits.setdefault(name, (commit, set()))
        futures.add(future)
        try:
            if commit._wake(self._wakeup, name):
                yield from future
        finally:
            futures.remove(future)
            if not futures:
                del self._commits[name]

    def _look(self) -> None:
        for name in self._wakeup.ended():
            commit, futures = self._commits.get(name, (None, set()))
            if commit is not None and not commit._wake(self._wakeup, name):
                for future in futures:
                    if not future.done():
                        future.set_result(None)


_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, ReferenceType[_Waits]] = WeakKeyDictionary()


def wait(commit: PendingCommit) -> Generator[Any, None, None]:
    """What ``await commit`` runs."""
    loop = asyncio.get_running_loop()
    known = _loops.get(loop)
    waits = known() if known is not None else None
    if waits is None:
        waits = _Waits(loop)
        _loops[loop] = ref(waits)
    yield from waits.wait(commit, loop.create_future())
    commit.wait()
