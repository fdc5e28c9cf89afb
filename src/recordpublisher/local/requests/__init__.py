"""The inputs of every operation, named, declared and described as in the service's API reference; unknown fields are ignored."""
