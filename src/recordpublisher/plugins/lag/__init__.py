"""How far a stored job is behind a stream, seen from outside the job (A2)."""
