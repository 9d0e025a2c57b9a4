import os
from collections.abc import (
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Literal, TypedDict, TypeVar, final, overload

import pandas
import pyarrow
from _typeshed import ReadableBuffer as Buffer
from _typeshed import SupportsRead, SupportsWrite
from typing_extensions import Concatenate, ParamSpec, Self, Unpack

from terrace._views import Savepoint, TableView, WritableTableView
from terrace.errors import Damage, Unreadable

_T = TypeVar("_T")
_D = TypeVar("_D")
_P = ParamSpec("_P")
_Row_co = TypeVar("_Row_co", covariant=True)

_Path = str | os.PathLike[str]
_Time = float | timedelta
_Size = int | str
_Switch = bool | str
_Durability = Literal["durable", "relaxed", "remote"]
_Lock = Literal["for_update", "skip_locked"]
_Isolation = Literal["read_committed", "snapshot", "serializable"]

class _DatabaseOptions(TypedDict, total=False):
    pm_size: _Size
    pm_initial_size: _Size
    pm_path: _Path
    mode: str
    index: Literal["volatile", "persistent"]
    cache_size: _Size | None
    memory: _Size | None
    level1_size: _Size | None
    compression: str | tuple[str, str]
    direct_io: _Switch | None
    file_permissions: int | str
    in_memory: _Size | None
    object_store: str | None
    object_cache: _Size
    share: _Switch
    share_retention: _Time | str
    follower_name: str
    slow_operation: _Time | str | None
    history: _Time | str | None
    group_batches: int
    group_bytes: _Size
    own_streams: int
    threads: int
    bytes_per_second: _Size

class _OpeningOptions(_DatabaseOptions, total=False):
    on_event: Callable[[dict[str, Any]], object] | None

class _TableOptions(TypedDict, total=False):
    block_size: _Size
    filter_bits: int
    ttl: _Time | str | None
    large_values: _Size | None
    cold: Literal["ssd", "object"]
    compression: str
    level0: Literal["global-index", "matrix", "triangle"]
    tag: int
    merge_operator: str | None

class _TransactionOptions(TypedDict, total=False):
    isolation: _Isolation
    optimistic: _Switch
    lock_wait: _Time | str
    durability: _Durability
    write_limit: _Size
    spill_at: _Size
    lock_limit: _Size

class _Bounds(TypedDict, total=False):
    prefix: Buffer | None
    start: Buffer | None
    stop: Buffer | None

class _Range(_Bounds, total=False):
    reverse: bool
    limit: int | None

class _LockingRange(_Range, total=False):
    lock: _Lock | None

class _BackupInfo(TypedDict):
    number: int
    commit: int
    created: int
    tables: int
    extents: int
    bytes: int
    added_bytes: int

class _VerifyReport(TypedDict):
    checked: int
    damages: list[Damage]
    unreadable: list[Unreadable]
    commit: int | None
    not_checked: list[str]

class _SalvageReport(TypedDict):
    tables: int
    records: int
    lost: list[Damage]

class _Progress(TypedDict):
    operation: Literal["open", "verify", "backup", "restore", "salvage", "close", "bulk_load"]
    done: int
    total: int
    unit: Literal["bytes", "rows", "steps"]

class _CompactionProgress(TypedDict):
    drains: int
    compactions: int
    is_finished: bool

_Told = Callable[[_Progress], object] | None

class _PreparedInfo(TypedDict):
    id: bytes
    writes: int
    locks: int

class _DumpReport(TypedDict):
    tables: int
    rows: int

class _TransactionInfo(TypedDict):
    id: int
    isolation: _Isolation
    optimistic: bool
    age: float
    snapshot: int | None
    locks: int
    lock_memory: int
    writes: int
    memory: int
    spilled: int
    waits_for: str | None

class _TableSettings(TypedDict):
    block_size: int
    filter_bits: int
    ttl: timedelta | None
    large_values: int | None
    cold: Literal["ssd", "object"]
    compression: str
    level0: Literal["global-index", "matrix", "triangle"]
    tag: int
    merge_operator: str | None

class _NodeStatus(TypedDict):
    store: str
    directory: Path
    commit: int
    entry: int
    lag_ms: int | None
    restarts: int
    missed: int
    gets: int
    note: str | None

class _RegisteredFollower(TypedDict):
    name: str
    entry: int
    base: int | None

class _SharedStatus(TypedDict):
    store: str
    commit: int
    entry: int
    checkpoint: int
    oldest: int
    writer: str
    followers: list[_RegisteredFollower]

class _OptionNames(TypedDict):
    database: dict[str, str]
    table: dict[str, str]
    transaction: dict[str, str]

__all__ = [
    "Attempt",
    "BackupSet",
    "Batch",
    "Database",
    "Follower",
    "PendingCommit",
    "Rows",
    "Snapshot",
    "Table",
    "Transaction",
    "Transactions",
    "Wakeup",
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

__version__: str

def open(
    path: _Path,
    *,
    read_only: bool = False,
    must_exist: bool = False,
    create_tables: bool = True,
    progress: _Told = None,
    **options: Unpack[_OpeningOptions],
) -> Database: ...
def create(
    path: _Path,
    *,
    create_tables: bool = True,
    progress: _Told = None,
    **options: Unpack[_OpeningOptions],
) -> Database: ...
def open_shared(
    url: str, path: _Path, *, create_tables: bool = True, **options: Unpack[_OpeningOptions]
) -> Database: ...
def follow(url: str, path: _Path, **options: Unpack[_OpeningOptions]) -> Follower: ...
def standby(url: str, path: _Path, **options: Unpack[_OpeningOptions]) -> Follower: ...
def shared_status(url: str, **options: Unpack[_DatabaseOptions]) -> _SharedStatus: ...
def forget_follower(url: str, name: str, **options: Unpack[_DatabaseOptions]) -> None: ...
def verify(
    path: _Path, *, progress: _Told = None, **options: Unpack[_DatabaseOptions]
) -> _VerifyReport: ...
def salvage(
    source: _Path, to: _Path, *, progress: _Told = None, **options: Unpack[_DatabaseOptions]
) -> _SalvageReport: ...
def restore(
    path: _Path,
    to: _Path,
    *,
    progress: _Told = None,
    **options: Unpack[_OpeningOptions],
) -> None: ...
def option_names() -> _OptionNames: ...
@final
class Database(Mapping[str, Table]):
    @property
    def path(self) -> Path: ...
    def refresh(self) -> Database: ...
    def __getitem__(self, name: str, /) -> Table: ...
    def __delitem__(self, name: str | Table, /) -> None: ...
    def __contains__(self, name: object, /) -> bool: ...
    @overload
    def get(self, name: str, default: None = None, /) -> Table | None: ...
    @overload
    def get(self, name: str, default: _D, /) -> Table | _D: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    def __reduce__(self) -> Any: ...
    def table(self, name: str, **options: Unpack[_TableOptions]) -> Table: ...
    def create_table(self, name: str, **options: Unpack[_TableOptions]) -> Table: ...
    def existing_table(self, name: str) -> Table: ...
    def table_names(self) -> list[str]: ...
    def drop_table(self, name: str | Table) -> None: ...
    def rename_table(self, name: str | Table, to: str) -> None: ...
    def truncate_table(self, name: str | Table) -> None: ...
    def set_table_options(
        self, name: str | Table, **options: Unpack[_TableOptions]
    ) -> None: ...
    def batch(self) -> Batch: ...
    def enqueue(self, batch: Batch, *, durability: _Durability = "durable") -> PendingCommit: ...
    def sync(self) -> None: ...
    def snapshot(self) -> Snapshot: ...
    def begin(self, **options: Unpack[_TransactionOptions]) -> Transaction: ...
    def transactions(
        self, *, attempts: int = 64, **options: Unpack[_TransactionOptions]
    ) -> Transactions: ...
    def run(
        self,
        function: Callable[[Transaction], _T],
        *,
        attempts: int = 64,
        **options: Unpack[_TransactionOptions],
    ) -> _T: ...
    @overload
    def transactional(
        self, function: Callable[Concatenate[Transaction, _P], _T], /
    ) -> Callable[_P, _T]: ...
    @overload
    def transactional(
        self, function: None = None, /, **options: Unpack[_TransactionOptions]
    ) -> Callable[[Callable[Concatenate[Transaction, _P], _T]], Callable[_P, _T]]: ...
    def running_transactions(self) -> list[_TransactionInfo]: ...
    def kill_transaction(self, id: int) -> bool: ...
    def list_prepared(self) -> list[_PreparedInfo]: ...
    def commit_prepared(self, id: Buffer, *, durability: _Durability = "durable") -> None: ...
    def roll_back_prepared(self, id: Buffer, *, durability: _Durability = "durable") -> None: ...
    def last_blob(self) -> bytes | None: ...
    def stats(self) -> dict[str, Any]: ...
    def metrics_text(self) -> str: ...
    def verify(self, *, progress: _Told = None) -> _VerifyReport: ...
    def backup(self, path: _Path, *, progress: _Told = None) -> _BackupInfo: ...
    def dump(
        self,
        file: SupportsWrite[bytes],
        *,
        tables: Sequence[str] | None = None,
        without_prepared: bool = False,
    ) -> _DumpReport: ...
    def load(
        self, file: SupportsRead[bytes], *, tables: Sequence[str] | None = None
    ) -> _DumpReport: ...
    def grow_pm(self, size: int) -> int: ...
    def close(self, *, progress: _Told = None) -> None: ...

@final
class Table(MutableMapping[bytes, bytes]):
    @property
    def name(self) -> str: ...
    @property
    def options(self) -> _TableSettings: ...
    @overload
    def __getitem__(self, key: Buffer, /) -> bytes: ...
    @overload
    def __getitem__(self, key: slice, /) -> Rows[tuple[bytes, bytes]]: ...
    def __setitem__(self, key: Buffer, value: Buffer, /) -> None: ...
    def __delitem__(self, key: Buffer | slice, /) -> None: ...
    def __contains__(self, key: object, /) -> bool: ...
    def __iter__(self) -> Rows[bytes]: ...
    def __reversed__(self) -> Rows[bytes]: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __reduce__(self) -> Any: ...
    def clear(self) -> None: ...
    def popitem(self) -> tuple[bytes, bytes]: ...
    @overload
    def get(self, key: Buffer, default: None = None) -> bytes | None: ...
    @overload
    def get(self, key: Buffer, default: _D) -> bytes | _D: ...
    def multi_get(self, keys: Iterable[Buffer]) -> list[bytes | None]: ...
    def put(
        self,
        key: Buffer,
        value: Buffer,
        *,
        durability: _Durability = "durable",
        timeout: _Time | None = None,
    ) -> None: ...
    def merge(
        self,
        key: Buffer,
        operand: Buffer,
        *,
        durability: _Durability = "durable",
        timeout: _Time | None = None,
    ) -> None: ...
    def delete(
        self,
        key: Buffer,
        *,
        durability: _Durability = "durable",
        timeout: _Time | None = None,
    ) -> None: ...
    @overload
    def pop(self, key: Buffer) -> bytes: ...
    @overload
    def pop(self, key: Buffer, default: _D, /) -> bytes | _D: ...
    def setdefault(self, key: Buffer, value: Buffer) -> bytes: ...
    def insert_if_absent(self, key: Buffer, value: Buffer) -> bool: ...
    def compare_and_set(
        self, key: Buffer, expected: Buffer | None, new: Buffer | None
    ) -> bool: ...
    def update(  # type: ignore[override]
        self,
        rows: Mapping[bytes, Buffer] | Iterable[tuple[Buffer, Buffer]],
        *,
        durability: _Durability = "durable",
    ) -> None: ...
    def items(  # type: ignore[override]
        self,
        *,
        prefix: Buffer | None = None,
        start: Buffer | None = None,
        stop: Buffer | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Rows[tuple[bytes, bytes]]: ...
    def keys(  # type: ignore[override]
        self,
        *,
        prefix: Buffer | None = None,
        start: Buffer | None = None,
        stop: Buffer | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Rows[bytes]: ...
    def values(  # type: ignore[override]
        self,
        *,
        prefix: Buffer | None = None,
        start: Buffer | None = None,
        stop: Buffer | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Rows[bytes]: ...
    def first(self) -> tuple[bytes, bytes] | None: ...
    def last(self) -> tuple[bytes, bytes] | None: ...
    def pop_first(self) -> tuple[bytes, bytes] | None: ...
    def pop_last(self) -> tuple[bytes, bytes] | None: ...
    def delete_range(
        self,
        *,
        prefix: Buffer | None = None,
        start: Buffer | None = None,
        stop: Buffer | None = None,
    ) -> None: ...
    def truncate(self) -> None: ...
    def stats(self) -> dict[str, Any]: ...
    def approximate_len(
        self,
        *,
        prefix: Buffer | None = None,
        start: Buffer | None = None,
        stop: Buffer | None = None,
    ) -> int: ...
    def approximate_size(
        self,
        *,
        prefix: Buffer | None = None,
        start: Buffer | None = None,
        stop: Buffer | None = None,
    ) -> int: ...
    def compact_range(
        self,
        *,
        prefix: Buffer | None = None,
        start: Buffer | None = None,
        stop: Buffer | None = None,
        progress: Callable[[_CompactionProgress], object] | None = None,
    ) -> _CompactionProgress: ...
    def bulk_load(
        self,
        rows: Mapping[bytes, Buffer] | Iterable[tuple[Buffer, Buffer]],
        *,
        existing: Literal["refuse", "replace"] = "refuse",
        progress: _Told = None,
    ) -> int: ...
    def to_arrow(self, **range: Unpack[_Range]) -> pyarrow.Table: ...
    def to_batches(self, **range: Unpack[_Range]) -> pyarrow.RecordBatchReader: ...
    def to_pandas(self, **range: Unpack[_Range]) -> pandas.DataFrame: ...
    def load_arrow(self, rows: Any, **options: Any) -> int: ...

@final
class Rows(Generic[_Row_co]):
    @classmethod
    def __class_getitem__(cls, item: Any) -> Any: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> _Row_co: ...
    def __reduce__(self) -> Any: ...
    def seek(self, key: Buffer) -> Self: ...

@final
class Batch:
    def put(self, table: Table, key: Buffer, value: Buffer) -> None: ...
    def merge(self, table: Table, key: Buffer, operand: Buffer) -> None: ...
    def delete(self, table: Table, key: Buffer) -> None: ...
    def delete_range(
        self,
        table: Table,
        *,
        prefix: Buffer | None = None,
        start: Buffer | None = None,
        stop: Buffer | None = None,
    ) -> None: ...
    def set_blob(self, blob: Buffer) -> None: ...
    def clear(self) -> None: ...
    def commit(
        self, *, durability: _Durability = "durable", timeout: _Time | None = None
    ) -> None: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...
    def __reduce__(self) -> Any: ...

@final
class PendingCommit:
    @property
    def number(self) -> int: ...
    def wait(self, timeout: _Time | None = None) -> None: ...
    def __await__(self) -> Generator[Any, None, None]: ...
    def _wake(self, wakeup: Wakeup, commit: int) -> bool: ...
    def __reduce__(self) -> Any: ...

@final
class Wakeup:
    def __new__(cls) -> Self: ...
    def fileno(self) -> int: ...
    def ended(self) -> list[int]: ...

@final
class Snapshot:
    @property
    def lsn(self) -> int: ...
    @overload
    def get(self, table: Table, key: Buffer, default: None = None) -> bytes | None: ...
    @overload
    def get(self, table: Table, key: Buffer, default: _D) -> bytes | _D: ...
    def multi_get(self, table: Table, keys: Iterable[Buffer]) -> list[bytes | None]: ...
    def contains_key(self, table: Table, key: Buffer) -> bool: ...
    def items(
        self,
        table: Table,
        *,
        prefix: Buffer | None = None,
        start: Buffer | None = None,
        stop: Buffer | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Rows[tuple[bytes, bytes]]: ...
    def keys(
        self,
        table: Table,
        *,
        prefix: Buffer | None = None,
        start: Buffer | None = None,
        stop: Buffer | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Rows[bytes]: ...
    def values(
        self,
        table: Table,
        *,
        prefix: Buffer | None = None,
        start: Buffer | None = None,
        stop: Buffer | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Rows[bytes]: ...
    def first(self, table: Table) -> tuple[bytes, bytes] | None: ...
    def last(self, table: Table) -> tuple[bytes, bytes] | None: ...
    def __getitem__(self, table: Table, /) -> TableView[Snapshot]: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    def __reduce__(self) -> Any: ...

@final
class Transaction:
    @property
    def id(self) -> int: ...
    @property
    def isolation(self) -> _Isolation: ...
    @overload
    def get(self, table: Table, key: Buffer, default: None = None) -> bytes | None: ...
    @overload
    def get(self, table: Table, key: Buffer, default: _D) -> bytes | _D: ...
    def get_for_update(self, table: Table, key: Buffer) -> bytes | None: ...
    def get_for_share(self, table: Table, key: Buffer) -> bytes | None: ...
    def first(self, table: Table) -> tuple[bytes, bytes] | None: ...
    def last(self, table: Table) -> tuple[bytes, bytes] | None: ...
    def multi_get(
        self, table: Table, keys: Iterable[Buffer], *, for_update: bool = False
    ) -> list[bytes | None]: ...
    def contains_key(self, table: Table, key: Buffer) -> bool: ...
    def put(self, table: Table, key: Buffer, value: Buffer) -> None: ...
    def merge(self, table: Table, key: Buffer, operand: Buffer) -> None: ...
    def delete(self, table: Table, key: Buffer) -> None: ...
    def delete_range(
        self,
        table: Table,
        *,
        prefix: Buffer | None = None,
        start: Buffer | None = None,
        stop: Buffer | None = None,
    ) -> None: ...
    def compare_and_set(
        self, table: Table, key: Buffer, expected: Buffer | None, new: Buffer | None
    ) -> bool: ...
    def insert_if_absent(self, table: Table, key: Buffer, value: Buffer) -> bool: ...
    def pop_first(self, table: Table) -> tuple[bytes, bytes] | None: ...
    def pop_last(self, table: Table) -> tuple[bytes, bytes] | None: ...
    def items(
        self,
        table: Table,
        *,
        prefix: Buffer | None = None,
        start: Buffer | None = None,
        stop: Buffer | None = None,
        reverse: bool = False,
        limit: int | None = None,
        lock: _Lock | None = None,
    ) -> Rows[tuple[bytes, bytes]]: ...
    def keys(
        self,
        table: Table,
        *,
        prefix: Buffer | None = None,
        start: Buffer | None = None,
        stop: Buffer | None = None,
        reverse: bool = False,
        limit: int | None = None,
        lock: _Lock | None = None,
    ) -> Rows[bytes]: ...
    def values(
        self,
        table: Table,
        *,
        prefix: Buffer | None = None,
        start: Buffer | None = None,
        stop: Buffer | None = None,
        reverse: bool = False,
        limit: int | None = None,
        lock: _Lock | None = None,
    ) -> Rows[bytes]: ...
    def __getitem__(self, table: Table, /) -> WritableTableView: ...
    def take_view(self) -> None: ...
    def drop_view(self) -> None: ...
    def set_lock_wait(self, lock_wait: _Time | str) -> None: ...
    def set_savepoint(self, name: str) -> None: ...
    def roll_back_to(self, name: str) -> None: ...
    def release_savepoint(self, name: str) -> None: ...
    def savepoint(self, name: str = "with") -> Savepoint: ...
    def set_blob(self, blob: Buffer) -> None: ...
    def commit(self) -> None: ...
    def enqueue(self) -> PendingCommit: ...
    def prepare(self, id: Buffer) -> None: ...
    def roll_back(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...
    def __reduce__(self) -> Any: ...

@final
class Transactions:
    def __iter__(self) -> Self: ...
    def __next__(self) -> Attempt: ...

@final
class Attempt:
    @property
    def number(self) -> int: ...
    def __enter__(self) -> Transaction: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> bool: ...

@final
class Follower:
    def database(self) -> Database: ...
    def status(self) -> _NodeStatus: ...
    def promote(self, *, create_tables: bool = True) -> Database: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    def __reduce__(self) -> Any: ...

@final
class BackupSet:
    def __new__(cls, path: _Path, **options: Unpack[_OpeningOptions]) -> Self: ...
    def list(self) -> list[_BackupInfo]: ...
    def restore(self, number: int, to: _Path, *, progress: _Told = None) -> None: ...
    def delete(self, number: int) -> None: ...
    def verify(self, *, progress: _Told = None) -> _VerifyReport: ...
