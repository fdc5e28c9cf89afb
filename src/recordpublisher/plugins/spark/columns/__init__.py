"""The columns that Spark sees: which there are, which a schema chooses, and how they are built from batches of records."""
