"""Commands that check, run and watch a job."""
