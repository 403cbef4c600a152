"""Tests that large requests are divided into parts, and that the parts' answers make the same answer as the whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.errors import ErrorCode
from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.codec import messages
from klamm_broker.kafka.codec.fields import Fields
from klamm_broker.kafka.cold.request_parts import PART_ITEMS, joined_answer, parts_of
from klamm_broker.kafka.served_apis import SPOKEN
from tests.support.cold_requests import request_of

SIZES = st.lists(st.sampled_from([0, 1, 3, PART_ITEMS - 1, PART_ITEMS, PART_ITEMS + 1, 3 * PART_ITEMS]), max_size=6)
Key = tuple[Any, ...]


def decoded(api_key: ApiKey, fields: dict[str, Any]) -> Any:
    return messages.decode(request_of(api_key, SPOKEN[api_key].max, fields))


def delete_records(sizes: list[int]) -> Any:
    """Returns a DeleteRecords of as many partitions of each topic."""
    topics = [
        {"name": f"t{number}", "partitions": [{"partition_index": one, "offset": -1} for one in range(size)]}
        for number, size in enumerate(sizes)
    ]
    return decoded(ApiKey.DELETE_RECORDS, {"topics": topics, "timeout": 5_000})


def deleted(message: Any) -> Fields:
    """Returns the answer to a DeleteRecords."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [{"partition_index": partition.partition_index} for partition in topic.partitions],
            }
            for topic in message.topics
        ]
    }


@given(SIZES)
def test_the_parts_have_all_items_once_and_in_their_order(sizes: list[int]) -> None:
    whole = delete_records(sizes)
    parts = list(parts_of(ApiKey.DELETE_RECORDS, whole))
    assert all(part.timeout == whole.timeout for part in parts)
    named = [
        [(topic.name, partition.partition_index) for topic in part.topics for partition in topic.partitions]
        for part in parts
    ]
    assert [one for part in named for one in part] == [
        (topic.name, partition.partition_index) for topic in whole.topics for partition in topic.partitions
    ]
    assert [topic.name for topic in whole.topics] == list(
        dict.fromkeys(topic.name for part in parts for topic in part.topics)
    )
    assert all(len(part) <= PART_ITEMS for part in named)


@given(SIZES)
def test_the_answers_of_the_parts_are_joined_to_that_of_the_whole(sizes: list[int]) -> None:
    whole = delete_records(sizes)
    answers = [deleted(part) for part in parts_of(ApiKey.DELETE_RECORDS, whole)]
    assert joined_answer(ApiKey.DELETE_RECORDS, whole, answers) == deleted(whole)


def test_the_items_of_three_arrays_within_each_other_are_divided_and_joined() -> None:
    topics = [{"name": f"t{number}", "partition_indexes": list(range(400))} for number in range(3)]
    marker = {
        "producer_id": 7,
        "producer_epoch": 0,
        "transaction_result": True,
        "topics": topics,
        "coordinator_epoch": 0,
        "transaction_version": 0,
    }
    whole = decoded(ApiKey.WRITE_TXN_MARKERS, {"markers": [marker, {**marker, "producer_id": 8}]})
    parts = list(parts_of(ApiKey.WRITE_TXN_MARKERS, whole))
    assert len(parts) == 12

    def answer(message: Any) -> Fields:
        return {
            "markers": [
                {
                    "producer_id": one.producer_id,
                    "topics": [
                        {"name": topic.name, "partitions": [{"partition_index": n} for n in topic.partition_indexes]}
                        for topic in one.topics
                    ],
                }
                for one in message.markers
            ]
        }

    assert joined_answer(ApiKey.WRITE_TXN_MARKERS, whole, [answer(part) for part in parts]) == answer(whole)


@pytest.mark.parametrize("topics", [PART_ITEMS + 1, 1])
def test_results_of_items_without_items_are_not_joined(topics: int) -> None:
    """Even if a resource is named twice, at the end of one part and at the start of the next."""
    resources = [
        {"resource_type": 2, "resource_name": f"t{number % topics}", "configuration_keys": None}
        for number in range(PART_ITEMS + 1)
    ]
    fields = {"resources": resources, "include_synonyms": False, "include_documentation": False}
    whole = decoded(ApiKey.DESCRIBE_CONFIGS, fields)
    answers = [
        {
            "results": [
                {"error_code": 0, "resource_name": resource.resource_name, "configs": []} for resource in part.resources
            ]
        }
        for part in parts_of(ApiKey.DESCRIBE_CONFIGS, whole)
    ]
    assert len(joined_answer(ApiKey.DESCRIBE_CONFIGS, whole, answers)["results"]) == PART_ITEMS + 1


def test_an_error_of_a_part_is_the_answer() -> None:
    whole = decoded(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        {"timeout": 1, "topics": [{"name": "t", "partition_indexes": list(range(2 * PART_ITEMS))}]},
    )
    refused = {"error_code": ErrorCode.NOT_CONTROLLER, "topics": []}
    fine = {"error_code": ErrorCode.NONE, "topics": [{"name": "t", "partitions": []}]}
    assert joined_answer(ApiKey.LIST_PARTITION_REASSIGNMENTS, whole, [fine, refused]) == refused


@pytest.mark.parametrize("topics", [None, []])
def test_a_request_without_items_is_not_divided(topics: Any) -> None:
    whole = decoded(ApiKey.LIST_PARTITION_REASSIGNMENTS, {"timeout": 1, "topics": topics})
    assert list(parts_of(ApiKey.LIST_PARTITION_REASSIGNMENTS, whole)) == [whole]


def test_a_request_that_is_served_as_a_whole_is_not_divided() -> None:
    topics = [
        {"name": f"t{number}", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        for number in range(2 * PART_ITEMS)
    ]
    whole = decoded(ApiKey.CREATE_TOPICS, {"topics": topics, "timeout": 1, "validate_only": True})
    assert list(parts_of(ApiKey.CREATE_TOPICS, whole)) == [whole]
