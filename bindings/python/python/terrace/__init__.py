"""Terrace, an embedded, transactional key-value store.

>>> import tempfile, terrace
>>> folder = tempfile.TemporaryDirectory()
>>> with terrace.open(folder.name + "/people.db", pm_size="4MiB") as db:
...     users = db["users"]
...     users[b"ada"] = b"Ada Lovelace, 1815"
...     users[b"alan"] = b"Alan Turing, 1912"
...     list(users.keys(prefix=b"al"))
[b'alan']
"""

from collections.abc import Mapping, MutableMapping

from terrace._terrace import (
    Attempt,
    BackupSet,
    Batch,
    Database,
    Follower,
    PendingCommit,
    Rows,
    Snapshot,
    Table,
    Transaction,
    Transactions,
    __version__,
    create,
    follow,
    forget_follower,
    open,
    open_shared,
    option_names,
    restore,
    salvage,
    shared_status,
    standby,
    verify,
)
from terrace.errors import (
    BusyError,
    CancelledError,
    ClosedError,
    ConflictError,
    CorruptError,
    Damage,
    DeadlockError,
    Error,
    ExistsError,
    FencedError,
    FullError,
    InternalError,
    InvalidError,
    MissingDatabaseError,
    MissingTableError,
    NotFoundError,
    PicklingError,
    RetryableError,
    TimeoutError,
    TooLargeError,
    UnavailableError,
    UnknownOutcomeError,
    Unreadable,
    WrongTypeError,
)

Mapping.register(Database)
MutableMapping.register(Table)

__all__ = [
    "Attempt",
    "BackupSet",
    "Batch",
    "BusyError",
    "CancelledError",
    "ClosedError",
    "ConflictError",
    "CorruptError",
    "Damage",
    "Database",
    "DeadlockError",
    "Error",
    "ExistsError",
    "FencedError",
    "Follower",
    "FullError",
    "InternalError",
    "InvalidError",
    "MissingDatabaseError",
    "MissingTableError",
    "NotFoundError",
    "PendingCommit",
    "PicklingError",
    "RetryableError",
    "Rows",
    "Snapshot",
    "Table",
    "TimeoutError",
    "TooLargeError",
    "Transaction",
    "Transactions",
    "UnavailableError",
    "UnknownOutcomeError",
    "Unreadable",
    "WrongTypeError",
    "__version__",
    "create",
    "follow",
    "forget_follower",
    "open",
    "open_shared",
    "option_names",
    "restore",
    "salvage",
    "shared_status",
    "standby",
    "verify",
]
