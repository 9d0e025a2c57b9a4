"""Pending commits in event loops of asyncio.

The engine wakes a loop through a pipe, without the lock of the interpreter. The loop then looks
which of its commits have ended. So no thread of the engine runs Python, or waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any
from weakref import WeakKeyDictionary

from terrace._terrace import PendingCommit, Wakeup


class _Waits:
    """What the tasks of one event loop wait for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._wakeup = Wakeup()
        self._commits: dict[asyncio.Future[None], PendingCommit] = {}
        loop.add_reader(self._wakeup.fileno(), self._look)

    def wait(
        self, commit: PendingCommit, future: asyncio.Future[None]
    ) -> Generator[Any, None, None]:
        self._commits[future] = commit
        try:
            if commit._wake(self._wakeup):
                yield from future
        finally:
            del self._commits[future]

    def _look(self) -> None:
        self._wakeup.clear()
        for future, commit in self._commits.items():
            if not future.done() and not commit._wake(self._wakeup):
                future.set_result(None)


_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Waits] = WeakKeyDictionary()


def wait(commit: PendingCommit) -> Generator[Any, None, None]:
    """What ``await commit`` runs."""
    loop = asyncio.get_running_loop()
    waits = _loops.get(loop)
    if waits is None:
        waits = _loops[loop] = _Waits(loop)
    yield from waits.wait(commit, loop.create_future())
    commit.wait()
