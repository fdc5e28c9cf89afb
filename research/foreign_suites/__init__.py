"""Runs test suites of other projects against the embedded endpoint: `python -m foreign_suites --help` with `PYTHONPATH=research:tests`.

Nothing is fetched or installed, and nothing is written outside a temporary folder: the sources and what they need must be there.
Start at `__main__.py`.
"""
