"""The columns that Spark sees: which exist, which a schema selects, and how they are built from batches of records."""
