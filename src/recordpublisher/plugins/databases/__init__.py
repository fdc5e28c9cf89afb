"""Connects to PostgreSQL and SQLite (extra `sql`) for the SQL sink, the store and dead letters. Start at `database.py`."""

from recordpublisher.extras import install_command

try:
    import sqlalchemy  # noqa: F401 - only to name the missing extra
except ImportError as error:
    raise ImportError(
        f"PostgreSQL needs the extra 'postgresql': {install_command('postgresql')}; SQLite alone the extra 'sql'"
    ) from error
