"""Prints how many modules' unit tests are found by name: those of klamm_broker/log/segment/segment.py in
tests/unit/klamm_broker/log/segment/test_segment.py.

Run: python tools/tests_by_name.py [--missing]

Modules of fewer lines than `LINES_MIN` are often tested with what they serve.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = sorted(
    path.parent
    for path in ROOT.glob("**/__init__.py")
    if path.parent.name.startswith(("klamm", "pyspark_klamm"))
    and path.parent.parent.name in (ROOT.name, "spark", *(each.name for each in (ROOT / "services").iterdir()))
)
LINES_MIN: Final = 60


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--missing", action="store_true", help="name the modules that have none")
    arguments = parser.parse_args()
    found_all = modules_all = 0
    for package in PACKAGES:
        modules = list(modules_of(package))
        missing = [module for module in modules if not test_of(package, module).exists()]
        found_all += len(modules) - len(missing)
        modules_all += len(modules)
        print(f"{package.name:<20}{len(modules) - len(missing):>5} of {len(modules)}")
        if arguments.missing:
            print("".join(f"    {module.relative_to(package)}\n" for module in missing), end="")
    print(f"{'all':<20}{found_all:>5} of {modules_all}, {100 * found_all / modules_all:.0f} %")


def modules_of(package: Path) -> list[Path]:
    """The package's modules that are large enough to have tests of their own."""
    found = sorted(path for path in package.rglob("*.py") if path.name != "__init__.py" and "wire/v1" not in str(path))
    return [path for path in found if len(path.read_text().splitlines()) >= LINES_MIN]


def test_of(package: Path, module: Path) -> Path:
    """Returns the path at which the module's unit tests are expected."""
    inside = module.relative_to(package.parent)
    return ROOT / "tests" / "unit" / inside.parent / f"test_{inside.name.lstrip('_')}"


if __name__ == "__main__":
    main()
