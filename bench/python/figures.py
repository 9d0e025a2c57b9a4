"""Gets, puts, batches and ranges of Terrace from Python, beside other stores.

    python bench/python/figures.py --rows 1000000 --seconds 5 --rounds 5

Each store runs in a process of its own, and each round begins with another one. A phase runs for
so many seconds. The table has medians, with the least and the greatest of the rounds. Values are
checked behind each phase; a figure whose check fails is no number. A store that is not installed
is a line that says so: ``pip install rocksdict lmdb plyvel``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import stores

T = TypeVar("T")
R = TypeVar("R")

#: What is printed, in this order: a name, and what is counted.
FIGURES = {
    "put, durable": "survives a power cut",
    "put, relaxed": "survives the process",
    "batch of 1000, durable": "rows, survives a power cut",
    "batch of 1000, relaxed": "rows, survives the process",
    "get": "settled, keys by chance",
    "range of 100": "rows into lists, settled, starts by chance",
    "range of all": "rows, settled",
}

#: A figure of another unit: less is better.
SPACE = "MiB on disk"

#: What values are cut from.
NOISE = random.Random(7).randbytes(1 << 20)
ZEROS = bytes(50)

#: What becomes of a relaxed write after a power cut.
RELAXED = {
    "terrace": "loses the last ones",
    "rocksdict, 16 KiB": "loses the last ones",
    "rocksdict, 4 KiB": "loses the last ones",
    "lmdb": "may corrupt the store",
    "plyvel": "loses the last ones",
    "sqlite3": "loses the last ones",
}


def key(number: int) -> bytes:
    """A key of 16 bytes: neighbouring numbers lie far apart."""
    scrambled = number * 0x9E37_79B9_7F4A_7C15 & (1 << 64) - 1
    return scrambled.to_bytes(8, "big") + number.to_bytes(8, "big")


def value(number: int, version: int) -> bytes:
    """A value of 100 bytes, half of which compress. It tells its key and its version."""
    at = number * 7919 % (len(NOISE) - 41)
    return number.to_bytes(8, "big") + version.to_bytes(1, "big") + NOISE[at : at + 41] + ZEROS


class Cell:
    """One store in one round."""

    def __init__(self, name: str, arguments: argparse.Namespace, folder: Path) -> None:
        self.rows: int = arguments.rows
        self.seconds: float = arguments.seconds
        self.path = folder / "store"
        self.store = stores.STORES[name](self.path, arguments.memory << 20)
        self.random = random.Random(arguments.seed)
        self.figures: dict[str, float] = {}

    def measure(
        self,
        name: str,
        prepare: Callable[[], list[T]],
        call: Callable[[list[T]], R],
        count: Callable[[list[T], R], int],
    ) -> None:
        """Calls for so many seconds, of which only the store's count; things a second.

        ``prepare`` makes what the next call gets, and ``count`` checks what came of it and counts
        it. Nothing that is counted makes the figure none.
        """
        done, spent, is_right = 0, 0.0, True
        while spent < self.seconds:
            given = prepare()
            begin = time.perf_counter()
            got = call(given)
            spent += time.perf_counter() - begin
            counted = count(given, got)
            is_right = is_right and counted > 0
            done += counted
        self.figures[name] = done / spent if is_right else float("nan")

    def has(self, numbers: Iterable[int], version: int) -> bool:
        """Whether the store has these values."""
        return all(self.store.get(key(n)) == value(n, version) for n in numbers)

    def puts(self, durable: bool) -> None:
        """Puts keys that are new to the store, or were put in the phase before."""
        name = f"put, {'durable' if durable else 'relaxed'}"
        numbers, some = itertools.count(), 10 if durable else 1000

        def prepare() -> list[stores.Row]:
            return [(key(n), value(n, 0)) for n in itertools.islice(numbers, some)]

        def call(rows: list[stores.Row]) -> None:
            put = self.store.put
            for k, v in rows:
                put(k, v, durable)

        self.measure(name, prepare, call, lambda rows, _: len(rows))
        self.look(name, next(numbers), 0)

    def batches(self, durable: bool) -> None:
        """Commits batches of rows."""
        name = f"batch of 1000, {'durable' if durable else 'relaxed'}"
        numbers = itertools.count()

        def prepare() -> list[stores.Row]:
            return [(key(n), value(n, 1)) for n in itertools.islice(numbers, 1000)]

        def call(rows: list[stores.Row]) -> None:
            self.store.batch(rows, durable)

        self.measure(name, prepare, call, lambda rows, _: len(rows))
        self.look(name, next(numbers), 1)

    def look(self, name: str, below: int, version: int) -> None:
        """Looks for values that were written, the last one among them."""
        looked = {self.random.randrange(below) for _ in range(1000)} | {below - 1}
        if not self.has(looked, version):
            self.figures[name] = float("nan")

    def writes(self) -> None:
        for durable in (True, False):
            self.puts(durable)
        for durable in (True, False):
            self.batches(durable)

    def load(self) -> None:
        for begin in range(0, self.rows, stores.LOAD_ROWS):
            numbers = range(begin, min(begin + stores.LOAD_ROWS, self.rows))
            self.store.batch([(key(n), value(n, 2)) for n in numbers], False)
        self.store.settle()

    def gets(self) -> None:
        def prepare() -> list[bytes]:
            return [key(self.random.randrange(self.rows)) for _ in range(1000)]

        def call(keys: list[bytes]) -> list[bytes | None]:
            get = self.store.get
            return [get(k) for k in keys]

        def count(keys: list[bytes], found: list[bytes | None]) -> int:
            pairs = zip(keys, found, strict=True)
            return len(keys) if all(is_right(k, v) for k, v in pairs) else 0

        self.measure("get", prepare, call, count)

    def ranges(self) -> None:
        keys = sorted(key(n) for n in range(self.rows))
        highest = max(self.rows - 100, 0)

        def starts() -> list[int]:
            return [self.random.randint(0, highest) for _ in range(10)]

        def some(starts: list[int]) -> list[list[stores.Row]]:
            ranges = self.store.range
            return [list(ranges(keys[at], 100)) for at in starts]

        def count(starts: list[int], found: list[list[stores.Row]]) -> int:
            for at, rows in zip(starts, found, strict=True):
                if [k for k, _ in rows] != keys[at : at + 100]:
                    return 0
                if not all(is_right(k, v) for k, v in rows):
                    return 0
            return sum(map(len, found))

        self.measure("range of 100", starts, some, count)

        def walk(_: list[None]) -> int:
            count = 0
            for _row in self.store.range(b"", None):
                count += 1
            return count

        name = "range of all"
        self.measure(name, list, walk, lambda _, found: found if found == self.rows else 0)
        rows = list(self.store.range(b"", None))
        if [k for k, _ in rows] != keys or not all(is_right(k, v) for k, v in rows):
            self.figures[name] = float("nan")

    def space(self) -> None:
        """What lies on the device after the load, logs and all, once the store is closed."""
        self.store.close()
        self.figures[SPACE] = stores.bytes_on_disk(self.path) / (1 << 20)


def is_right(k: bytes, found: bytes | None) -> bool:
    """Whether a row of the load has its value."""
    return found == value(int.from_bytes(k[8:], "big"), 2)


def child(arguments: argparse.Namespace) -> None:
    """Measures one store, and prints the figures as JSON."""
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        written = Cell(arguments.child, arguments, Path(folder))
        written.writes()
        written.store.close()
        stores.remove(written.path)
        read = Cell(arguments.child, arguments, Path(folder))
        read.load()
        read.gets()
        read.ranges()
        read.space()
        figures = {**written.figures, **read.figures}
        print(json.dumps({"settings": read.store.settings, "figures": figures}))


def run(name: str, arguments: argparse.Namespace, seed: int) -> dict[str, object]:
    """Runs one store in a process of its own."""
    command = [sys.executable, __file__, "--child", name, "--seed", str(seed)]
    for option in ("rows", "seconds", "memory", "folder"):
        command += [f"--{option}", str(getattr(arguments, option))]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return {"missing": lines[-1]}
    result: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return result


def header(arguments: argparse.Namespace) -> None:
    """Where and how the figures were made."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    git = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(git, capture_output=True, text=True, cwd=Path(__file__).parent)
    device = ["df", "--output=source,fstype", arguments.folder]
    found = subprocess.run(device, capture_output=True, text=True)
    print(f"commit {commit.stdout.strip() or 'unknown'}, Python {platform.python_version()}")
    print(f"{os.cpu_count()} cores, {memory >> 30} GiB, {platform.release()}, {platform.machine()}")
    print(f"file system: {' '.join(found.stdout.split()[2:])}")
    print(f"{arguments.rows} rows of 16 and 100 bytes, {arguments.memory} MiB for caches and")
    print(f"buffers, {arguments.seconds} s a phase, {arguments.rounds} rounds, in turn\n")


def cell(figure: str, rounds: list[dict[str, float]], unit: float) -> str:
    """The median, and the range of the rounds."""
    numbers = [round[figure] / unit for round in rounds if figure in round]
    if not numbers:
        return "-"
    if any(number != number for number in numbers):
        return "wrong answers"
    middle, low, high = (
        f"{number:.1f}" if number < 100 else f"{number:.0f}"
        for number in (statistics.median(numbers), min(numbers), max(numbers))
    )
    return f"{middle} ({low} to {high})"


def table(results: dict[str, list[dict[str, float]]]) -> None:
    """Thousands a second, and what the rows take."""
    print(f"{'thousands a second':24}" + "".join(f"{name:>21}" for name in results))
    for figure, what in FIGURES.items():
        cells = (cell(figure, rounds, 1000) for rounds in results.values())
        print(f"{figure:24}" + "".join(f"{text:>21}" for text in cells) + f"  {what}")
    cells = (cell(SPACE, rounds, 1) for rounds in results.values())
    print(f"{SPACE:24}" + "".join(f"{text:>21}" for text in cells) + "  of all rows, settled, closed")
    print("\nrelaxed writes after a power cut: ", end="")
    print(", ".join(f"{name} {RELAXED[name]}" for name in results))


def main() -> None:
    """Measures all stores, and prints one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", type=int, default=256, help="MiB for caches and buffers")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="where stores are made")
    parser.add_argument("--only", nargs="+", choices=stores.STORES, default=list(stores.STORES))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--child", choices=stores.STORES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments)
        return
    header(arguments)
    results: dict[str, list[dict[str, float]]] = {name: [] for name in arguments.only}
    settings: dict[str, str] = {}
    for number in range(arguments.rounds):
        shift = number % len(arguments.only)
        for name in arguments.only[shift:] + arguments.only[:shift]:
            result = run(name, arguments, arguments.seed + number)
            figures = result.get("figures")
            if isinstance(figures, dict):
                results[name].append(figures)
                settings[name] = str(result["settings"])
            else:
                settings[name] = f"did not run: {result['missing']}"
    for name, text in settings.items():
        print(f"{name}: {text}")
    print()
    table(results)


if __name__ == "__main__":
    main()
