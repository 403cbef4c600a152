from __future__ import annotations

import pickle
from types import ModuleType

import pytest

import klamm
import klamm.admin.decode
import klamm.admin.types
import klamm.consumer
from klamm.admin import ConfigResource, ConfigResourceType, NewTopic

LAZY: list[ModuleType] = [klamm, klamm.admin, klamm.admin.decode, klamm.admin.types, klamm.consumer]
"""The packages whose names are loaded on first use."""


@pytest.mark.parametrize(("package", "name"), [(package, name) for package in LAZY for name in package.__all__])
def test_each_public_name_can_be_imported(package: ModuleType, name: str) -> None:
    assert getattr(package, name) is not None
    assert name in dir(package)


@pytest.mark.parametrize("package", LAZY)
def test_an_unknown_public_name_raises_an_attribute_error(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match="'Nothing'"):
        package.__getattr__("Nothing")


def test_the_admin_package_exports_all_its_types() -> None:
    _, admin, _, types, _ = LAZY
    assert set(types.__all__) == {*admin.__all__} - {"Admin", "AsyncAdmin"}


@pytest.mark.parametrize("value", [NewTopic("orders", 3), ConfigResource(ConfigResourceType.TOPIC, "orders")])
def test_types_of_the_admin_are_pickled(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value


def test_a_pickle_that_names_the_former_module_of_a_type_is_loaded() -> None:
    """Pickles from before each area had its own module name the package."""
    assert pickle.loads(b"cklamm.admin.types\nNewTopic\n(Vorders\nI3\ntR.") == NewTopic("orders", 3)
