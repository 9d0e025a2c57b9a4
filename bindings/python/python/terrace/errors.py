"""The exceptions of Terrace, one for each kind of error.

Each is an :class:`Error`, and what Python calls such a failure: a ``KeyError``, a ``ValueError``, a
``TimeoutError``, an ``OSError`` or a ``RuntimeError``. The kind says what to do, and the message
has names and numbers.
"""

from __future__ import annotations

import builtins
import pickle
from typing import Any, ClassVar, TypedDict


class Damage(TypedDict):
    """Where stored bytes are not what was written."""

    tier: str
    file: str
    offset: int
    what: str
    expected: str
    got: str


class Unreadable(TypedDict):
    """What could not be read, so that nothing is known of it."""

    tier: str
    file: str
    offset: int
    what: str
    error: str


class Error(Exception):
    """What every error of Terrace is."""

    kind: ClassVar[str] = "error"


class NotFoundError(Error, KeyError):
    """The table has no such key."""

    kind = "not found"


class InvalidError(Error, ValueError):
    """The request can never succeed as it stands. Change the request."""

    kind = "invalid"


class MissingDatabaseError(InvalidError, FileNotFoundError):
    """There is no database in the directory. Name another one, or create a database."""

    kind = "missing database"


class MissingTableError(InvalidError, KeyError):
    """There is no table of that name, or the table of the object was dropped."""

    kind = "missing table"
    # A KeyError shows its argument as a key.
    __str__ = Exception.__str__


class ExistsError(InvalidError):
    """What was to be made is there already: a database, a table, a file or a key of a bulk load."""

    kind = "exists"


class TooLargeError(InvalidError):
    """A key, a value, a name, a batch or a transaction is over its limit. Split it."""

    kind = "too large"


class WrongTypeError(InvalidError):
    """A typed table was opened with other types than it was written with."""

    kind = "wrong type"


class RetryableError(Error):
    """The transaction met another one and was rolled back. Run it again."""

    kind = "retryable"


class ConflictError(RetryableError):
    """Another transaction changed what this one read or wrote. Run it again."""

    kind = "conflict"


class DeadlockError(RetryableError):
    """Two transactions waited for each other, and this one was rolled back. Run it again."""

    kind = "deadlock"


class TimeoutError(Error, builtins.TimeoutError):
    """A deadline passed. Try later or wait longer."""

    kind = "timeout"


class FullError(Error, OSError):
    """Space ran out. Free some; reads and deletes go on meanwhile."""

    kind = "full"


class UnavailableError(Error, OSError):
    """Something outside failed.

    A forked child gets this error for a database of its parent. Mend the cause, then open again.
    """

    kind = "unavailable"


class BusyError(UnavailableError):
    """Another process has the database open, or another caller changes the backup set.

    Close it there, or try later.
    """

    kind = "busy"


class UnknownOutcomeError(Error, OSError):
    """Something failed while a commit was under way; the message says which of two cases it is.

    The device failed and the database stopped: open again, and look whether the commit is there.
    Or a commit with ``durability="remote"`` is durable on this machine, and the shared store has
    not acknowledged it: it is here, and the database goes on.
    """

    kind = "unknown outcome"


class CorruptError(Error, OSError):
    """Stored bytes are not what was written. ``damage`` has the place."""

    kind = "corrupt"
    damage: Damage | None = None


class FencedError(Error, OSError):
    """Another opening took the object store of the database over. Close this one."""

    kind = "fenced"


class ClosedError(Error, ValueError):
    """The database was closed, or what the object stood for has ended."""

    kind = "closed"


class CancelledError(Error, RuntimeError):
    """The call was ended while it told how far it was. ``report`` has what a verification had found,
    and under ``not_checked`` where it had not looked."""

    kind = "cancelled"
    report: dict[str, Any] | None = None


class InternalError(Error, RuntimeError):
    """The library has a bug. Close the database, and report the message."""

    kind = "internal"


class PicklingError(Error, pickle.PicklingError, TypeError):
    """What is open in this process cannot be pickled or copied."""

    kind = "not picklable"
