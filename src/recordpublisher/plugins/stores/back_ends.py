"""Lists the kinds of places where stores keep values (back ends): the class and the URIs of each, and what it can hold.

To add a store, write its class and add its back end here. Other code reads this table, and never compares names.
"""

import re
from collections.abc import Iterable, Mapping

import msgspec


class BackEnd(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of place where stores keep values. The defaults apply to a store of a plugin.

    - `name`: the name under which the store is registered.
    - `form`: what a location looks like, in messages and pages.
    - `schemes`: the schemes of its URIs, in lower case.
    - `hadoop_schemes`: Hadoop's names for the first scheme. Other clients do not know them.
    - `store`: the module and name of the store's class. `recordpublisher doctor` lists the permissions in its `actions`.
    - `is_local`: whether the values are on this machine, so that no service can be unavailable.
    - `has_objects`: whether sinks can write files below a location, as objects.
    - `is_shared`: whether one location has the values of many jobs, each under the job's name.
    - `has_claims`: whether the tasks of a Spark query can keep claims (what they have read) there.
    - `has_small_values`: whether the size of a value is limited or billed. A group then writes many small values.
    - `aws_service`: the AWS SDK's name of the service that the store calls.
    """

    name: str
    form: str
    schemes: tuple[str, ...] = ()
    hadoop_schemes: tuple[str, ...] = ()
    store: str = ""
    is_local: bool = False
    has_objects: bool = False
    is_shared: bool = False
    has_claims: bool = True
    has_small_values: bool = False
    aws_service: str | None = None

    def uri_of(self, location: str) -> str:
        """Return a location of this back end as a URI, with a scheme that every client knows."""
        scheme, _, rest = location.partition(":")
        known = self.schemes[0] if scheme.lower() in self.hadoop_schemes else scheme.lower()
        return f"{known}:{rest}"


FOLDER = BackEnd(
    name="FILE",
    form="a folder",
    schemes=("file",),
    store="plugins.stores.folder_store:FolderStore",
    is_local=True,
)
S3 = BackEnd(
    name="S3",
    form="s3://bucket/prefix",
    schemes=("s3",),
    hadoop_schemes=("s3a", "s3n"),
    store="plugins.stores.s3_store:S3Store",
    has_objects=True,
    aws_service="s3",
)
DYNAMODB = BackEnd(
    name="DYNAMODB",
    form="dynamodb://table/job",
    schemes=("dynamodb",),
    store="plugins.stores.dynamodb_store:DynamoDbStore",
    has_small_values=True,  # An item has at most 400 KB, and each write is billed by the size of the whole item.
    aws_service="dynamodb",
)
GOOGLE = BackEnd(
    name="GOOGLE",
    form="gs://bucket/prefix",
    schemes=("gs",),
    store="plugins.stores.google_azure_store:GoogleAzureStore",
    has_objects=True,
)
AZURE = BackEnd(
    name="AZURE",
    form="abfss://container@account.dfs.core.windows.net/prefix",
    schemes=("abfss", "abfs"),
    store="plugins.stores.google_azure_store:GoogleAzureStore",
    has_objects=True,
)
POSTGRESQL = BackEnd(
    name="POSTGRESQL",
    form="postgresql://user@host/database",
    schemes=("postgresql", "postgres"),
    store="plugins.stores.sql_store:SqlStore",
    is_shared=True,
    has_claims=False,  # Every task of a query would open a session.
)
SQLITE = BackEnd(
    name="SQLITE",
    form="sqlite:////path/file.db",
    schemes=("sqlite",),
    store="plugins.stores.sql_store:SqlStore",
    is_local=True,
    is_shared=True,
    has_claims=False,  # Executors on other machines do not see the file.
)

BACK_ENDS: Mapping[str, BackEnd] = {
    each.name: each for each in (FOLDER, S3, DYNAMODB, GOOGLE, AZURE, POSTGRESQL, SQLITE)
}
"""The built-in back ends by name, in the order in which messages list them."""
OBJECT_STORES = [each for each in BACK_ENDS.values() if each.has_objects]
CLAIM_STORES = [each for each in BACK_ENDS.values() if each.has_claims]
BY_SCHEME: Mapping[str, BackEnd] = {
    scheme: each for each in BACK_ENDS.values() for scheme in each.schemes + each.hadoop_schemes
}
REFUSED_SCHEMES = {
    "hdfs": "this library has no client of HDFS",
    "dbfs": "DBFS does not promise that a rename is atomic, and conditional writes to a folder need that",
}
"""Schemes that no store can have, each with the reason why."""
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):/", re.IGNORECASE)
"""A location's scheme has at least two letters, because `C:/` is a drive."""


def back_end_of(location: str) -> BackEnd:
    """Return the back end of a location. A location without a scheme is a path. An unknown scheme is the name of a plugin's store."""
    found = _SCHEME.match(location)
    if found is None or is_file_uri(location):
        return FOLDER
    scheme = found[1].partition("+")[0].lower()
    return BY_SCHEME.get(scheme) or BackEnd(name=scheme, form=f"{scheme}://...")


def is_file_uri(location: str) -> bool:
    """Return whether a location is a `file:` URI, in upper or lower case, and not a path."""
    return location[:5].lower() == "file:"


def forms_of(back_ends: Iterable[BackEnd], *more: str, folder: str = FOLDER.form) -> str:
    """Return what locations look like, for a message: `a folder, s3://bucket/prefix or gs://bucket/prefix`.

    - `more`: other forms that are valid.
    - `folder`: the words for a folder.
    """
    forms = [*(folder if each is FOLDER else each.form for each in back_ends), *more]
    return " or ".join(filter(None, [", ".join(forms[:-1]), forms[-1]]))
