"""Checkpoint and claim stores."""
