"""Compares Klamm's authorizer with Kafka's own, from its jar. A seed draws access control lists, which are loaded whole
and by deltas, and questions about them. One run of Java answers all of them.

The names in questions have no `*`. For Kafka's authorizer, an ACL of all names does not match a name that begins with
it.
"""

from __future__ import annotations

import json
import random
import subprocess
import uuid
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from klamm.acls import WILDCARD, AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType
from klamm_server.metadata.acl_index import AclDraft, AclIndex
from klamm_server.security.acls.authorizer import StandardAuthorizer
from tests.support import java_programs, seeds

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

WORLDS = 1_000
QUESTIONS = 20
JAVA_TIMEOUT_S = 300
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
PRINCIPALS = ("User:alice", "User:bob", "User:CN=node,O=x", "Group:alice")
HOSTS = ("10.0.0.1", "10.0.0.2", "127.0.0.1")
TYPES = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID)
OPERATIONS = tuple(operation for operation in AclOperation if operation > AclOperation.ALL)


class Question(NamedTuple):
    principal: str
    host: str
    operation: AclOperation
    resource_type: ResourceType
    name: str | None
    """The name. None for any name."""


class World(NamedTuple):
    super_users: tuple[str, ...]
    default: bool
    acls: list[AclBinding]
    snapshot_size: int
    """The number of ACLs that are there from the start. The others are added one by one."""
    removed: list[int]
    """Places of those that go again, in that order."""
    questions: list[Question]


def draw_name(rng: random.Random) -> str:
    """Returns a name of a few characters. Many names are prefixes of others, or those that Kafka's
    `authorizeByResourceType` asks for."""
    if rng.random() < 0.05:
        return rng.choice(["hardcode", "hard", "kafka-cluster"])
    return "".join(rng.choices("ab.-_1", k=rng.randint(1, 4)))


def draw_acl(rng: random.Random, types: list[ResourceType]) -> AclBinding:
    """Few operations more often than the others, so that ACLs and questions meet."""
    return AclBinding(
        rng.choice(types),
        WILDCARD if rng.random() < 0.15 else draw_name(rng),
        rng.choice([PatternType.LITERAL, PatternType.PREFIXED]),
        rng.choice([*PRINCIPALS, "User:*"]),
        rng.choice(["*", "*", *HOSTS]),
        draw_operation(rng) if rng.random() < 0.8 else AclOperation.ALL,
        rng.choices([AclPermissionType.ALLOW, AclPermissionType.DENY], [3, 1])[0],
    )


def draw_operation(rng: random.Random) -> AclOperation:
    common = (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    return rng.choice(common if rng.random() < 0.6 else OPERATIONS)


def draw_question(rng: random.Random, types: list[ResourceType], names: list[str]) -> Question:
    name = rng.choice(names) + draw_name(rng) * rng.randint(0, 1) if names and rng.random() < 0.6 else draw_name(rng)
    return Question(
        rng.choice(PRINCIPALS),
        rng.choice(HOSTS),
        draw_operation(rng),
        rng.choice(types),
        None if rng.random() < 0.2 else name,
    )


def draw_world(rng: random.Random) -> World:
    types = rng.sample(TYPES, k=rng.randint(1, 2))
    acls = list(dict.fromkeys(draw_acl(rng, types) for _ in range(rng.choice([0, 1, 3, 10, 40]))))
    names = [acl.resource_name for acl in acls if acl.resource_name != WILDCARD]
    return World(
        super_users=tuple(rng.sample(PRINCIPALS, k=1)) if rng.random() < 0.1 else (),
        default=rng.random() < 0.3,
        acls=acls,
        snapshot_size=rng.randint(0, len(acls)),
        removed=rng.sample(range(len(acls)), k=rng.randint(0, len(acls) // 2)),
        questions=[draw_question(rng, types, names) for _ in range(QUESTIONS)],
    )


def load(world: World) -> AclIndex:
    """Loads the ACLs as the Java program does: a snapshot, then changes one by one."""
    ids = [uuid.UUID(int=place) for place in range(len(world.acls))]
    draft = AclDraft(AclIndex())
    for place in range(world.snapshot_size):
        draft.add(ids[place], world.acls[place])
    index = draft.finish()
    for place in range(world.snapshot_size, len(world.acls)):
        draft = AclDraft(index)
        draft.add(ids[place], world.acls[place])
        index = draft.finish()
    for place in world.removed:
        draft = AclDraft(index)
        draft.remove(ids[place])
        index = draft.finish()
    return index


def ours(world: World) -> list[bool]:
    authorizer = StandardAuthorizer(super_users=world.super_users, allow_everyone_if_no_acl_found=world.default)
    acls = load(world)
    return [
        authorizer.authorize_by_resource_type(acls, *asked[:4]).is_allowed
        if asked.name is None
        else authorizer.authorize(acls, *asked[:4], asked.name).is_allowed
        for asked in world.questions
    ]


def kafkas(worlds: list[World], directory: Path) -> list[list[bool]]:
    path = directory / "worlds.jsonl"
    lines = (json.dumps(world._asdict() | {"super_users": ";".join(world.super_users)}) for world in worlds)
    path.write_text("".join(f"{line}\n" for line in lines))
    done = subprocess.run(
        java_programs.command("klamm.Authorize", str(path), jvm=[*java_programs.JVM, QUIET]),
        capture_output=True,
        text=True,
        timeout=JAVA_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_standard_authorizer_decides_as_kafkas_authorizer_does(tmp_path: Path) -> None:
    seed = seeds.run_seed()
    print(f"{WORLDS * QUESTIONS} cases of TEST_SEED={seed}: pytest {__file__}")
    rng = random.Random(seed)
    worlds = [draw_world(rng) for _ in range(WORLDS)]
    answers = kafkas(worlds, tmp_path)
    outcomes: Counter[tuple[str, bool]] = Counter()
    for world, expected in zip(worlds, answers, strict=True):
        for asked, kafka, klamm in zip(world.questions, expected, ours(world), strict=True):
            assert klamm is kafka, f"Kafka says {kafka}, TEST_SEED={seed}: {asked} of {world._replace(questions=[])}"
            outcomes["by type" if asked.name is None else "by name", kafka] += 1
    assert sum(outcomes.values()) == WORLDS * QUESTIONS
    assert min(outcomes.values()) > 100, f"the cases say too little: {outcomes}"
