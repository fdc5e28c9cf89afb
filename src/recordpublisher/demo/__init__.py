"""The flights demo: a Spark job on real flights, with checks of its output. Start at `runner.py`; needs the extra `demo`."""
