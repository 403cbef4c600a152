"""Tests that the clients need pyarrow and numpy only for tables, and say so."""

from __future__ import annotations

import subprocess
import sys

import pytest

from klamm.arrow.extra import require_packages

PROGRAM = """
import sys
import klamm, klamm.arrow_reader, klamm.consumer.async_consumer, klamm.producer
klamm.Consumer, klamm.Producer, klamm.AsyncConsumer, klamm.AsyncProducer, klamm.read_arrow
print(sorted({"pyarrow", "numpy", "pandas"} & set(sys.modules)))
"""


def test_the_clients_do_not_load_the_packages_of_the_extra() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("package", ["pyarrow", "numpy"])
def test_a_missing_package_is_an_error_that_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    require_packages("read_arrow")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"read_arrow needs pyarrow and numpy \(.*pip install 'klamm\[arrow\]'"):
        require_packages("read_arrow")
