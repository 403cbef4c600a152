r"""Replaces backslash escapes in the separators and formats that people type: \t \n \r \0 \\ \xHH \uHHHH \UHHHHHHHH."""

from __future__ import annotations

import re
from typing import Final

from klamm.errors import ConfigError

_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.)|$)", re.DOTALL)
_SINGLE: Final = {"t": b"\t", "n": b"\n", "r": b"\r", "0": b"\0", "\\": b"\\"}
_EXPECTED: Final = r"expected \t, \n, \r, \0, \\, \xHH (a byte), \uHHHH or \UHHHHHHHH (a character)"


def unescape(text: str, option: str) -> bytes:
    r"""Returns the bytes that `text` stands for: `\xHH` is a byte, everything else is UTF-8. Raises ConfigError."""
    parts: list[bytes] = []
    end = 0
    for match in _ESCAPE.finditer(text):
        parts += (_encode(text[end : match.start()]), _unescape_one(match, option))
        end = match.end()
    return b"".join([*parts, _encode(text[end:])])


def _encode(text: str) -> bytes:
    # A byte of the command line that is no UTF-8 comes as a surrogate (PEP 383).
    return text.encode("utf-8", "surrogateescape")


def _unescape_one(match: re.Match[str], option: str) -> bytes:
    byte, short, long, single = match.groups()
    if byte is not None:
        return bytes.fromhex(byte)
    if single is not None and single in _SINGLE:
        return _SINGLE[single]
    if short is not None or long is not None:
        try:
            return chr(int(short or long, 16)).encode()
        except (ValueError, OverflowError):
            raise ConfigError(f"{option}: {match[0]} is not a character") from None
    raise ConfigError(f"{option}: {match[0]} is not an escape; {_EXPECTED}")
