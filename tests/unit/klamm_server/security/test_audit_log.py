"""Tests the audit log as a file: private, with whole lines, and movable."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import stat
from pathlib import Path

import pytest

from klamm.errors import ConfigError
from klamm_server.security.audit_log import LOGGER, AuditLog


def write(log: AuditLog, *lines: bytes) -> None:
    asyncio.run(log.write(lines))


def test_audit_lines_are_appended_to_a_file_that_only_its_owner_may_read(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text("before\n")
    path.chmod(0o644)
    log = AuditLog(str(path))
    write(log, b"a", b"b")
    write(log, b"c")
    asyncio.run(log.close())
    assert path.read_text() == "before\na\nb\nc\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_new_audit_file_is_created_with_owner_permissions_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        log = AuditLog(str(tmp_path / "audit.log"))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "audit.log").stat().st_mode) == 0o600
    asyncio.run(log.close())


def test_after_the_audit_file_was_moved_a_new_one_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = AuditLog(str(path))
    write(log, b"a")
    path.rename(tmp_path / "audit.log.1")
    write(log, b"b")
    asyncio.run(log.close())
    assert (tmp_path / "audit.log.1").read_text() == "a\n"
    assert path.read_text() == "b\n"


def test_audit_lines_of_a_partial_write_are_written_again_on_a_new_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.log"
    log = AuditLog(str(path))
    whole = os.write
    left = iter([3])

    def full_disk(descriptor: int, text: bytes) -> int:
        taken = next(left, 0)
        if not taken:
            raise OSError(28, "No space left on device")
        return whole(descriptor, text[:taken])

    monkeypatch.setattr(os, "write", full_disk)
    with pytest.raises(OSError, match="No space"):
        write(log, b'{"a":1}', b'{"b":2}')
    monkeypatch.undo()
    write(log, b'{"a":1}', b'{"b":2}')
    asyncio.run(log.close())
    torn, *rest = path.read_text().splitlines()
    assert torn == '{"a'
    assert [json.loads(line) for line in rest] == [{"a": 1}, {"b": 2}]


def test_a_file_that_cannot_be_written_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"audit\.log\.file: .*/none/audit\.log.* cannot be written"):
        AuditLog(str(tmp_path / "none" / "audit.log"))


def test_without_an_audit_file_the_lines_go_to_a_logger(capfd: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger(LOGGER)
    log, other = AuditLog(None), AuditLog(None)
    try:
        assert len(logger.handlers) == 1, "servers of one process share it"
        assert not logger.propagate
    finally:
        asyncio.run(log.close())
        asyncio.run(other.close())
        logger.handlers.clear()
