"""Tests the index of access control lists against a plain set of them, changed in any order."""

from __future__ import annotations

import uuid
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.acls import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType, pattern_matches
from klamm_server.metadata.acl_index import AclDraft, AclIndex
from tests.support.acl_strategies import BINDINGS, NAMES, RESOURCE_TYPES

ID, OTHER_ID = uuid.UUID(int=1), uuid.UUID(int=2)


def whole(acls: dict[uuid.UUID, AclBinding]) -> AclIndex:
    draft = AclDraft(AclIndex())
    for acl_id, binding in acls.items():
        draft.add(acl_id, binding)
    return draft.finish()


def found(index: AclIndex, resource_type: ResourceType, name: str) -> list[AclBinding]:
    patterns = index.of_resource(resource_type, name)
    return [binding for acls in patterns for of_principal in acls.values() for binding in of_principal]


@given(
    st.lists(st.lists(BINDINGS | st.integers(0, 30), max_size=4), max_size=12),
    RESOURCE_TYPES,
    st.lists(NAMES, min_size=1, max_size=4),
)
def test_an_acl_index_after_deltas_equals_one_built_from_all_acls(
    deltas: list[list[AclBinding | int]], resource_type: ResourceType, names: list[str]
) -> None:
    """A drawn number removes the ACL at that position, if there is one. Each delta makes a new index."""
    expected: dict[uuid.UUID, AclBinding] = {}
    index, ids = AclIndex(), (uuid.UUID(int=number) for number in count())
    for delta in deltas:
        before, draft = (index, dict(expected)), AclDraft(index)
        for step in delta:
            if isinstance(step, AclBinding) and step not in expected.values():
                acl_id = next(ids)
                draft.add(acl_id, step)
                expected[acl_id] = step
            elif not isinstance(step, AclBinding) and step < len(expected):
                acl_id = list(expected)[step]
                draft.remove(acl_id)
                del expected[acl_id]
        index = draft.finish()
        assert before[0] == whole(before[1]), "a delta changed the index before it"
    assert index == whole(dict(reversed(expected.items())))
    assert dict(index.by_id) == expected
    for name in names:
        acls = found(index, resource_type, name)
        assert len(acls) == len(set(acls))
        assert set(acls) == {
            one for one in expected.values() if one.resource_type is resource_type and pattern_matches(one, name)
        }


@given(BINDINGS, BINDINGS)
def test_the_acl_index_contains_only_the_bindings_that_were_added(one: AclBinding, other: AclBinding) -> None:
    index = whole({ID: one})
    assert one in index
    assert (other in index) is (other == one)
    assert one not in AclIndex()


def test_an_acl_draft_without_changes_returns_the_same_index() -> None:
    index = AclIndex()
    assert AclDraft(index).finish() is index


@given(BINDINGS)
def test_an_impossible_acl_change_is_an_assertion_error(binding: AclBinding) -> None:
    index = whole({ID: binding})
    with pytest.raises(AssertionError, match="exists"):
        AclDraft(index).add(ID, binding._replace(principal="User:carol"))
    with pytest.raises(AssertionError, match="another id"):
        AclDraft(index).add(OTHER_ID, binding)
    with pytest.raises(AssertionError, match="no ACL has the id"):
        AclDraft(index).remove(OTHER_ID)


@given(BINDINGS)
def test_removing_the_last_acl_leaves_an_empty_index(binding: AclBinding) -> None:
    draft = AclDraft(whole({ID: binding}))
    draft.remove(ID)
    assert draft.finish() == AclIndex()


def test_prefixed_acls_are_looked_up_by_prefix_length() -> None:
    """A thousand prefixes of two lengths need two look-ups."""
    acls = [
        AclBinding(
            ResourceType.TOPIC,
            f"team-{number:0{digits}}-",
            PatternType.PREFIXED,
            "User:alice",
            "*",
            AclOperation.READ,
            AclPermissionType.ALLOW,
        )
        for digits, last in ((3, 500), (5, 500))
        for number in range(last)
    ]
    index = whole({uuid.UUID(int=number): acl for number, acl in enumerate(acls)})
    assert index.of_type(ResourceType.TOPIC).prefix_lengths == (len("team-000-"), len("team-00000-"))
    assert found(index, ResourceType.TOPIC, "team-007-orders") == [acls[7]]
    assert found(index, ResourceType.TOPIC, "team-00007-orders") == [acls[507]]
