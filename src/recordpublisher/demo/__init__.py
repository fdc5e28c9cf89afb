"""The flights demo: a Spark job on real flights, with checks of its output. Start reading in runner.py; needs the extra `demo`."""
