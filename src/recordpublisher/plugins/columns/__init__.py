"""The Arrow columns of records: what Spark, Parquet files and frames are made of. All but `record_fields.py` needs pyarrow."""
