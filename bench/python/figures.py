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
from collections.abc import Callable
from pathlib import Path

import stores

#: What is printed, in this order: a name, a unit, and whether more is better.
FIGURES = {
    "put, durable": "survives a power cut",
    "put, relaxed": "survives the process",
    "batch of 1000, durable": "rows, survives a power cut",
    "batch of 1000, relaxed": "rows, survives the process",
    "get": "settled, keys by chance",
    "range of 100": "rows, settled, starts by chance",
    "range of all": "rows, settled",
}

#: What values are cut from.
NOISE = random.Random(7).randbytes(1 << 20)
ZEROS = bytes(50)

#: What becomes of a relaxed write after a power cut.
RELAXED = {
    "terrace": "loses the last ones",
    "rocksdict": "loses the last ones",
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
        self.path = folder / name
        self.store = stores.STORES[name](self.path, arguments.memory << 20)
        self.random = random.Random(arguments.seed)
        self.figures: dict[str, float] = {}

    def measure(self, name: str, call: Callable[[], int]) -> None:
        """Calls for so many seconds; things a second."""
        done, begin = 0, time.perf_counter()
        end = begin + self.seconds
        while (now := time.perf_counter()) < end:
            done += call()
        self.figures[name] = done / (now - begin)

    def batches(self, durable: bool) -> tuple[int, float]:
        """Commits batches for so many seconds. Only the store's part of the time counts."""
        count, spent = 0, 0.0
        while spent < self.seconds:
            rows = [(key(n), value(n, 1)) for n in range(count, count + 1000)]
            begin = time.perf_counter()
            self.store.batch(rows, durable)
            spent += time.perf_counter() - begin
            count += 1000
        return count, spent

    def check(self, good: bool, name: str) -> None:
        if not good:
            self.figures[name] = float("nan")

    def writes(self) -> None:
        for durable in (True, False):
            how = "durable" if durable else "relaxed"
            numbers = itertools.count()

            def put() -> int:
                number = next(numbers)
                self.store.put(key(number), value(number, 0), durable)
                return 1

            self.measure(f"put, {how}", put)
            count = next(numbers)
            looked = {self.random.randrange(count) for _ in range(100)}
            good = all(self.store.get(key(n)) == value(n, 0) for n in looked)
            self.check(good, f"put, {how}")
        for durable in (True, False):
            how = "durable" if durable else "relaxed"
            count, spent = self.batches(durable)
            self.figures[f"batch of 1000, {how}"] = count / spent
            looked = {self.random.randrange(count) for _ in range(100)}
            good = all(self.store.get(key(n)) == value(n, 1) for n in looked)
            self.check(good, f"batch of 1000, {how}")

    def load(self) -> None:
        for begin in range(0, self.rows, stores.LOAD_ROWS):
            numbers = range(begin, min(begin + stores.LOAD_ROWS, self.rows))
            self.store.batch([(key(n), value(n, 2)) for n in numbers], False)
        self.store.settle()

    def reads(self) -> None:
        found: list[tuple[int, bytes | None]] = []

        def get() -> int:
            number = self.random.randrange(self.rows)
            found.append((number, self.store.get(key(number))))
            return 1

        self.measure("get", get)
        looked = self.random.sample(found, min(len(found), 10_000))
        self.check(all(got == value(n, 2) for n, got in looked), "get")
        starts = sorted(key(n) for n in range(self.rows))
        highest = starts[-100] if self.rows >= 100 else starts[0]
        counts: set[int] = set()

        def some() -> int:
            start = min(self.random.choice(starts), highest)
            count = sum(1 for _ in self.store.range(start, 100))
            counts.add(count)
            return count

        self.measure("range of 100", some)
        self.check(counts == {min(100, self.rows)}, "range of 100")
        wholes: set[int] = set()

        def all_rows() -> int:
            count = sum(1 for _ in self.store.range(b"", None))
            wholes.add(count)
            return count

        self.measure("range of all", all_rows)
        rows = list(self.store.range(b"", None))
        right = [k for k, _ in rows] == starts
        right = right and all(v == value(int.from_bytes(k[8:], "big"), 2) for k, v in rows)
        self.check(wholes == {self.rows} and right, "range of all")


def child(arguments: argparse.Namespace) -> None:
    """Measures one store, and prints the figures as JSON."""
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        written = Cell(arguments.child, arguments, Path(folder))
        written.writes()
        written.store.close()
        stores.remove(written.path)
        read = Cell(arguments.child, arguments, Path(folder))
        read.load()
        read.reads()
        read.store.close()
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


def table(results: dict[str, list[dict[str, float]]]) -> None:
    """Thousands a second: the median, and the range of the rounds."""
    print(f"{'thousands a second':26}" + "".join(f"{name:>24}" for name in results))
    for figure, what in FIGURES.items():
        line = f"{figure:26}"
        for rounds in results.values():
            numbers = [round[figure] / 1000 for round in rounds if figure in round]
            if not numbers or any(number != number for number in numbers):
                cell = "wrong answers" if numbers else "-"
            else:
                middle = statistics.median(numbers)
                cell = f"{middle:.1f} ({min(numbers):.1f} to {max(numbers):.1f})"
            line += f"{cell:>24}"
        print(f"{line}  {what}")
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
