"""Tests `klamm users` and the user calls of the Admin against a cluster that is restarted in between."""

from __future__ import annotations

import pytest

from klamm import Admin
from klamm.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialDeletion, UserScramCredentialUpsertion
from klamm.errors import EXCEPTIONS, ErrorCode
from tests.support.cli_runner import KlammCommand
from tests.support.klamm_process import running_cluster

FAILED, USAGE = 1, 2
SHA_256, SHA_512 = ScramMechanism


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("users")


@pytest.fixture(scope="module")
def cluster(directory):
    with running_cluster(directory) as running:
        yield running


@pytest.fixture
def klamm(cluster):
    """Yields a command, and deletes all users afterwards."""
    command = KlammCommand(cluster.bootstrap)
    yield command
    for user in {row["user"] for row in command("users", "list", "--json").document}:
        command.ok("users", "delete", user)


@pytest.fixture
def password_file(tmp_path):
    path = tmp_path / "password"
    path.write_text("hunter2\nnot this line\n")
    return path


def listed(klamm):
    return [(row["user"], row["mechanism"], row["iterations"]) for row in klamm("users", "list", "--json").document]


def test_a_user_is_created_changed_and_deleted(klamm, password_file):
    assert listed(klamm) == []
    created = klamm.ok("users", "create", "alice", "--password-file", password_file)
    assert "alice" in created.out
    assert listed(klamm) == [("alice", "SCRAM-SHA-512", 8192)]
    klamm.ok("users", "set-password", "alice", "--iterations", 5000, "--password-file", "-", stdin="other\n")
    assert listed(klamm) == [("alice", "SCRAM-SHA-512", 5000)]
    klamm.ok("users", "delete", "alice")
    assert listed(klamm) == []


def test_a_user_can_have_both_scram_mechanisms(klamm, password_file):
    both = ["--mechanism", "SCRAM-SHA-256", "--mechanism", "SCRAM-SHA-512"]
    klamm.ok("users", "create", "bob", *both, "--password-file", password_file)
    klamm.ok("users", "set-password", "bob", "--iterations", 4096, "--password-file", password_file)
    assert listed(klamm) == [("bob", "SCRAM-SHA-256", 4096), ("bob", "SCRAM-SHA-512", 4096)]


@pytest.mark.parametrize(
    ("arguments", "stdin", "status", "problem"),
    [
        (["create", "eve", "--password-file", "/no/such/file"], "", USAGE, "No such file"),
        (["create", "eve", "--password-file", "-"], "\n", USAGE, "is empty"),
        (["create", "eve"], "hunter2\n", USAGE, "use --password-file"),
        (["create", "eve", "--mechanism", "PLAIN", "--password-file", "-"], "x\n", USAGE, "expected SCRAM-SHA-256"),
        (["create", "eve", "--iterations", "1", "--password-file", "-"], "x\n", FAILED, "Too few iterations"),
        (["set-password", "eve", "--password-file", "-"], "x\n", FAILED, "there is no user 'eve'"),
        (["delete", "eve"], "", FAILED, "there is no user 'eve'"),
    ],
)
def test_wrong_user_commands_are_refused_without_showing_the_password(klamm, arguments, stdin, status, problem):
    ended = klamm("users", *arguments, stdin=stdin)
    assert ended.status == status
    assert problem in ended.err
    assert "hunter2" not in ended.err
    assert listed(klamm) == []


def test_a_dry_run_changes_no_user(klamm, password_file):
    create = ("users", "create", "alice", "--password-file", password_file)
    assert klamm.ok(*create, "--dry-run").out == "would create user 'alice'\n"
    document = {"created": "alice", "mechanisms": ["SCRAM-SHA-512"], "validate_only": True}
    assert klamm.ok(*create, "--dry-run", "--json").document == document
    assert listed(klamm) == []
    assert klamm.ok(*create, "--json").document == {**document, "validate_only": False}
    change = ("users", "set-password", "alice", "--password-file", password_file, "--iterations", 5000, "--dry-run")
    assert klamm.ok(*change).out == "would change the password of user 'alice'\n"
    assert klamm.ok("users", "delete", "alice", "--dry-run").out == "would delete user 'alice'\n"
    document = {"deleted": ["alice"], "validate_only": True}
    assert klamm.ok("users", "delete", "alice", "--dry-run", "--json").document == document
    assert listed(klamm) == [("alice", "SCRAM-SHA-512", 8192)]


@pytest.mark.parametrize("options", [["--dry-run"], []])
def test_a_dry_run_refuses_what_the_cluster_refuses(klamm, password_file, options):
    klamm.ok("users", "create", "alice", "--password-file", password_file)
    password = ("--password-file", password_file)
    for said, *words in [
        ("exists", "create", "alice", *password),
        ("Username must not be empty", "create", "", *password),
        ("eve: Too few iterations", "create", "eve", "--iterations", 1, *password),
        ("alice: Too many iterations", "set-password", "alice", "--iterations", 20_000, *password),
        ("there is no user 'eve'", "set-password", "eve", *password),
        ("there is no user 'eve'", "delete", "eve"),
    ]:
        assert said in klamm.refused(FAILED, "users", *words, *options)
    assert "is empty" in klamm.refused(USAGE, "users", "create", "eve", "--password-file", "-", *options, stdin="\n")
    assert "use --password-file" in klamm.refused(USAGE, "users", "create", "eve", *options)
    assert listed(klamm) == [("alice", "SCRAM-SHA-512", 8192)]


def test_creating_an_existing_user_is_refused(klamm, password_file):
    klamm.ok("users", "create", "alice", "--password-file", password_file)
    assert "exists" in klamm("users", "create", "alice", "--password-file", password_file).err
    klamm.ok("users", "delete", "nobody", "--if-exists")


def test_the_admin_alters_and_describes_scram_credentials(cluster, klamm):
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        alice = UserScramCredentialUpsertion("alice", ScramCredentialInfo(SHA_256, 4096), "secret", b"salty")
        bob = UserScramCredentialUpsertion("bob", ScramCredentialInfo(SHA_512), "secret")
        assert "secret" not in repr(alice)
        admin.alter_user_scram_credentials([alice, bob])
        assert {name: user.credential_infos for name, user in admin.describe_user_scram_credentials().items()} == {
            "alice": (ScramCredentialInfo(SHA_256, 4096),),
            "bob": (ScramCredentialInfo(SHA_512, 8192),),
        }
        assert list(admin.describe_user_scram_credentials(["bob"])) == ["bob"]
        with pytest.raises(EXCEPTIONS[ErrorCode.RESOURCE_NOT_FOUND]):
            admin.describe_user_scram_credentials(["nobody"])
        with pytest.raises(EXCEPTIONS[ErrorCode.DUPLICATE_RESOURCE]):
            admin.alter_user_scram_credentials([alice, alice])
        with pytest.raises(EXCEPTIONS[ErrorCode.RESOURCE_NOT_FOUND]):
            admin.alter_user_scram_credentials([UserScramCredentialDeletion("alice", SHA_512)])
        for iterations in (-1, 0, 1, 20_000):
            wrong = UserScramCredentialUpsertion("eve", ScramCredentialInfo(SHA_256, iterations), "secret")
            with pytest.raises(EXCEPTIONS[ErrorCode.UNACCEPTABLE_CREDENTIAL]):
                admin.alter_user_scram_credentials([wrong])


def test_users_survive_a_restart(tmp_path, password_file):
    for expected in ([], [("alice", "SCRAM-SHA-512", 8192)]):
        with running_cluster(tmp_path) as cluster:
            klamm = KlammCommand(cluster.bootstrap)
            assert listed(klamm) == expected
            if not expected:
                klamm.ok("users", "create", "alice", "--password-file", password_file)
