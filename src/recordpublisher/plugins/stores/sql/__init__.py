"""SQL databases: one thread for each, transactions that are tried again, positions kept by generation. Needs the extra `sql`."""

try:
    import sqlalchemy  # noqa: F401 - only to say what is missing
except ImportError as error:
    raise ImportError(
        "SQL needs the extra 'sql', PostgreSQL 'postgresql': pip install 'recordpublisher[sql]'"
    ) from error
