"""Writes the generated pages, or checks them: `python -m tools.reference [--check]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from tools.reference.pages import pages

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "reference"


def main() -> int:
    """The exit status: 1 if `--check` finds a page that is out of date."""
    parser = argparse.ArgumentParser(prog="python -m tools.reference", description="Writes docs/reference.")
    parser.add_argument("--check", action="store_true", help="Write nothing; name the pages that are out of date.")
    is_check = parser.parse_args().check
    stale = [name for name, text in pages().items() if not _is_written(FOLDER / name, text, is_check)]
    for name in stale:
        print(f"docs/reference/{name} is out of date: write it again by `python -m tools.reference`", file=sys.stderr)
    return int(bool(stale))


def _is_written(path: Path, text: str, is_check: bool) -> bool:
    if is_check:
        return path.exists() and path.read_text(encoding="utf-8") == text
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return True


if __name__ == "__main__":
    sys.exit(main())
