"""Tests the error text of a failed query: it has the reason, and no name of a class."""

from __future__ import annotations

import re

import pytest

from klamm_pipelines.spark_errors import innermost

PYTHON_IN_JAVA = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted: \
Task 0 in stage 3.0 failed 1 times: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 2044, in main
    process()
klamm.errors.IllegalStateError: more than 10 ids in two windows: allow more with --max-ids, or shorten --window

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:561) SQLSTATE: XXKST"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PYTHON_IN_JAVA, "more than 10 ids in two windows: allow more with --max-ids, or shorten --window"),
        (
            "[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: klamm.errors.ConfigError: unknown"
            " option 'topik'; did you mean topic?\n SQLSTATE: 38000",
            "unknown option 'topik'; did you mean topic?",
        ),
        (
            "An error occurred while calling o61.start.\n"
            ": java.lang.IllegalArgumentException: Wrong interval '1 sceond'\n"
            "\tat org.apache.spark.sql.streaming.Trigger.x(T.java:1)",
            "Wrong interval '1 sceond'",
        ),
        (
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `valu` cannot be resolved. SQLSTATE: 42703; line 1 pos 0",
            "A column `valu` cannot be resolved. SQLSTATE: 42703; line 1 pos 0",
        ),
        (
            "Failed: x\norg.apache.spark.SparkException: Job aborted\n"
            "Caused by: java.io.IOException: No space left on device",
            "No space left on device",
        ),
        (
            "klamm.errors.UnknownTopicOrPartitionError: UNKNOWN_TOPIC: 'a' does not exist",
            "UNKNOWN_TOPIC: 'a' does not exist",
        ),
        ("java.lang.NullPointerException", "Spark ended the query without a reason"),
        ("", "Spark ended the query without a reason"),
    ],
)
def test_the_error_of_a_failed_query_has_its_reason_and_no_class_name(text, said):
    assert innermost(text) == said
    assert not re.search(r"\w+(Error|Exception)\b", innermost(text))
