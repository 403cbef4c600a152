"""ApiVersions (KIP-35, KIP-511): what this broker speaks. Answered in every version, before anything else."""

from __future__ import annotations

from klamm.errors import ErrorCode
from klamm_broker.kafka.requests import SPOKEN, ApiKey, Request, Versions
from klamm_broker.kafka.wire import Writer


def api_versions(request: Request) -> Writer:
    """To a version that is not spoken the answer is one of version 0, which every client can read, and names the range
    of this API."""
    if not request.is_spoken:
        return _answer(0, ErrorCode.UNSUPPORTED_VERSION, [(ApiKey.API_VERSIONS, SPOKEN[ApiKey.API_VERSIONS])])
    return _answer(request.version, ErrorCode.NONE, sorted(SPOKEN.items()))


def _answer(version: int, code: ErrorCode, spoken: list[tuple[ApiKey, Versions]]) -> Writer:
    writer = Writer(flexible=version >= SPOKEN[ApiKey.API_VERSIONS].flexible)
    writer.int16(code)

    def write(entry: tuple[ApiKey, Versions]) -> None:
        api_key, versions = entry
        writer.int16(api_key)
        writer.int16(versions.advertised_min)
        writer.int16(versions.max)
        writer.tagged_fields()

    writer.array(spoken, write)
    if version >= 1:
        writer.int32(0)
    writer.tagged_fields()
    return writer
