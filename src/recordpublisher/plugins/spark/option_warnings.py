"""OptionWarnings: what there is to say about a job's options. Spark reads them in several processes, and one says it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from .python_worker import log_to_stderr

LOG = logging.getLogger("recordpublisher.spark")


@dataclass(frozen=True, slots=True)
class OptionWarnings:
    """The texts, and whether `load()` has logged them: it does not when the query gives a schema, since Spark does not ask for one then."""

    texts: tuple[str, ...] = ()
    is_told: bool = False

    def tell(self) -> None:
        """Log them, unless that was done."""
        if not self.is_told and self.texts:
            log_to_stderr()
            for text in self.texts:
                LOG.warning(text)


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect what is warned of meanwhile, each text once."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        yield texts
    texts += dict.fromkeys(str(each.message) for each in caught)
