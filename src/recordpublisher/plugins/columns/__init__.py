"""The Arrow columns of records, for Spark, Parquet files and frames. Every module but `record_fields.py` needs pyarrow."""
