"""`klamm topics spread` with an authorizer: the rights that it needs, and what it does without each of them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from klamm import Admin, NewTopic, Producer, TopicPartition
from klamm.acls import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType
from tests.support.authorized_cluster import AuthorizedCluster, authorized_cluster
from tests.support.cli_runner import Ended, KlammCommand
from tests.support.waiting import wait_until

FAILED = 1
RECORDS = 100
RIGHTS = [
    (ResourceType.TOPIC, "{source}", AclOperation.READ),
    (ResourceType.TOPIC, "{source}", AclOperation.DESCRIBE_CONFIGS),
    (ResourceType.TOPIC, "{target}", AclOperation.CREATE),
    (ResourceType.TOPIC, "{target}", AclOperation.READ),
    (ResourceType.TOPIC, "{target}", AclOperation.WRITE),
    (ResourceType.GROUP, "klamm-spread-{source}-{target}", AclOperation.READ),
    (ResourceType.GROUP, "{group}", AclOperation.READ),
    (ResourceType.TRANSACTIONAL_ID, "klamm-spread-{source}-{target}", AclOperation.WRITE),
]
"""The least rights."""
PREFIXED = ResourceType.TRANSACTIONAL_ID
"""The names of these resources are prefixes."""
PAGE = Path("docs/how-to/choose-partitions.md")


class Spread(NamedTuple):
    """A topic, its copy and its group, and a user for these alone."""

    source: str
    target: str
    group: str
    user: str

    def acl(self, resource_type: ResourceType, name: str, operation: AclOperation) -> AclBinding:
        pattern = PatternType.PREFIXED if resource_type is PREFIXED else PatternType.LITERAL
        who, allowed = f"User:{self.user}", AclPermissionType.ALLOW
        return AclBinding(resource_type, name.format(**self._asdict()), pattern, who, "*", operation, allowed)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorizedCluster]:
    with authorized_cluster(tmp_path_factory.mktemp("spread"), default_replication_factor="1") as made:
        yield made


@pytest.fixture(scope="module")
def admin(cluster: AuthorizedCluster) -> Iterator[Admin]:
    with cluster.admin() as admin:
        yield admin


@pytest.fixture
def spread(cluster: AuthorizedCluster, admin: Admin, _numbers=itertools.count()) -> Spread:  # noqa: B008
    """Returns a topic with records, all of which a group has read."""
    number = next(_numbers)
    made = Spread(f"orders-{number}", f"orders-{number}-copy", f"billing-{number}", f"spreader-{number}")
    admin.create_topics([NewTopic(made.source, partition_count=2, replication_factor=1)])
    with Producer({**cluster.klamm("admin")}) as producer:
        sent = [producer.send(made.source, b"v", b"%d" % key).result() for key in range(RECORDS)]
    ends = {tp: 1 + max(one.offset for one in sent if one.partition == tp) for tp in (0, 1)}
    admin.alter_group_offsets(made.group, {TopicPartition(made.source, number): end for number, end in ends.items()})
    return made


def run(cluster: AuthorizedCluster, spread: Spread, *arguments: str) -> Ended:
    """Runs the command as the user of the spread."""
    file = cluster.directory / f"{spread.user}.properties"
    file.write_text("".join(f"{name}={text}\n" for name, text in cluster.klamm(spread.user).items()))
    klamm = KlammCommand(cluster.grpc)
    command = ("topics", "spread", spread.source, spread.target, "--partitions", 3, "--cut", "--no-wait")
    return klamm(*command, "--command-config", file, *arguments)


def repeat(cluster: AuthorizedCluster, spread: Spread, status: int, text: str) -> Ended:
    """Runs the command until it ends like this, because each server learns the ACLs in its own time."""
    ended: list[Ended] = []

    def is_as_expected() -> bool:
        ended.append(run(cluster, spread, "--json"))
        return ended[-1].status == status and text in ended[-1].err

    wait_until(is_as_expected, lambda: str(ended[-1]))
    return ended[-1]


def test_the_documented_rights_are_enough(cluster: AuthorizedCluster, admin: Admin, spread: Spread) -> None:
    admin.create_acls([spread.acl(*right) for right in RIGHTS])
    ended = repeat(cluster, spread, 0, "")
    assert [(one["group"], one["step"]) for one in ended.document["groups"]] == [(spread.group, "moved")]
    assert ended.document["left"] == 0
    planned = run(cluster, spread, "--dry-run")
    assert planned.status == 0, planned


def test_the_guide_lists_exactly_these_rights() -> None:
    names = {"source": "`orders`", "target": "`orders-12`", "group": "each group that reads `orders`"}
    own = "`klamm-spread-orders-orders-12`"
    listed = {
        (kind, name, operation)
        for kind, name, operations in re.findall(r"^\| ([a-z ]+) \| (.+) \| ([A-Z_, ]+) \|$", PAGE.read_text(), re.M)
        for operation in operations.split(", ")
    }
    assert listed == {
        (
            resource_type.name.lower().replace("_", " "),
            names.get(name.strip("{}"), own) + (", as a prefix" if resource_type is PREFIXED else ""),
            operation.name,
        )
        for resource_type, name, operation in RIGHTS
    }


@pytest.mark.parametrize("missing", RIGHTS, ids=lambda right: f"{right[0].name}-{right[1]}-{right[2].name}")
def test_without_one_of_the_rights_the_command_fails_and_names_it(
    cluster: AuthorizedCluster,
    admin: Admin,
    spread: Spread,
    missing: tuple[ResourceType, str, AclOperation],
) -> None:
    admin.create_acls([spread.acl(*right) for right in RIGHTS if right != missing])
    if missing[1] == "{group}":
        ended = repeat(cluster, spread, 0, "")
        assert ended.document["groups"] == [], "the cluster does not show the group to the user"
    else:
        repeat(cluster, spread, FAILED, f"{missing[0].name}_AUTHORIZATION_FAILED")


def test_a_group_that_the_user_may_only_describe_is_not_moved(
    cluster: AuthorizedCluster, admin: Admin, spread: Spread
) -> None:
    rights = [right for right in RIGHTS if right[1] != "{group}"]
    rights.append((ResourceType.GROUP, "{group}", AclOperation.DESCRIBE))
    admin.create_acls([spread.acl(*right) for right in rights])
    repeat(cluster, spread, FAILED, "GROUP_AUTHORIZATION_FAILED")
