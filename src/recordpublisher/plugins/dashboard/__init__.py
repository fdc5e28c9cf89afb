"""What a person sees of a job at one moment, read from the running job or from its stored positions. Start at `snapshot.py`."""
