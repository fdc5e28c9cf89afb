"""`python -m recordpublisher` and the `recordpublisher` command."""
