"""Distinguished names in DER (X.690), of any attribute and string type, and certificates with no other content."""

from __future__ import annotations

UTF8 = 0x0C
SEQUENCE, SET, OID, INTEGER, VERSION = 0x30, 0x31, 0x06, 0x02, 0xA0


def element(tag: int, content: bytes) -> bytes:
    """Returns one element with its length."""
    if len(content) < 0x80:
        return bytes([tag, len(content)]) + content
    length = len(content).to_bytes((len(content).bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def oid(text: str) -> bytes:
    """Returns an object identifier. `text` has its numbers with dots between them, such as `2.5.4.3`."""
    first, second, *rest = map(int, text.split("."))
    return element(OID, b"".join(_base_128(number) for number in (40 * first + second, *rest)))


def attribute(number: str, tag: int, text: str | bytes) -> bytes:
    """Returns an attribute of a name. The text is encoded as UTF-8."""
    content = text if isinstance(text, bytes) else text.encode()
    return element(SEQUENCE, oid(number) + element(tag, content))


def rdn(*attributes: bytes) -> bytes:
    """Returns one part of a name, with its attributes in that order."""
    return element(SET, b"".join(attributes))


def name(*parts: bytes) -> bytes:
    """Returns a distinguished name with these parts."""
    return element(SEQUENCE, b"".join(parts))


def certificate(subject: bytes, *, version: int = 3) -> bytes:
    """Returns a certificate up to its subject. The other fields are there and empty."""
    head = element(VERSION, element(INTEGER, bytes([version - 1]))) if version > 1 else b""
    serial, empty = element(INTEGER, b"\5"), element(SEQUENCE, b"")
    tbs = head + serial + empty + name(rdn(attribute("2.5.4.3", UTF8, "issuer"))) + empty + subject + empty
    return element(SEQUENCE, element(SEQUENCE, tbs) + empty)


def _base_128(number: int) -> bytes:
    digits = [number & 0x7F]
    while number := number >> 7:
        digits.append(number & 0x7F | 0x80)
    return bytes(reversed(digits))
