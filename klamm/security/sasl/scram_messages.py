"""The four messages of SCRAM, read and written (RFC 5802, section 7).

    client first   n,[a=authzid],n=name,r=client-nonce[,extensions]
    server first   r=nonce,s=salt,i=iterations[,extensions]           the nonce begins with the client's
    client final   c=gs2-header,r=nonce[,extensions],p=proof
    server final   v=signature  |  e=error

There is no channel binding: a client that demands it (`p=`) is refused, one that could have used it (`y`) is not.
A mandatory extension (`m=`) is refused, as the RFC wants it; others are passed over. All parsers raise
ScramMessageError on bytes that are no such message, and nothing else.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Final, Literal

_NONCE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
_EXTENSION: Final = re.compile(r"[A-Za-z]+=[^\x00,]+", re.DOTALL)
_ITERATIONS: Final = re.compile(r"[1-9][0-9]{0,8}")
_LONE_EQUALS: Final = re.compile(r"=(?!2C|3D)")


class ScramMessageError(ValueError):
    """Bytes are not the expected message. The text gives the reason and shows nothing of the bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFirst:
    """The client's first message: the user that wants to log in."""

    gs2_flag: Literal["n", "y"] = "n"
    authzid: str = ""
    name: str
    nonce: str
    extensions: tuple[tuple[str, str], ...] = ()

    @property
    def gs2_header(self) -> bytes:
        """The header that `c=` of the client's final message repeats."""
        authzid = f"a={saslname(self.authzid)}" if self.authzid else ""
        return f"{self.gs2_flag},{authzid},".encode()

    @property
    def bare(self) -> bytes:
        """The part of the message that both sides sign."""
        return f"n={saslname(self.name)},r={self.nonce}{_written(self.extensions)}".encode()

    def encode(self) -> bytes:
        return self.gs2_header + self.bare


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFirst:
    """The server's first message: the salt and the iterations of the password."""

    nonce: str
    salt: bytes
    iterations: int

    def encode(self) -> bytes:
        return f"r={self.nonce},s={_base64(self.salt)},i={self.iterations}".encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFinal:
    """The client's proof."""

    channel_binding: bytes
    nonce: str
    proof: bytes
    without_proof: bytes
    """The bytes before `,p=`, which both sides sign."""


def client_final_without_proof(channel_binding: bytes, nonce: str) -> bytes:
    return f"c={_base64(channel_binding)},r={nonce}".encode()


def with_proof(without_proof: bytes, proof: bytes) -> bytes:
    """Returns the client's final message."""
    return without_proof + b",p=" + base64.b64encode(proof)


def server_final(signature: bytes) -> bytes:
    return b"v=" + base64.b64encode(signature)


def parse_client_first(data: bytes) -> ClientFirst:
    flag, authzid, *attributes = _attributes(data, at_least=4)
    if flag not in ("n", "y"):
        raise ScramMessageError("channel binding is asked for, and there is none")
    name, nonce, *extensions = attributes
    return ClientFirst(
        gs2_flag="n" if flag == "n" else "y",
        authzid=_name(_value(authzid, "a")) if authzid else "",
        name=_name(_value(name, "n")),
        nonce=_nonce(_value(nonce, "r")),
        extensions=_extensions(extensions),
    )


def parse_server_first(data: bytes) -> ServerFirst:
    nonce, salt, iterations, *extensions = _attributes(data, at_least=3)
    _extensions(extensions)
    count = _value(iterations, "i")
    if not _ITERATIONS.fullmatch(count):
        raise ScramMessageError("the iterations are not a positive number")
    return ServerFirst(nonce=_nonce(_value(nonce, "r")), salt=_bytes(_value(salt, "s")), iterations=int(count))


def parse_client_final(data: bytes) -> ClientFinal:
    binding, nonce, *extensions, proof = _attributes(data, at_least=3)
    _extensions(extensions)
    return ClientFinal(
        channel_binding=_bytes(_value(binding, "c")),
        nonce=_nonce(_value(nonce, "r")),
        proof=_bytes(_value(proof, "p")),
        without_proof=data[: data.rindex(b",")],
    )


def parse_server_final(data: bytes) -> bytes:
    """Returns the server's signature. Raises ScramMessageError, also if the server reports an error."""
    signature, *extensions = _attributes(data, at_least=1)
    if signature.startswith("e="):
        raise ScramMessageError("the server refuses the login")
    _extensions(extensions)
    return _bytes(_value(signature, "v"))


def saslname(name: str) -> str:
    """Returns a name in the encoding of SCRAM messages."""
    return name.replace("=", "=3D").replace(",", "=2C")


def _attributes(data: bytes, *, at_least: int) -> list[str]:
    try:
        parts = data.decode().split(",")
    except UnicodeDecodeError as error:
        raise ScramMessageError("not UTF-8") from error
    if len(parts) < at_least:
        raise ScramMessageError(f"{len(parts)} attributes; expected {at_least} or more")
    return parts


def _value(attribute: str, key: str) -> str:
    if not attribute.startswith(key + "=") or len(attribute) == 2:
        mandatory = " in place of a mandatory extension, which is not known" if attribute.startswith("m=") else ""
        raise ScramMessageError(f"attribute {key}= is expected{mandatory}")
    return attribute[2:]


def _name(value: str) -> str:
    if "\0" in value or _LONE_EQUALS.search(value):
        raise ScramMessageError("a name with NUL, or '=' that begins neither =2C nor =3D")
    return value.replace("=2C", ",").replace("=3D", "=")


def _nonce(value: str) -> str:
    if not _NONCE.fullmatch(value):
        raise ScramMessageError("a nonce is made of printable ASCII without commas")
    return value


def _bytes(value: str) -> bytes:
    try:
        return base64.b64decode(value.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise ScramMessageError("a value is not base64") from error


def _extensions(attributes: list[str]) -> tuple[tuple[str, str], ...]:
    for attribute in attributes:
        if not _EXTENSION.fullmatch(attribute):
            raise ScramMessageError("an extension is not name=value")
        if attribute.startswith("m="):
            raise ScramMessageError("a mandatory extension is not known")
    return tuple((key, value) for key, _, value in (attribute.partition("=") for attribute in attributes))


def _written(extensions: tuple[tuple[str, str], ...]) -> str:
    return "".join(f",{key}={value}" for key, value in extensions)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
