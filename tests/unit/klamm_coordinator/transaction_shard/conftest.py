from __future__ import annotations

import pytest

from tests.support.transaction_driver import TransactionDriver


@pytest.fixture
def driver() -> TransactionDriver:
    return TransactionDriver()
