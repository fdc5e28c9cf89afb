"""The KPL's aggregation format: one Kinesis record that holds many user records. `deaggregation.py` turns responses into user records;
`kpl_format.py` reads and writes the format.
"""
