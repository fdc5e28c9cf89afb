"""The Python processes that Spark starts: their event loop, their daemon, and the form of their errors."""
