"""The Arrow columns of records: what Spark, Parquet files and frames are made of. Needs pyarrow."""
