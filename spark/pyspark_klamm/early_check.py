"""Checks a source's options when `load()` makes the data source, and the cluster's address before a query begins.

Spark asks a data source for its schema in `load()`, unless the user gives a schema. It does not say if the query will
be a stream. Options of a sink need no such check: `save()` makes the writer at once, and a stream makes it with its
first batch and never before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from klamm.setting import definitions
from pyspark_klamm.client_file import CLIENT_FILE, with_file
from pyspark_klamm.sink_options import SinkOptions
from pyspark_klamm.source_options import BATCH_ONLY, SourceOptions, source_options


def check_source(options: Mapping[str, str]) -> SourceOptions:
    """Returns the options of a source. Raises ConfigError if they fit neither a stream nor a batch query. An option
    that only the wrong one of the two refuses is found when the query begins."""
    from pyspark_klamm.cluster_access import AccessConfig

    given = {name.lower() for name in options}
    is_of_batch = any(name.lower() in given for name in BATCH_ONLY)
    checked = source_options(options, streaming=not is_of_batch)
    # The client itself will warn of settings without effect.
    useless = AccessConfig.WITHOUT_EFFECT.keys() - definitions(AccessConfig).keys()
    client = with_file(checked.client, AccessConfig)
    AccessConfig.parse({name: value for name, value in client.items() if name not in useless})
    return checked


def check_address(options: SourceOptions | SinkOptions) -> None:
    """Asks the cluster once. Raises the error of a wrong address, protocol or login. Only logs an error that may pass,
    such as that of a broker that is down."""
    from pyspark_klamm.cluster_access import accesses

    accesses.get(_of_access(options.client)).check_address()


def _of_access(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings without those that only producers have."""
    from klamm.producer.config import ProducerConfig
    from pyspark_klamm.cluster_access import AccessConfig

    of_producers = definitions(ProducerConfig).keys() - definitions(AccessConfig).keys()
    return {name: value for name, value in settings.items() if name not in of_producers or name == CLIENT_FILE}
