"""Random sequences of calls, against a dictionary."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

import terrace

KEYS = [bytes([97 + n % 7]) * (1 + n // 7) for n in range(40)]


def rows_of(model: dict[bytes, bytes], lower: bytes, upper: bytes) -> list[tuple[bytes, bytes]]:
    return sorted((key, value) for key, value in model.items() if lower <= key < upper)


class Sequence:
    """One sequence: each step does the same to a table and to a dictionary."""

    def __init__(self, seed: int, path: Path) -> None:
        self.random = random.Random(seed)
        self.path = path
        self.db = terrace.open(path, pm_size="4MiB")
        self.table = self.db.table("t", merge_operator="append")
        self.model: dict[bytes, bytes] = {}

    def key(self) -> bytes:
        return self.random.choice(KEYS)

    def value(self) -> bytes:
        return self.random.randbytes(self.random.choice([0, 1, 30, 3000]))

    def put(self) -> None:
        key, value = self.key(), self.value()
        self.table[key] = self.model[key] = value

    def relaxed(self) -> None:
        key, value = self.key(), self.value()
        self.table.put(key, value, durability="relaxed")
        self.model[key] = value

    def merge(self) -> None:
        key, operand = self.key(), self.value()
        self.table.merge(key, operand, durability=self.random.choice(["durable", "relaxed"]))
        self.model[key] = self.model.get(key, b"") + operand

    def delete(self) -> None:
        key = self.key()
        assert (key in self.table) == (key in self.model)
        if key in self.model:
            del self.table[key], self.model[key]

    def pop(self) -> None:
        key = self.key()
        assert self.table.pop(key, None) == self.model.pop(key, None)

    def setdefault(self) -> None:
        key, value = self.key(), self.value()
        assert self.table.setdefault(key, value) == self.model.setdefault(key, value)

    def compare_and_set(self) -> None:
        key, new = self.key(), self.random.choice([None, self.value()])
        expected = self.random.choice([None, self.model.get(key), b"other"])
        fits = self.model.get(key) == expected
        assert self.table.compare_and_set(key, expected, new) == fits
        if fits and new is not None:
            self.model[key] = new
        elif fits:
            self.model.pop(key, None)

    def delete_range(self) -> None:
        lower, upper = self.key(), self.key()
        del self.table[lower:upper]
        self.model = {k: v for k, v in self.model.items() if not lower <= k < upper}

    def batch(self) -> None:
        changes = {self.key(): self.value() for _ in range(self.random.randrange(20))}
        self.table.update(changes)
        self.model.update(changes)

    def transaction(self) -> None:
        after = dict(self.model)
        txn = self.db.begin(isolation=self.random.choice(["snapshot", "serializable"]))
        for _ in range(self.random.randrange(8)):
            key, value = self.key(), self.value()
            assert txn.get(self.table, key) == after.get(key)
            if self.random.random() < 0.3:
                txn.delete(self.table, key)
                after.pop(key, None)
            elif self.random.random() < 0.3:
                txn.merge(self.table, key, value)
                after[key] = after.get(key, b"") + value
            else:
                txn.put(self.table, key, value)
                after[key] = value
        assert list(txn.items(self.table)) == sorted(after.items())
        if self.random.random() < 0.5:
            txn.commit()
            self.model = after
        else:
            txn.roll_back()

    def range(self) -> None:
        lower, upper = self.key(), self.key()
        limit = self.random.choice([None, 0, 1, 5])
        rows = rows_of(self.model, lower, upper)
        found = list(self.table.items(start=lower, stop=upper, limit=limit))
        assert found == rows[:limit]
        found = list(self.table.items(start=lower, stop=upper, limit=limit, reverse=True))
        assert found == rows[::-1][:limit]

    def prefix(self) -> None:
        prefix = self.key()[:2]
        assert list(self.table.keys(prefix=prefix)) == sorted(
            key for key in self.model if key.startswith(prefix)
        )

    def reopen(self) -> None:
        self.db.close()
        self.db = terrace.open(self.path)
        self.table = self.db["t"]

    def step(self) -> None:
        steps = [self.put] * 4 + [self.relaxed] * 2 + [self.delete] * 2 + [self.batch] * 2
        steps += [self.merge] * 3
        steps += [self.pop, self.setdefault, self.compare_and_set, self.delete_range]
        steps += [self.transaction] * 2 + [self.range] * 2 + [self.prefix]
        if self.random.random() < 0.02:
            steps = [self.reopen]
        self.random.choice(steps)()
        key = self.key()
        assert self.table.get(key) == self.model.get(key)

    def end(self) -> None:
        assert list(self.table.items()) == sorted(self.model.items())
        assert list(self.table.values()) == [self.model[key] for key in sorted(self.model)]
        self.db.close()


#: With TERRACE_LONG, 1,500 sequences of 150 calls.
SEEDS = 1500 if os.environ.get("TERRACE_LONG") else 8


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_sequences_do_what_a_dictionary_does(seed: int, tmp_path: Path) -> None:
    sequence = Sequence(seed, tmp_path / "db")
    for number in range(150):
        try:
            sequence.step()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, step {number}") from error
    sequence.end()
