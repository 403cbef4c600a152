"""`ssl.principal.mapping.rules`: makes a principal's name of a distinguished name (KIP-371).

Rules are tried in order. `DEFAULT` takes the whole distinguished name. `RULE:pattern/replacement/[LU]` applies if the
pattern matches the whole name. It replaces the matches like Java's `replaceAll`, and may change the case. Patterns are
those of RE2, because its time is linear in the length of the name, and the client chooses the name."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from klamm.errors import ConfigError

_SETTING = "ssl.principal.mapping.rules"
_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)"
    r"|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))?\s*(?:,|$)"
)
_REPLACED = re.compile(r"\\(?P<literal>.)|\$(?P<group>[0-9]+)", re.DOTALL)


class Rule(NamedTuple):
    """One rule. DEFAULT has no pattern."""

    pattern: str | None
    replacement: str = ""
    case: str = ""
    """The change of case: L, U or empty."""

    def apply(self, name: str) -> str | None:
        """Returns the principal's name, or None if the rule does not match."""
        if self.pattern is None:
            return name
        compiled = _compiled(self.pattern)
        if compiled.fullmatch(name) is None:
            return None
        parts, end = [], 0
        for match in compiled.finditer(name):
            parts += [name[end : match.start()], _replacement(self.replacement, match, compiled.groups)]
            end = match.end()
        mapped = "".join([*parts, name[end:]])
        return {"L": mapped.lower, "U": mapped.upper}.get(self.case, lambda: mapped)()


@dataclass(frozen=True, slots=True)
class PrincipalRules:
    """The rules of one listener, in order."""

    rules: tuple[Rule, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses rules that are separated by commas. Raises ConfigError for another text, or for a pattern that RE2
        refuses."""
        rules: list[Rule] = []
        position = 0
        text = text.strip()
        while position < len(text):
            match = _RULE.match(text, position)
            if match is None:
                raise ConfigError(
                    f"{_SETTING}: {text[position:].lstrip()!r} is not valid, expected RULE:pattern/replacement/[LU] or"
                    " DEFAULT, with commas between"
                )
            if match["default"]:
                rules.append(Rule(None))
            elif match["pattern"] is not None:
                rules.append(Rule(match["pattern"], match["replacement"], match["case"]))
            position = match.end()
        for rule in rules:
            _check(rule)
        return cls(tuple(rules))

    def name(self, distinguished_name: str) -> str | None:
        """Returns the principal's name by the first rule that matches, or None if no rule matches the certificate."""
        return next((name for rule in self.rules if (name := rule.apply(distinguished_name)) is not None), None)


def _check(rule: Rule) -> None:
    if rule.pattern is None:
        return
    import re2

    try:
        _compiled(rule.pattern)
    except re2.error as error:
        raise ConfigError(
            f"{_SETTING}: {rule.pattern!r} is not a regular expression of RE2's: {_text_of(error)}"
        ) from None


def _text_of(error: Exception) -> str:
    """Returns the text of RE2's error, which may be bytes."""
    return ", ".join(part.decode() if isinstance(part, bytes) else str(part) for part in error.args)


@functools.lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)


def _replacement(text: str, match: Any, group_count: int) -> str:
    """Returns the replacement of one match. If there are fewer than 12 groups, `$12` is group 1 followed by a 2. If
    there is no group 1 either, `$12` stays as it is. A character after a backslash stands for itself."""

    def replaced(found: re.Match[str]) -> str:
        if found["literal"] is not None:
            return found["literal"]
        digits = found["group"]
        for length in range(len(digits), 0, -1):
            if int(digits[:length]) <= group_count:
                return (match.group(int(digits[:length])) or "") + digits[length:]
        return found[0]

    return _REPLACED.sub(replaced, text)
