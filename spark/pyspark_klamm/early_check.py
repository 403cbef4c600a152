"""Checks a source's options when `load()` makes the data source, before a query has begun.

Spark asks a data source for its schema then, unless the user gives a schema. It does not say if the query will be a
stream. Options of a sink need no such check: `save()` makes the writer at once, and a stream makes it with its first
batch and never before.
"""

from __future__ import annotations

from collections.abc import Mapping

from klamm.setting import definitions
from pyspark_klamm.client_file import with_file
from pyspark_klamm.source_options import BATCH_ONLY, source_options


def check_source(options: Mapping[str, str]) -> None:
    """Raises ConfigError if the options fit neither a stream nor a batch query. An option that only the wrong one of
    the two refuses is found when the query begins."""
    from pyspark_klamm.cluster_access import AccessConfig

    given = {name.lower() for name in options}
    is_of_batch = any(name.lower() in given for name in BATCH_ONLY)
    client = with_file(source_options(options, streaming=not is_of_batch).client, AccessConfig)
    # The client itself will warn of settings without effect.
    useless = AccessConfig.WITHOUT_EFFECT.keys() - definitions(AccessConfig).keys()
    AccessConfig.parse({name: value for name, value in client.items() if name not in useless})
