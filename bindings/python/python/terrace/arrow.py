"""Tables to and from Arrow, pandas and polars, where ``pyarrow`` is installed.

Rows have two columns, ``key`` and ``value``, both binary.
"""

from __future__ import annotations

import builtins
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Unpack

    import pandas as _pandas
    import pyarrow as _pyarrow

    from terrace._terrace import Table, _Range, _Told

#: A record batch ends once it has so many rows, or so many bytes of keys and values. Arrow has
#: offsets of 31 bits in a batch.
BATCH_ROWS = 65_536
BATCH_BYTES = 512 << 20

#: Rows are read so many at a time. With values of 1 MiB these are 1 GiB, and fit beside the others.
PIECE_ROWS = 1024


def _schema() -> _pyarrow.Schema:
    import pyarrow

    return pyarrow.schema([("key", pyarrow.binary()), ("value", pyarrow.binary())])


def batches(table: Table, **range: Unpack[_Range]) -> Iterator[_pyarrow.RecordBatch]:
    """The rows of a range as record batches, which hold a part of it each."""
    import pyarrow

    schema = _schema()
    for chunk in _chunks(table.items(**range)):
        keys, values = zip(*chunk, strict=True)
        columns = [pyarrow.array(keys, pyarrow.binary()), pyarrow.array(values, pyarrow.binary())]
        yield pyarrow.RecordBatch.from_arrays(columns, schema=schema)


def _chunks(rows: Iterator[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
    chunk: list[tuple[bytes, bytes]] = []
    size = 0
    while piece := list(islice(rows, PIECE_ROWS)):
        chunk += piece
        size += sum(len(key) + len(value) for key, value in piece)
        if len(chunk) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def to_batches(table: Table, **range: Unpack[_Range]) -> _pyarrow.RecordBatchReader:
    """The rows of a range, batch by batch: at most one is held. ``polars`` reads it as a stream."""
    import pyarrow

    return pyarrow.RecordBatchReader.from_batches(_schema(), batches(table, **range))


def to_arrow(table: Table, **range: Unpack[_Range]) -> _pyarrow.Table:
    """The rows of a range as an Arrow table."""
    import pyarrow

    return pyarrow.Table.from_batches(batches(table, **range), schema=_schema())


def to_pandas(table: Table, **range: Unpack[_Range]) -> _pandas.DataFrame:
    """The rows of a range as a frame, with the keys as its index."""
    return to_arrow(table, **range).to_pandas().set_index("key")


def _batches_of(rows: Any) -> Iterator[_pyarrow.RecordBatch]:
    """What was passed, as batches of few rows. They share its memory."""
    import pyarrow

    if isinstance(rows, pyarrow.RecordBatch):
        rows = [rows]
    elif hasattr(rows, "__arrow_c_stream__"):
        # Tables of pyarrow, frames of pandas and polars, readers.
        rows = pyarrow.RecordBatchReader.from_stream(rows)
    for batch in rows:
        for begin in builtins.range(0, batch.num_rows, PIECE_ROWS):
            yield batch.slice(begin, PIECE_ROWS)


def _pairs(rows: Any, key: str, value: str) -> Iterator[tuple[bytes, bytes]]:
    import pyarrow

    for part in _batches_of(rows):
        # Columns of another library may have more than 2 GiB in a batch.
        keys, values = (part.column(name).cast(pyarrow.large_binary()) for name in (key, value))
        yield from zip(keys.to_pylist(), values.to_pylist(), strict=True)


def load_arrow(
    table: Table,
    rows: Any,
    *,
    key: str = "key",
    value: str = "value",
    existing: Literal["refuse", "replace"] = "refuse",
    progress: _Told = None,
) -> int:
    """Loads a table of ``pyarrow``, a frame of ``polars`` or ``pandas``, a record batch, or an
    iterable of batches; how many rows there were.

    The key column ascends, and each key is there once: ``rows.sort_by("key")`` sorts a table. An
    index of ``pandas`` that has the name of a column is that column. Columns of text are loaded as
    UTF-8. Few rows at a time are copied.
    """
    pairs = _pairs(rows, key, value)
    return table.bulk_load(pairs, existing=existing, progress=progress)
