"""What Spark looks for: `spark.readStream.format("kinesis")`."""
