"""This project's Spark source beside qubole's connector. The connector is written in Scala 2.12 and runs on Spark 3 only; ours
needs the Python data sources of Spark 4: each runs on its newest Spark. Start at `__main__.py`; `make compare-spark` runs it.
"""
