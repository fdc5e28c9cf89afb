"""The log's levels and handlers are after a test what they were before it."""

import logging
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def kept_log_settings() -> Generator[None]:
    """Undo at the end what a command that ran in this process has set."""
    logger, root = logging.getLogger("recordpublisher"), logging.getLogger()
    handlers, propagate = list(logger.handlers), logger.propagate
    of_root = (root.level, list(root.handlers))
    levels = {each: each.level for each in _our_loggers()}
    yield
    root.setLevel(of_root[0])
    for handler in [each for each in root.handlers if type(each) is logging.StreamHandler]:  # pytest's are others
        if handler not in of_root[1]:
            root.removeHandler(handler)  # its stream may be closed
    for each in _our_loggers():
        each.setLevel(levels.get(each, logging.NOTSET))
    logger.handlers, logger.propagate = handlers, propagate


def _our_loggers() -> list[logging.Logger]:
    known = list(logging.root.manager.loggerDict.values())
    return [
        each for each in known if isinstance(each, logging.Logger) and each.name.partition(".")[0] == "recordpublisher"
    ]
