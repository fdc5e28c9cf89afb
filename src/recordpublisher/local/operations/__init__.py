"""What the endpoint can be asked: one module per kind of question, one table of all."""
