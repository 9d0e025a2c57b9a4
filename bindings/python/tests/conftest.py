"""What all tests share: a small database in a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import terrace


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "db"


@pytest.fixture
def db(path: Path) -> Iterator[terrace.Database]:
    with terrace.open(path, pm_size="4MiB") as db:
        yield db


@pytest.fixture
def table(db: terrace.Database) -> terrace.Table:
    return db["t"]
