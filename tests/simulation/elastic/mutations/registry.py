"""Each mutation takes one rule out of the protocol. A schedule in which nothing breaks then shows that the rule is not tested."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from .balance import BALANCE
from .commits import COMMITS
from .handovers import HANDOVERS
from .patches import Patches
from .silence_and_seals import SILENCE_AND_SEALS
from .watermarks import WATERMARKS

MUTATIONS: dict[str, Callable[[], Patches]] = {
    each.__name__: each for each in (*SILENCE_AND_SEALS, *HANDOVERS, *BALANCE, *WATERMARKS, *COMMITS)
}


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """The protocol without one rule."""
    with ExitStack() as stack:
        for owner, attribute, value in MUTATIONS[name]():
            stack.enter_context(patch.object(owner, attribute, value))
        yield
