"""WatermarkStatus: how one shard counts for watermarks, in addition to its stage and idleness."""


class WatermarkStatus:
    """Owns why watermarks do not wait for a shard although it is open, or wait for it although it has ended.

    - `is_straggler`: the shard is so far behind that watermarks do not wait for it (W12).
    - `awaits_children`: the shard has ended, and a child has no reader yet (W5).
    - `held_since`: since when alignment has been holding the shard back (monotonic seconds), or None.
    - `held_seconds`: the total time of earlier holds.
    """

    def __init__(self) -> None:
        self.is_straggler = self.awaits_children = False
        self.held_since: float | None = None
        self.held_seconds = 0.0

    @property
    def is_held(self) -> bool:
        """Whether alignment holds the shard back now."""
        return self.held_since is not None

    def mark_straggler(self, is_straggler: bool) -> bool:
        """Set `is_straggler`. Return whether that is a change."""
        was, self.is_straggler = self.is_straggler, is_straggler
        return was != is_straggler

    def await_children(self, awaits: bool) -> bool:
        """Set `awaits_children`. Return whether that is a change."""
        awaited, self.awaits_children = self.awaits_children, awaits
        return awaited != awaits

    def set_held(self, is_held: bool, now: float) -> None:
        """Set whether alignment holds the shard back. `now` is in monotonic seconds."""
        if is_held and self.held_since is None:
            self.held_since = now
        elif not is_held and self.held_since is not None:
            self.held_seconds += now - self.held_since
            self.held_since = None
