"""What tests have in the place of a SnapshotStore."""


class Snapshots:
    """The optional half: nothing is fenced, and nothing is to be closed."""

    async def fence_subtasks_from(self, first):
        """No subtask of an earlier start is left."""

    async def close(self):
        """Nothing was opened."""
