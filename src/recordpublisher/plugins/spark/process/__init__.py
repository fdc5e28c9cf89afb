"""The Python processes that Spark starts: their event loop, their daemon, and how their errors look."""
