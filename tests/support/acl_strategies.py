"""Strategies for access control lists with few names, so that drawn lists match each other. They have names that are
prefixes of each other, two principals and everybody, and addresses in and out of a range."""

from __future__ import annotations

from hypothesis import strategies as st

from klamm.acls import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType

NAMES = st.one_of(st.text("ab*-", min_size=1, max_size=4), st.just("*"))
PRINCIPALS = st.sampled_from(["User:alice", "User:bob", "Other:alice"])
HOSTS = st.sampled_from(["10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1", "::ffff:10.0.0.1"])
RESOURCE_TYPES = st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP])
OPERATIONS = st.sampled_from([each for each in AclOperation if each > AclOperation.ALL])
BINDINGS = st.builds(
    AclBinding,
    resource_type=RESOURCE_TYPES,
    resource_name=NAMES,
    pattern_type=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    principal=PRINCIPALS | st.just("User:*"),
    host=st.sampled_from(["*", "10.0.0.1", "10.0.0.0/31", "::1", "somebody"]),
    operation=OPERATIONS | st.just(AclOperation.ALL),
    permission_type=st.sampled_from([AclPermissionType.ALLOW, AclPermissionType.DENY]),
)
