"""The KPL's aggregation format: one Kinesis record that contains many user records (sub-records).

`kpl_format.py` reads and writes the format. `deaggregation.py` turns responses into user records.
"""
