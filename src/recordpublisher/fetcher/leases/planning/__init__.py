"""Decides what follows from a group's documents: which worker should have each shard, and the watermark of the group.

All code here is pure. Start at `group_view.py`.
"""
