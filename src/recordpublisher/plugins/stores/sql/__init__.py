"""PostgreSQL and SQLite (extra `sql`): connection, retried transactions and the conditional store. Start at `sql_store.py`."""

try:
    import sqlalchemy  # noqa: F401 - only to name the missing extra
except ImportError as error:
    raise ImportError(
        "SQL needs the extra 'sql', PostgreSQL 'postgresql': pip install 'recordpublisher[sql]'"
    ) from error
