from __future__ import annotations

import pytest

from klamm.errors import ErrorCode
from klamm.security.sasl.scram_keys import ScramMechanism, credential_of
from klamm.wire.v1.controller_pb2 import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from klamm_controller.metadata.users import describe_user_scram_credentials, handle_alter_user_scram_credentials

SHA_256, SHA_512 = ScramMechanism
SECRET = b"first"


def upsertion(name="alice", mechanism=1, **changes):
    fields = {"iterations": 4096, "salt": b"salt", "salted_password": b"salted", **changes}
    return ScramCredentialUpsertion(name=name, mechanism=mechanism, **fields)


def deletion(name="alice", mechanism=1):
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(cluster, *changes, secret=SECRET):
    """Alters users. Returns the error codes by user."""
    request = AlterUserScramCredentialsRequest(
        upsertions=[change for change in changes if isinstance(change, ScramCredentialUpsertion)],
        deletions=[change for change in changes if isinstance(change, ScramCredentialDeletion)],
    )
    results = cluster.apply(handle_alter_user_scram_credentials(request, cluster.image, secret)).results
    return {result.name: ErrorCode.of(result.error_code) for result in results}


def stored(cluster):
    return {(name, mechanism.number) for name, mechanism in cluster.image.scram_credentials}


def test_the_stored_credential_is_derived_from_the_salted_password(cluster):
    assert alter(cluster, upsertion(iterations=5000)) == {"alice": ErrorCode.NONE}
    assert cluster.image.scram_credentials == {("alice", SHA_256): credential_of(SHA_256, b"salted", b"salt", 5000)}


def test_a_user_may_have_both_mechanisms(cluster):
    for change in (upsertion(), upsertion(mechanism=2)):
        assert alter(cluster, change) == {"alice": ErrorCode.NONE}
    assert stored(cluster) == {("alice", 1), ("alice", 2)}
    for change in (deletion(mechanism=1), upsertion(mechanism=2, iterations=6000)):
        assert alter(cluster, change) == {"alice": ErrorCode.NONE}
    assert stored(cluster) == {("alice", 2)}
    assert cluster.image.scram_credentials["alice", SHA_512].iterations == 6000


@pytest.mark.parametrize("iterations", [4096, 16_384])
def test_the_limits_of_the_iteration_range_are_accepted(cluster, iterations):
    assert alter(cluster, upsertion(iterations=iterations)) == {"alice": ErrorCode.NONE}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([upsertion("")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([deletion("")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion(iterations=4095)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion(iterations=16_385)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion(iterations=-1)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion(salt=b"")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion(salted_password=b"")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion(mechanism=0)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([deletion(mechanism=3)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([deletion()], ErrorCode.RESOURCE_NOT_FOUND),
        ([upsertion(), upsertion()], ErrorCode.DUPLICATE_RESOURCE),
        ([upsertion(), upsertion(mechanism=2)], ErrorCode.DUPLICATE_RESOURCE),
        ([upsertion(), upsertion(mechanism=2, iterations=1)], ErrorCode.DUPLICATE_RESOURCE),
        ([upsertion(iterations=1), upsertion(mechanism=2)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        # Deletions come first.
        ([upsertion(), deletion()], ErrorCode.RESOURCE_NOT_FOUND),
    ],
)
def test_an_invalid_scram_change_is_refused_and_the_others_are_applied(cluster, changes, code):
    assert alter(cluster, *changes, upsertion("other")) == {changes[0].name: code, "other": ErrorCode.NONE}
    assert stored(cluster) == {("other", 1)}


def test_the_cluster_gets_its_secret_with_the_first_credential(cluster):
    alter(cluster, upsertion(iterations=1))
    assert cluster.image.cluster_secret == b""
    alter(cluster, upsertion())
    alter(cluster, upsertion("bob"), secret=b"second")
    alter(cluster, deletion(), deletion("bob"))
    alter(cluster, upsertion(), secret=b"third")
    assert cluster.image.cluster_secret == SECRET


def test_scram_credentials_are_described_without_secrets(cluster):
    alter(cluster, upsertion("bob", 2, iterations=8192))
    alter(cluster, upsertion("bob"), upsertion())

    def described(*users):
        answer = describe_user_scram_credentials(DescribeUserScramCredentialsRequest(users=users), cluster.image)
        return {
            user.name: ErrorCode.of(user.error_code) or [(info.mechanism, info.iterations) for info in user.credentials]
            for user in answer.users
        }

    assert described() == {"alice": [(1, 4096)], "bob": [(1, 4096), (2, 8192)]}
    assert list(described("bob", "nobody")) == ["bob", "nobody"]
    assert described("bob", "nobody", "alice", "alice") == {
        "alice": ErrorCode.DUPLICATE_RESOURCE,
        "bob": [(1, 4096), (2, 8192)],
        "nobody": ErrorCode.RESOURCE_NOT_FOUND,
    }
