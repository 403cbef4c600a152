"""Tests that the page of Kafka's APIs names the versions that ApiVersions names, and mentions every difference."""

from __future__ import annotations

from kio.serial import entity_reader

from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.codec.schemas import response_schema
from klamm_broker.kafka.cold.features import LEVELS
from klamm_broker.kafka.hot.api_versions import api_versions
from klamm_broker.kafka.served_apis import SPOKEN
from tests.support import protocol_table
from tests.support.cold_requests import request_of


def named() -> dict[int, protocol_table.Range]:
    """Returns the versions that ApiVersions gives a client, by API key."""
    fields = {"client_software_name": "test", "client_software_version": "1"}
    request = request_of(ApiKey.API_VERSIONS, 4, fields)
    answer = b"".join(bytes(part) for part in api_versions(request, SPOKEN, 1, "cluster", 1).parts())
    message, _ = entity_reader(response_schema(ApiKey.API_VERSIONS, 4))(memoryview(answer), 0)
    return {api_key.api_key: (api_key.min_version, api_key.max_version) for api_key in message.api_keys}


def test_the_page_lists_the_api_versions_that_clients_are_told() -> None:
    rows = protocol_table.rows()
    assert {row.key: row.klamm for row in rows if row.klamm is not None} == named()
    assert {row.name.lower() for row in rows if row.klamm is not None} == {
        ApiKey(key).name.replace("_", "").lower() for key in named()
    }
    assert sorted(row.key for row in rows) == [row.key for row in rows]


def test_the_page_explains_every_version_that_differs_from_kafkas() -> None:
    assert [row.name for row in protocol_table.rows() if row.klamm != row.kafka and not row.differs] == []


def test_the_page_equals_the_generated_table() -> None:
    rows = protocol_table.rows()
    written = protocol_table.written(
        {row.name: (row.key, row.kafka) for row in rows}, {row.name: row.differs for row in rows}
    )
    text = protocol_table.PAGE.read_text()
    assert "\n".join(written) in text


def test_the_page_names_the_features_and_their_levels() -> None:
    text = protocol_table.PAGE.read_text()
    assert [name for name, level in LEVELS.items() if f"| {name} | {level} |" not in text] == []
