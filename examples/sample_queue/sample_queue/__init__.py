"""A third-party queue: messages of Amazon SQS."""
