from __future__ import annotations

import pytest

from klamm.errors import EXCEPTIONS, BrokerError, ErrorCode, raise_for


def test_the_error_code_is_named_once_after_a_trip_from_server_to_client() -> None:
    at_the_server = ErrorCode.MESSAGE_TOO_LARGE.exception(
        "a batch has 670 bytes; expected at most max.message.bytes=500"
    )

    with pytest.raises(BrokerError) as at_the_client:
        raise_for(at_the_server.code, at_the_server.message)

    assert str(at_the_client.value) == (
        "MESSAGE_TOO_LARGE: a batch has 670 bytes; expected at most max.message.bytes=500"
    )


@pytest.mark.parametrize("code", EXCEPTIONS)
def test_each_error_code_has_an_exception_with_its_text(code: ErrorCode) -> None:
    error = code.exception()

    assert (error.code, error.message) == (code, code.text)
    assert str(error) == f"{code.name}: {code.text}"
    assert (error.retriable, error.refresh_metadata) == (code.retriable, code.refresh_metadata)


def test_an_unknown_error_code_is_raised_as_unknown_server_error() -> None:
    with pytest.raises(EXCEPTIONS[ErrorCode.UNKNOWN_SERVER_ERROR], match="from the future"):
        raise_for(4711, "from the future")


def test_raise_for_raises_nothing_without_an_error() -> None:
    raise_for(ErrorCode.NONE)
