"""The AWS SDK: the only room that knows its shapes."""
