"""Tables as a snapshot or a transaction has them, as mappings; and savepoints as blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from terrace._terrace import Snapshot, Table, Transaction
from terrace.errors import ClosedError, NotFoundError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Unpack

    from _typeshed import ReadableBuffer as Buffer

    from terrace._terrace import Rows, _Range

Through = TypeVar("Through", Snapshot, Transaction)


class TableView(Generic[Through]):
    """A table as a snapshot has it: ``snapshot[table]``."""

    _through: Through
    _table: Table

    def __init__(self, through: Through, table: Table) -> None:
        self._through = through
        self._table = table

    def __getitem__(self, key: Buffer) -> bytes:
        found = self._through.get(self._table, key)
        if found is None:
            raise NotFoundError(key)
        return found

    def __contains__(self, key: Buffer) -> bool:
        return self._through.contains_key(self._table, key)

    def __iter__(self) -> Rows[bytes]:
        return self._through.keys(self._table)

    def get(self, key: Buffer, default: bytes | None = None) -> bytes | None:
        """The value of a key, or the default."""
        found = self._through.get(self._table, key)
        return default if found is None else found

    def items(self, **range: Unpack[_Range]) -> Rows[tuple[bytes, bytes]]:
        """Pairs of keys and values."""
        return self._through.items(self._table, **range)

    def keys(self, **range: Unpack[_Range]) -> Rows[bytes]:
        """Keys."""
        return self._through.keys(self._table, **range)

    def values(self, **range: Unpack[_Range]) -> Rows[bytes]:
        """Values, in the order of their keys."""
        return self._through.values(self._table, **range)

    def __repr__(self) -> str:
        return f"<{self._table!r} through {self._through!r}>"


class WritableTableView(TableView[Transaction]):
    """A table as a transaction has it: ``txn[table]``."""

    def __setitem__(self, key: Buffer, value: Buffer) -> None:
        self._through.put(self._table, key, value)

    def __delitem__(self, key: Buffer) -> None:
        if self._through.get_for_update(self._table, key) is None:
            raise NotFoundError(key)
        self._through.delete(self._table, key)


class Savepoint:
    """A block whose writes are undone if it raises: ``with txn.savepoint():``."""

    def __init__(self, txn: Transaction, name: str) -> None:
        self._txn = txn
        self._name = name

    def __enter__(self) -> None:
        self._txn.set_savepoint(self._name)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is not None:
                self._txn.roll_back_to(self._name)
            self._txn.release_savepoint(self._name)
        except ClosedError:
            # What was raised has ended the transaction too, and tells more.
            if kind is None:
                raise
