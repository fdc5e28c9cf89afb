"""How a job says that one of its subtasks failed."""

from __future__ import annotations

import signal

from recordpublisher.publishers.errors import RecordPublisherError

FAILED, BAD_CONFIGURATION = 1, 2


class SubtaskFailedError(RecordPublisherError):
    """A subtask ended by an error, which it has told itself, or was killed.

    Attributes: `code`, its exit code, below 0 a signal; `exit_code`, the job's.
    """

    def __init__(self, subtask: int, code: int) -> None:
        self.code = code
        self.exit_code = BAD_CONFIGURATION if code == BAD_CONFIGURATION else FAILED
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"failed with exit code {code}"
        super().__init__(f"subtask {subtask} {how}; the job ends")
