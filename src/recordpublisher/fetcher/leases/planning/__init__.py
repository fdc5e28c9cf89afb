"""What follows from a group's documents: who should have each shard, and the watermark of the group. Pure; start at `group_view.py`."""
