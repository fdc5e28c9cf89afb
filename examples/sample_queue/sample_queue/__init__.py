"""A third-party publisher: messages of Amazon SQS."""
