"""How far a job is behind a stream, by its stored positions (A2). Start reading in probe.py; `recordpublisher lag` uses it."""
