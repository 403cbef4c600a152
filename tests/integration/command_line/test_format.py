"""Tests `klamm format`: a cluster that starts with users, on one controller or three."""

from __future__ import annotations

import signal

import pytest

from klamm import Admin
from klamm.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from tests.support.cli_runner import KlammCommand
from tests.support.controller_quorum import quorum_processes
from tests.support.klamm_process import running_cluster
from tests.support.waiting import wait_until

USAGE = 2
SHA_256, SHA_512 = ScramMechanism
BOOTSTRAP = "bootstrap.records"


@pytest.fixture
def klamm():
    """Returns a command without a cluster."""
    return KlammCommand("localhost:1")


@pytest.fixture
def password_file(tmp_path):
    path = tmp_path / "password"
    path.write_text("hunter2\n")
    return path


def users(bootstrap):
    with Admin(bootstrap_servers=bootstrap) as admin:
        return {name: user.credential_infos for name, user in admin.describe_user_scram_credentials().items()}


def test_a_formatted_directory_starts_a_cluster_with_the_given_users(klamm, tmp_path, password_file):
    directory = tmp_path / "klamm-data" / "controller"
    admin = f"SCRAM-SHA-256=[name=admin,password-file={password_file},iterations=4096]"
    klamm.ok(
        "format",
        directory,
        "--add-scram",
        admin,
        "--add-scram",
        "SCRAM-SHA-512=[name=other,password-file=-]",
        stdin="x\n",
    )
    assert b"hunter2" not in (directory / BOOTSTRAP).read_bytes()
    expected = {"admin": (ScramCredentialInfo(SHA_256, 4096),), "other": (ScramCredentialInfo(SHA_512, 8192),)}
    for _ in range(2):
        with running_cluster(tmp_path) as cluster:
            assert users(cluster.bootstrap) == expected
            wait_until(lambda: not (directory / BOOTSTRAP).exists(), lambda: "the file is still there")
    assert "is not empty" in klamm("format", directory, "--add-scram", admin).err


def test_a_directory_that_klamm_up_does_not_read_is_reported(klamm, tmp_path, password_file):
    admin = f"SCRAM-SHA-256=[name=admin,password-file={password_file}]"
    assert "does not read" not in klamm.ok("format", tmp_path / "controller-1", "--add-scram", admin).err
    data_dir = tmp_path / "klamm-data"
    assert "`klamm up` does not read it" in klamm.ok("format", data_dir, "--add-scram", admin).err
    with (
        pytest.raises(AssertionError, match=r"which this cluster does not read: format .*/klamm-data/controller"),
        running_cluster(tmp_path),
    ):
        pass


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("SCRAM-SHA-256=[name=admin,password=hunter2]", "no place for a password"),
        ("SCRAM-SHA-256=hunter2", "expected MECHANISM=["),
        ("SCRAM-SHA-1=[name=admin]", "of SCRAM-SHA-256 or SCRAM-SHA-512"),
        ("SCRAM-SHA-256=[password-file=x]", "there is no name"),
        ("SCRAM-SHA-256=[name=admin,iterations=4095]", "4096 to 16384"),
        ("SCRAM-SHA-256=[name=admin,iterations=many]", "4096 to 16384"),
        ("SCRAM-SHA-256=[name=admin,salt=x]", "unknown salt"),
        ("SCRAM-SHA-256=[name=admin,password-file=/no/such/file]", "No such file"),
    ],
)
def test_an_invalid_add_scram_option_is_refused_and_creates_nothing(klamm, tmp_path, text, problem):
    ended = klamm("format", tmp_path / "new", "--add-scram", text)
    assert ended.status == USAGE
    assert problem in ended.err
    assert "hunter2" not in ended.err
    assert not (tmp_path / "new").exists()


def test_a_dry_run_writes_nothing_and_refuses_what_format_refuses(klamm, tmp_path, password_file):
    admin = f"SCRAM-SHA-512=[name=admin,password-file={password_file}]"
    new = tmp_path / "new" / "controller"
    assert klamm.ok("format", new, "--add-scram", admin, "--dry-run").out == f"{new} would begin with 'admin'\n"
    assert not new.parent.exists()
    document = {"directory": str(new), "users": [{"user": "admin", "mechanism": "SCRAM-SHA-512"}]}
    for options, is_dry in ((["--dry-run"], True), ([], False)):
        written = klamm.ok("format", new, "--add-scram", admin, "--json", *options)
        assert written.document == {**document, "validate_only": is_dry}
    for directory in (new, password_file, password_file / "below"):
        refused = [klamm.refused(1, "format", directory, "--add-scram", admin, *each) for each in (["--dry-run"], [])]
        assert refused[0] == refused[1]
    missing = "SCRAM-SHA-512=[name=admin,password-file=/no/such/file]"
    assert "No such file" in klamm.refused(USAGE, "format", tmp_path / "x", "--add-scram", missing, "--dry-run")


@pytest.mark.slow
def test_formatted_users_of_three_controllers_survive_elections_and_snapshots(klamm, tmp_path, password_file):
    with quorum_processes(tmp_path, metadata_log_max_record_bytes_between_snapshots="5000") as quorum:
        files = [tmp_path / f"controller-{node_id}" / BOOTSTRAP for node_id in quorum.controllers]
        for file in files:
            user = f"SCRAM-SHA-512=[name=admin,password-file={password_file}]"
            klamm.ok("format", file.parent, "--add-scram", user)
        quorum.start()
        expected = {"admin": (ScramCredentialInfo(SHA_512, 8192),)}
        wait_until(lambda: users(quorum.broker.address) == expected, lambda: "the users are not there")
        wait_until(lambda: not any(file.exists() for file in files), lambda: "a file is still there")
        with Admin(bootstrap_servers=quorum.broker.address) as admin:
            for number in range(60):
                info = ScramCredentialInfo(SHA_256, 4096)
                admin.alter_user_scram_credentials([UserScramCredentialUpsertion(f"user{number}", info, "secret")])
                expected[f"user{number}"] = (info,)
        for _ in range(2):
            former = quorum.wait_leader()
            former.end(signal.SIGKILL)
            quorum.wait_leader(but=former.node_id)
            assert users(quorum.broker.address) == expected
            former.start()
