"""Parses the text of `sasl.jaas.config`, without loading the class that it names.

    org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="b";

Java loads the named class, which allowed attackers to run their code (CVE-2023-25194, 2025-27818). This module only
knows three names. Words, quotes, escapes and comments are those of Java's StreamTokenizer, which Kafka uses. So a value
that begins with a digit, '.' or '-' must be quoted. Errors name the place but show nothing of the text, because any
part may be a secret if a quote is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from klamm.errors import ConfigError
from klamm.secret import Secret

_PACKAGE: Final = "org.apache.kafka.common.security"
_CONTROL_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})


class LoginModule(Enum):
    """Kafka's login modules that are known, by class name."""

    SCRAM = f"{_PACKAGE}.scram.ScramLoginModule"
    PLAIN = f"{_PACKAGE}.plain.PlainLoginModule"
    OAUTHBEARER = f"{_PACKAGE}.oauthbearer.OAuthBearerLoginModule"


@dataclass(frozen=True, slots=True, kw_only=True)
class JaasLogin:
    """A login module and its options, such as `username` and `password`. The code of its mechanism checks the
    options.
    """

    module: LoginModule
    options: Mapping[str, Secret]


class _Token(NamedTuple):
    kind: str
    """The kind of token: `word`, `quoted`, `=`, `;`, or `other` for tokens that Java does not read as text."""
    text: str
    position: int


_TOKEN: Final = re.compile(
    r"""(?P<space>[\x00-\x20]+|//[^\r\n]*|/\*.*?(?:\*/|\Z)|/[^\r\n]*)
      | (?P<word>[A-Za-z_$\xa0-\U0010ffff][A-Za-z0-9_$.\-\xa0-\U0010ffff]*)
      | "(?P<double>(?:[^"\\\r\n]|\\.)*)"
      | '(?P<single>(?:[^'\\\r\n]|\\.)*)'
      | (?P<sign>[=;])
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def parse_jaas(text: Secret) -> JaasLogin:
    """Returns the single login module of the text. Raises ConfigError for any other text."""
    tokens = list(_tokens(text.reveal()))
    if not tokens:
        raise _error("names no login module")
    if len(tokens) < 2 or tokens[1].kind != "word" or tokens[1].text.lower() not in _CONTROL_FLAGS:
        raise _error("has no control flag after its login module; expected 'required'")
    end = next((at for at, token in enumerate(tokens) if token.kind == ";"), None)
    if end is None:
        raise _error("does not end with ';'")
    if end + 1 < len(tokens):
        where = tokens[end + 1].position
        raise _error(f"continues after the first ';', at character {where}; expected one login module")
    return JaasLogin(module=_module(tokens[0]), options=dict(_options(tokens[2:end])))


def _module(token: _Token) -> LoginModule:
    try:
        return LoginModule(token.text)
    except ValueError:
        known = ", ".join(module.value for module in LoginModule)
        raise _error(f"names a login module that is not known; expected one of {known}") from None


def _options(tokens: list[_Token]) -> Iterator[tuple[str, Secret]]:
    seen = set()
    for at in range(0, len(tokens), 3):
        name, *rest = tokens[at : at + 3]
        if name.kind not in ("word", "quoted"):
            raise _error(f"has no option's name at character {name.position}")
        if len(rest) < 2 or rest[0].kind != "=" or rest[1].kind not in ("word", "quoted"):
            raise _error(f'has no value for the option at character {name.position}: expected name="value"')
        if name.text in seen:
            raise _error(f"has the option at character {name.position} twice")
        seen.add(name.text)
        yield name.text, Secret(rest[1].text)


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind in ("double", "single"):
            yield _Token("quoted", _ESCAPE.sub(_unescaped, match[kind]), match.start())
        elif kind == "sign":
            yield _Token(match["sign"], "", match.start())
        elif kind != "space":
            yield _Token(str(kind), match[0], match.start())


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _ESCAPED.get(code, code)


def _error(problem: str) -> ConfigError:
    return ConfigError(f"sasl.jaas.config {problem}")
