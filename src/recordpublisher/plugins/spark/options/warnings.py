"""OptionWarnings: what there is to say about a job's options. Spark reads them in several processes, and one says it."""

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..process.python_worker import log_to_stderr

_COMMITTING = "pyspark.sql.worker.python_streaming_sink_runner"
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


def silence_where_writes_are_committed() -> None:
    """Spark makes the writer of a query in two processes. The one that plans the writes has warned; the one that commits them does not."""
    if _COMMITTING in sys.modules:
        warnings.simplefilter("ignore", UserWarning)


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect what is warned of meanwhile, each text once."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        yield texts
    texts += dict.fromkeys(str(each.message) for each in caught)
