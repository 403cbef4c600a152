"""The pages of the Python API: the public names of each package, which mkdocstrings fills in when the site is built."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

_FIRST: Final = ("Producer", "Consumer", "Admin")
"""What a page begins with, if it has it, before that of asyncio; the rest follows by name."""


class _Page(NamedTuple):
    """A page, and what it is about."""

    title: str
    text: str
    package: str
    names: Sequence[str] = ()
    """The public names, where the package does not say them itself by `__all__`."""
    has_docstring: bool = False
    """Whether the page begins with what the package's docstring says."""


_PAGES: Final = {
    "producer.md": _Page(
        "Producers",
        "`Producer` is for threads, `AsyncProducer` for asyncio. Both have the [settings](../settings.md#producers) "
        "of Kafka's producer, as a mapping or as keyword arguments.",
        "klamm.producer",
    ),
    "consumer.md": _Page(
        "Consumers",
        "`Consumer` is for one thread, `AsyncConsumer` for asyncio, `ConsumerThreads` and `WorkerPool` for many. "
        "All have the [settings](../settings.md#consumers) of Kafka's consumer.",
        "klamm.consumer",
    ),
    "arrow.md": _Page(
        "Arrow tables",
        "A topic as columns, for pandas, Polars and DuckDB. `Consumer.poll_arrow` and `Producer.send_arrow` read and "
        "write them, too. [The guide](../../how-to/read-a-topic-as-a-frame.md) shows how.",
        "klamm",
        ("read_arrow",),
    ),
    "idempotence.md": _Page(
        "Idempotent processing",
        "`klamm.idempotence` applies the effect of each record to a database once. [The "
        "guide](../../how-to/process-each-record-once.md) shows how.",
        "klamm.idempotence",
        ("ProcessedOffsets", "ProcessedIds", "RedisProcessedIds"),
    ),
    "admin.md": _Page(
        "Administration",
        "`Admin` is for threads, `AsyncAdmin` for asyncio. They do what the [command line](../command-line.md) does.",
        "klamm.admin",
    ),
    "testing.md": _Page(
        "Testing your own code",
        "`klamm.testing` starts real clusters for tests, by itself or by fixtures of pytest.",
        "klamm.testing",
        has_docstring=True,
    ),
    "values.md": _Page(
        "Topics, offsets and batches",
        "Values that producers, consumers and administration share.",
        "klamm",
        (
            *("TopicPartition", "OffsetAndMetadata", "OffsetAndTimestamp", "ConsumerGroupMetadata"),
            *("LedgerId", "PreparedPart"),
        ),
    ),
    "errors.md": _Page(
        "Exceptions",
        "What a program can catch. There is also one class for each of [Kafka's error codes](../errors.md).",
        "klamm.errors",
        (
            *("KlammError", "BrokerError", "RecordError", "ConfigError", "IllegalStateError", "ConcurrentAccessError"),
            *("AuthenticationError", "SslAuthenticationError", "WakeupError", "BufferExhaustedError"),
            *(
                "DeliveryTimeoutError",
                "NoBrokerError",
                "WrongListenerError",
                "OtherRecordsInvalidError",
                "CommitFailedError",
            ),
            *("AbortableTransactionError", "FatalProducerError"),
        ),
    ),
    "spark.md": _Page(
        "Spark",
        '`spark.read.format("klamm")` and `spark.readStream.format("klamm")` read topics, `write` and `writeStream` '
        "write them. Their options are [settings](../settings.md#sparks-source), too.",
        "pyspark_klamm",
        ("KlammDataSource", "local_session", "from_klamm", "source_metrics", "offsets_behind_latest"),
    ),
}

INDEX: Final = """# Python API

The public names of the client library and of the data source for Spark, with the words of their docstrings. All that is
not here is private, and may change with any version.

"""


def pages() -> dict[str, str]:
    """The texts by file names."""
    index = INDEX + "".join(f"- [{page.title}]({name})\n" for name, page in _PAGES.items())
    return {"index.md": index, **{name: "\n".join(_lines(page)) for name, page in _PAGES.items()}}


def _lines(page: _Page) -> Iterator[str]:
    yield from (f"# {page.title}", "", page.text, "")
    if page.has_docstring:
        yield from (f"::: {page.package}", "    options:", "      members: []", "")
    names = page.names or sorted(importlib.import_module(page.package).__all__, key=_rank)
    for name in names:
        yield f"::: {page.package}.{name}"
        if name.removeprefix("Async") in _FIRST:
            yield from ("    options:", "      inherited_members: true")
        yield ""


def _rank(name: str) -> tuple[int, bool, str]:
    plain = name.removeprefix("Async")
    place = _FIRST.index(plain) if plain in _FIRST else len(_FIRST)
    return place, name != plain, name
