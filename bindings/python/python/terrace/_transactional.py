"""Functions that run in a transaction, and the decorator for them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from terrace._terrace import Database, Transaction, Transactions


def run(attempts: Transactions, function: Callable[[Transaction], Any]) -> Any:
    """Runs a function on attempts until one is committed; what the function returned."""
    for attempt in attempts:
        with attempt as txn:
            result = function(txn)
    return result


def transactional(
    db: Database, function: Callable[..., Any] | None, options: dict[str, Any]
) -> Callable[..., Any]:
    """A function that runs another one in a transaction, again after conflicts."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(*args: Any, **named: Any) -> Any:
            def body(txn: Transaction) -> Any:
                return function(txn, *args, **named)

            return db.run(body, **options)

        return run

    return decorate if function is None else decorate(function)
