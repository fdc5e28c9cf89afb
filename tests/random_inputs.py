"""How many random inputs a test gets: a part of them in `make test`, all in `make slow` (marker `random`, and tests with hypothesis)."""

import os

GETS_ALL = os.environ.get("RECORDPUBLISHER_ALL_INPUTS") == "1"


def inputs(count: int, quick: int) -> int:
    """How many; `quick`: those of `make test`."""
    return count if GETS_ALL else quick
