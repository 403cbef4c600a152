"""The text of a distinguished name as Java has it (`X500Principal.getName()`), which Kafka's ACLs and rules name.

It is RFC 2253 with Java's peculiarities. The last part comes first. Nine attributes have keywords; the others have
their number, and their encoding in hex. `=` and `#` are always escaped. The bytes of any string type are read as UTF-8.

It reads only the necessary part of DER (X.690). Its input comes from a certificate that OpenSSL has accepted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_OID: Final = 0x06
_VERSION: Final = 0xA0
_STRINGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E})
"""The DER tags of UTF8, Printable, T61, IA5, General, Universal and BMP strings."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_BLANKS: Final = " \r"


class _Element(NamedTuple):
    tag: int
    content: bytes
    encoding: bytes


def subject_of(certificate: bytes) -> bytes:
    """Returns the DER of the subject of a certificate in DER (RFC 5280). Raises ValueError for other bytes."""
    fields = _elements(_content(_content(certificate, _SEQUENCE), _SEQUENCE))
    version_or_serial = next(fields, None)
    # The subject follows serial number, signature, issuer and validity. All but version 1 begin with the version.
    before_subject = 5 if version_or_serial is not None and version_or_serial.tag == _VERSION else 4
    for _ in range(before_subject - 1):
        next(fields, None)
    subject = next(fields, None)
    if subject is None or subject.tag != _SEQUENCE:
        raise ValueError("not a certificate")
    return subject.encoding


def java_text(name: bytes) -> str:
    """Returns Java's text of a name in DER. Raises ValueError for other bytes."""
    parts = [_part(element.content) for element in _elements(_content(name, _SEQUENCE))]
    return ",".join(reversed(parts))


def subject_text(certificate: bytes) -> str:
    """Returns Java's text of the subject of a certificate in DER. Raises ValueError for other bytes."""
    return java_text(subject_of(certificate))


def _part(attributes: bytes) -> str:
    return "+".join(_attribute(element.content) for element in _elements(attributes))


def _attribute(content: bytes) -> str:
    oid, value = _elements(content)
    number = _oid_text(oid.content)
    keyword = _KEYWORDS.get(number)
    if keyword is None or value.tag not in _STRINGS:
        return f"{keyword or number}=#{value.encoding.hex()}"
    return f"{keyword}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    escaped = "".join("\\" + char if char in _ESCAPED else "\\00" if char == "\0" else char for char in text)
    inner = escaped.strip(_BLANKS)
    if not inner:
        return "".join("\\" + char for char in escaped)
    start = escaped.index(inner)
    before, after = escaped[:start], escaped[start + len(inner) :]
    return "".join("\\" + char for char in before) + inner + "".join("\\" + char for char in after)


def _oid_text(content: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise ValueError("an empty object identifier")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def _content(encoding: bytes, tag: int) -> bytes:
    element = next(_elements(encoding), None)
    if element is None or element.tag != tag:
        raise ValueError(f"expected DER with the tag {tag:#x}")
    return element.content


def _elements(data: bytes) -> Iterator[_Element]:
    position = 0
    while position < len(data):
        start = position
        if len(data) - start < 2:
            raise ValueError("DER that ends within an element")
        tag, length = data[start], data[start + 1]
        position = start + 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[position : position + size], "big")
            position += size
        if position + length > len(data):
            raise ValueError("DER that ends within an element")
        yield _Element(tag, data[position : position + length], data[start : position + length])
        position += length
