"""The inputs of every operation, as the service's API model declares them; unknown fields are ignored."""
