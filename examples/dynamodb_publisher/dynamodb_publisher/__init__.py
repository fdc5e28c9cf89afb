"""The changes of DynamoDB tables as records."""
