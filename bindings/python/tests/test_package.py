"""The package: its types, its documents, and its options."""

from __future__ import annotations

import doctest
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import terrace

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]


def test_mypy_accepts_the_package_and_its_tests() -> None:
    pytest.importorskip("mypy", reason="mypy is not installed")
    config = ["--config-file", str(HERE.parent / "pyproject.toml")]
    cache = ["--cache-dir", os.environ.get("MYPY_CACHE_DIR", os.devnull)]
    command = [sys.executable, "-m", "mypy", *config, *cache, "-p", "terrace"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    command = [sys.executable, "-m", "mypy", *config, *cache, str(HERE)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_stubs_say_what_the_module_has() -> None:
    pytest.importorskip("mypy", reason="mypy is not installed")
    config = ["--mypy-config-file", str(HERE.parent / "pyproject.toml")]
    command = [sys.executable, "-m", "mypy.stubtest", "terrace", *config]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_public_name_is_documented() -> None:
    named = [getattr(terrace, name) for name in terrace.__all__ if not name.startswith("_")]
    classes = [what for what in named if isinstance(what, type)]
    methods = [
        (what.__name__, name, method)
        for what in classes
        for name, method in vars(what).items()
        if not name.startswith("_") and (callable(method) or hasattr(method, "__get__"))
    ]
    methods += [("terrace", what.__name__, what) for what in named if not isinstance(what, type)]
    assert len(methods) > 90
    missing = [f"{where}.{name}" for where, name, method in methods if not method.__doc__]
    missing += [what.__name__ for what in classes if not what.__doc__]
    allowed = ["Error.kind", "Damage"]
    assert [name for name in missing if not name.endswith(".kind") and name not in allowed] == []


def document(name: str) -> str:
    """A document of the repository."""
    path = ROOT / name
    if not path.exists():
        pytest.skip(f"{name} is not here: the tests run outside of the repository")
    return path.read_text()


def test_the_examples_of_the_readme_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = re.sub("(?m)^```.*$", "", document("bindings/python/README.md"))
    monkeypatch.chdir(tmp_path)
    example = doctest.DocTestParser().get_doctest(text, {}, "README.md", None, None)
    done = doctest.DocTestRunner().run(example)
    assert done.failed == 0 and done.attempted > 20


def test_the_example_of_the_projects_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [code] = re.findall("(?ms)^```python$(.*?)^```$", document("README.md"))
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})


def test_the_examples_of_the_package_run() -> None:
    assert doctest.testmod(terrace).attempted > 0
    assert doctest.testmod(terrace).failed == 0


def test_the_version_is_that_of_the_engine() -> None:
    manifest = ROOT / "Cargo.toml"
    if not manifest.exists():
        pytest.skip("the tests run outside of the repository")
    assert f'version = "{terrace.__version__}"' in manifest.read_text()


def test_every_kind_of_error_is_what_python_calls_it() -> None:
    for kind, builtin in [
        (terrace.NotFoundError, KeyError),
        (terrace.InvalidError, ValueError),
        (terrace.MissingDatabaseError, FileNotFoundError),
        (terrace.MissingTableError, KeyError),
        (terrace.ExistsError, terrace.InvalidError),
        (terrace.TooLargeError, terrace.InvalidError),
        (terrace.WrongTypeError, terrace.InvalidError),
        (terrace.BusyError, terrace.UnavailableError),
        (terrace.CancelledError, RuntimeError),
        (terrace.ClosedError, ValueError),
        (terrace.TimeoutError, TimeoutError),
        (terrace.FullError, OSError),
        (terrace.UnavailableError, OSError),
        (terrace.UnknownOutcomeError, OSError),
        (terrace.CorruptError, OSError),
        (terrace.FencedError, OSError),
        (terrace.InternalError, RuntimeError),
        (terrace.ConflictError, terrace.RetryableError),
        (terrace.DeadlockError, terrace.RetryableError),
    ]:
        assert issubclass(kind, builtin) and issubclass(kind, terrace.Error)
        assert kind.kind != "error"


arrow = pytest.mark.skipif(
    importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed"
)


@arrow
def test_a_table_goes_to_arrow_and_back(db: terrace.Database) -> None:
    import pyarrow

    table = db["t"]
    table.update({b"%05d" % n: b"v%d" % n for n in range(1000)})
    rows = table.to_arrow(prefix=b"000")
    assert rows.num_rows == 100 and rows.column_names == ["key", "value"]
    assert rows["key"][7].as_py() == b"00007"
    assert table.to_arrow(prefix=b"x").num_rows == 0
    assert db["copy"].load_arrow(table.to_arrow()) == 1000
    assert list(db["copy"].items()) == list(table.items())
    named = pyarrow.table({"n": ["a", "b"], "v": ["1", "2"]})
    assert db["named"].load_arrow(named.to_batches()[0], key="n", value="v") == 2
    assert db["named"][b"b"] == b"2"
    with pytest.raises(terrace.InvalidError):
        db["named"].load_arrow(named, key="n", value="v")


@arrow
def test_record_batches_end_before_their_offsets_do(
    db: terrace.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: a table with 2 GiB in 65,536 rows could not be made an Arrow table. Cause: a record
    batch ended after so many rows alone, and its offsets have 31 bits. Fix: it ends after so many
    bytes too. `load_arrow` takes columns with longer offsets."""
    import pyarrow

    from terrace import arrow

    assert arrow.BATCH_BYTES + arrow.PIECE_ROWS * ((1 << 20) + (64 << 10)) < 1 << 31
    monkeypatch.setattr(arrow, "BATCH_BYTES", 10_000)
    monkeypatch.setattr(arrow, "PIECE_ROWS", 10)
    rows = {b"%03d" % n: bytes(997) for n in range(100)}
    db["t"].update(rows)
    parts = list(arrow.batches(db["t"]))
    assert [part.num_rows for part in parts] == [10] * 10
    table = db["t"].to_arrow()
    assert dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)) == rows
    monkeypatch.setattr(arrow, "BATCH_ROWS", 25)
    monkeypatch.setattr(arrow, "BATCH_BYTES", 1 << 30)
    assert [part.num_rows for part in arrow.batches(db["t"])] == [30, 30, 30, 10]
    large = pyarrow.large_binary()
    wide = pyarrow.table({"key": pyarrow.array(rows, large), "value": pyarrow.array(rows, large)})
    assert db["u"].load_arrow(wide) == 100


@arrow
def test_batches_stream_both_ways(
    db: terrace.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch is made when it is asked for, and what is loaded is asked for a batch at a time."""
    import pyarrow

    from terrace import arrow

    monkeypatch.setattr(arrow, "BATCH_ROWS", 10)
    monkeypatch.setattr(arrow, "PIECE_ROWS", 5)
    rows = {b"%03d" % n: b"v%d" % n for n in range(100)}
    db["t"].update(rows)
    reader = db["t"].to_batches(start=b"010")
    assert isinstance(reader, pyarrow.RecordBatchReader)
    held: list[int] = []

    def batches() -> Iterator[pyarrow.RecordBatch]:
        for batch in reader:
            held.append(batch.num_rows)
            yield batch

    assert db["u"].load_arrow(batches()) == 90 and held == [10] * 9
    assert db["v"].load_arrow(db["t"].to_batches()) == 100 and dict(db["v"].items()) == rows
    frame = pytest.importorskip("pandas").DataFrame({"key": ["a", "b"], "value": ["1", "2"]})
    assert db["w"].load_arrow(frame) == 2
    assert db["x"].load_arrow(db["t"].to_pandas(prefix=b"00")) == 10


@arrow
def test_a_table_goes_to_pandas(db: terrace.Database) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    db["t"].update({b"a": b"1", b"b": b"2"})
    frame = db["t"].to_pandas(start=b"b")
    assert list(frame.index) == [b"b"] and list(frame["value"]) == [b"2"]
