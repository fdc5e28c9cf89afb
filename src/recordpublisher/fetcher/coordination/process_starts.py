"""Finds out which processes of a group were alive at the same time and so belong to the same run of the job (S2, W6)."""


class ProcessStarts:
    """Owns the numbers of process starts, and which starts are unconfirmed.

    For each subtask it has the last start after which its process certainly was alive. A process proves this by repeating the number in the
    last response that it received. A machine that vanished without closing its connections proves nothing more, although it counts as
    connected until the timeout.
    """

    def __init__(self) -> None:
        self.last = 0
        """Number of processes that have joined."""
        self.unconfirmed: set[int] = set()
        """Subtasks whose new process may belong to a later run of the job.

        No process that joined earlier is known to have been alive after the start of that process.
        """
        self._number_of: dict[int, int] = {}
        self._alive_after: dict[int, int] = {}

    def add(self, subtask: int, must_be_confirmed: bool) -> None:
        """Register a process of the subtask that has joined."""
        self.last += 1
        self._number_of[subtask] = self.last
        self._alive_after.pop(subtask, None)
        if must_be_confirmed:
            self.unconfirmed.add(subtask)
        else:
            self.unconfirmed.discard(subtask)

    def record_alive(self, subtask: int, last_start: int) -> None:
        """Note that the subtask's process was alive after a start.

        If that process belongs to the current run of the job, so do all starts up to this one.
        """
        self._alive_after[subtask] = last_start
        if self.unconfirmed and subtask not in self.unconfirmed:
            self.unconfirmed = {each for each in self.unconfirmed if self._number_of[each] > last_start}

    def was_alive_after_start_of(self, subtask: int, other: int) -> bool:
        """Return whether the subtask's process was alive after the start of another one.

        It was, if the other process joined an earlier coordinator.
        """
        return self._alive_after.get(subtask, 0) >= self._number_of.get(other, 0)

    def confirm_all(self) -> None:
        """Confirm every start, because a new generation begins with the processes that have joined."""
        self.unconfirmed.clear()
