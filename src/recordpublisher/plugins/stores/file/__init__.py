"""A folder: fencing by locks and hard links."""
