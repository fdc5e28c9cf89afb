"""ProcessStarts: which processes of a group were alive at the same time, so that they belong to one life of the job (S2, W6)."""


class ProcessStarts:
    """Owns the numbers of the starts, by subtask the last start after which its process certainly was alive, and the unconfirmed starts.

    A process repeats the number in the last response that it received: so it was alive after that start. A machine that vanished without
    closing its connections proves nothing more, although it counts as connected until the timeout.
    """

    def __init__(self) -> None:
        self.last = 0
        """How many processes have joined."""
        self.unconfirmed: set[int] = set()
        """Subtasks whose new process may belong to a later life of the job: no process that joined before was alive after its start."""
        self._number_of: dict[int, int] = {}
        self._alive_after: dict[int, int] = {}

    def add(self, subtask: int, must_be_confirmed: bool) -> None:
        """A process of the subtask has joined."""
        self.last += 1
        self._number_of[subtask] = self.last
        self._alive_after.pop(subtask, None)
        if must_be_confirmed:
            self.unconfirmed.add(subtask)
        else:
            self.unconfirmed.discard(subtask)

    def record_alive(self, subtask: int, last_start: int) -> None:
        """The subtask's process was alive after a start. If it belongs to the group's life of the job, so does that start."""
        self._alive_after[subtask] = last_start
        if self.unconfirmed and subtask not in self.unconfirmed:
            self.unconfirmed = {each for each in self.unconfirmed if self._number_of[each] > last_start}

    def was_alive_after_start_of(self, subtask: int, other: int) -> bool:
        """Whether the subtask's process was alive after the start of another one. Processes that joined an earlier coordinator were."""
        return self._alive_after.get(subtask, 0) >= self._number_of.get(other, 0)

    def confirm_all(self) -> None:
        """A new generation begins with the processes that have joined."""
        self.unconfirmed.clear()
