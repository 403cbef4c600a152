"""Tests the memory of a process for data that would decompress to far more than the limit."""

from __future__ import annotations

import subprocess
import sys
import textwrap

from tests.support.waiting import patience


def test_decompression_bombs_use_no_more_memory_than_the_limit() -> None:
    """The test measures a process of its own, since the high-water mark of this one may be anything."""
    script = """
        import resource
        from klamm.records import CompressionType, DecompressedTooLargeError
        from klamm.records.compression import compress, decompress

        def peak_bytes():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

        MIB = 1 << 20
        xerial_header = 16
        small = {each: compress(each, bytes(MIB)) for each in CompressionType if each}
        bombs = {each: member * 1024 for each, member in small.items() if each is not CompressionType.SNAPPY}
        snappy = small[CompressionType.SNAPPY]
        bombs[CompressionType.SNAPPY] = snappy[:xerial_header] + snappy[xerial_header:] * 1024
        for each, bomb in bombs.items():
            before = peak_bytes()
            try:
                decompress(each, bomb, max_bytes=8 * MIB)
            except DecompressedTooLargeError:
                pass
            else:
                raise SystemExit(f"{each.config_name} was not refused")
            grown = peak_bytes() - before
            if grown > 24 * MIB:
                raise SystemExit(f"{each.config_name} took {grown} bytes")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=patience()
    )
    assert (done.returncode, done.stderr) == (0, "")
