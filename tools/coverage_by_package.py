"""Prints the coverage that `make coverage` measured, by package: of its lines, and of its branches.

Run: python tools/coverage_by_package.py [DATA FILE]
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
from collections import defaultdict
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final

from coverage import Coverage

ROOT: Final = Path(__file__).resolve().parent.parent
COUNTS: Final = ("covered_lines", "num_statements", "covered_branches", "num_branches")


def main() -> None:
    """See the module."""
    by_package: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
    for path, summary in _summaries(sys.argv[1] if len(sys.argv) > 1 else ".coverage").items():
        for package in (package_of(path), "all"):
            for count in COUNTS:
                by_package[package][count] += summary[count]
    print(f"{'package':<36}{'lines':>8}{'covered':>9}{'branches':>10}{'covered':>9}")
    for package, counts in sorted(by_package.items(), key=lambda item: (item[0] == "all", item[0])):
        lines, branches = counts["num_statements"], counts["num_branches"]
        covered = _percent(counts["covered_lines"], lines), _percent(counts["covered_branches"], branches)
        print(f"{package:<36}{lines:>8}{covered[0]:>9}{branches:>10}{covered[1]:>9}")


def package_of(path: str) -> str:
    """The folder that a file counts for: `klamm_broker.log` of services/broker/klamm_broker/log/segment/segment.py."""
    parts = list(Path(path).parts)
    first = next(number for number, part in enumerate(parts) if part.startswith(("klamm", "pyspark_klamm")))
    return ".".join(parts[first:-1][:2])


def _summaries(data_file: str) -> dict[str, dict[str, int]]:
    """The figures of each file, as coverage counts them."""
    coverage = Coverage(data_file=data_file, config_file=str(ROOT / "pyproject.toml"))
    coverage.load()
    with tempfile.NamedTemporaryFile("r", suffix=".json") as file, redirect_stdout(io.StringIO()):
        coverage.json_report(outfile=file.name)
        report: dict[str, Any] = json.load(file)
    return {path: each["summary"] for path, each in report["files"].items()}


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


if __name__ == "__main__":
    main()
