"""deploy/kubernetes: the commands of its guide make the files that the pods mount, and servers accept these files.

`tests/unit/deploy/test_settings.py` has the checks that need no program."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from klamm.health import read_tls
from klamm.rpc.sasl_sources import read_password
from klamm.security.contexts import check_mutual_trust, client_context, handshake, server_context
from klamm.security.material import identity, load_material
from klamm.security.tls_settings import ListenerTlsSettings
from tests.support.manifests import DEPLOY, built, environment_of, of_kind
from tests.support.pages import blocks
from tests.support.waiting import patience

OBJECTS = built(DEPLOY / "kubernetes")
MOUNT = "/security/"
FIRST_WITH_KUSTOMIZE_4 = 21
"""The minor version of kubectl. Older ones, as in Debian 12, have kustomize 2, which cannot read `patches`."""
KUBECTL = """#!/bin/sh -eu
# Copies the files of a new Secret into a directory of its name. `kubectl apply` reads its input and does nothing.
[ "$1" = create ] || exec cat
mkdir -p "$SECRETS/$4"
for option; do
  case $option in --from-file=*) cp "${option#--from-file=}" "$SECRETS/$4" ;; esac
done
"""


class Pod(NamedTuple):
    """A pod with the files that it mounts."""

    name: str
    service: str
    environment: dict[str, str]
    init_containers: list[dict[str, Any]]
    files: Path


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables with which the guide's commands find `klamm` and a `kubectl` that needs no cluster."""
    directory = tmp_path_factory.mktemp("kubectl")
    (directory / "kubectl").write_text(KUBECTL)
    (directory / "kubectl").chmod(0o700)
    programs = [str(directory), str(Path(sys.executable).parent), os.environ["PATH"]]
    return {**os.environ, "PATH": ":".join(programs), "SECRETS": str(directory / "secrets")}


@pytest.fixture(scope="module")
def pods(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> list[Pod]:
    directory = tmp_path_factory.mktemp("guide")
    script = "".join(blocks("docs/how-to/run-on-kubernetes.md", "sh"))
    run(script, environment, directory)
    return list(mounted(Path(environment["SECRETS"]), directory))


def run(script: str, environment: dict[str, str], directory: Path) -> None:
    ended = subprocess.run(
        ["sh", "-eu", "-c", script],
        env=environment,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=patience(),
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def mounted(secrets: Path, directory: Path) -> Iterator[Pod]:
    """Yields the pods, with the files of their volume `security` as a kubelet writes them."""
    for described in of_kind("StatefulSet", OBJECTS):
        spec, name = described["spec"], described["metadata"]["name"]
        pod = spec["template"]["spec"]
        (volume,) = [one["projected"] for one in pod["volumes"] if one["name"] == "security"]
        files = directory / name
        files.mkdir()
        for source in volume["sources"]:
            for key, text in contents(source, secrets).items():
                (files / key).write_text(text)
                (files / key).chmod(volume["defaultMode"])
        first = spec["ordinals"]["start"]
        for ordinal in range(first, first + spec["replicas"]):
            own = f"{name}-{ordinal}"
            variables = environment_of(pod["containers"][0], own, ordinal)
            yield Pod(own, spec["serviceName"], variables, pod.get("initContainers", []), files)


def contents(source: dict[str, Any], secrets: Path) -> dict[str, str]:
    """Returns the files that a source puts into a volume."""
    (kind, described), *_ = source.items()
    if kind == "secret":
        return {path.name: path.read_text() for path in (secrets / described["name"]).iterdir()}
    (data,) = [one["data"] for one in of_kind("ConfigMap", OBJECTS) if one["metadata"]["name"] == described["name"]]
    return {item["path"]: data[item["key"]] for item in described["items"]} if "items" in described else dict(data)


def tls_settings(pod: Pod) -> ListenerTlsSettings:
    stores = {
        setting: str(pod.files / pod.environment[variable].removeprefix(MOUNT))
        for setting, variable in (
            ("ssl.keystore.location", "KLAMM_SSL_KEYSTORE_LOCATION"),
            ("ssl.truststore.location", "KLAMM_SSL_TRUSTSTORE_LOCATION"),
        )
    }
    return ListenerTlsSettings.parse(stores)


def test_each_server_accepts_its_certificate_and_clients_reach_it_by_its_names_only(pods: list[Pod]) -> None:
    assert len(pods) == 8
    for pod in pods:
        settings = tls_settings(pod)
        material = load_material(settings, now=datetime.now(UTC))
        check_mutual_trust(settings, material)
        assert f"User:{identity(material).subject}" in pod.environment["KLAMM_SUPER_USERS"].split(";")
        own = f"{pod.name}.{pod.service}.default.svc"
        assert f"//{own}:" in pod.environment["KLAMM_ADVERTISED_LISTENERS"]
        server, client = server_context(settings, material), client_context(settings, material)
        for host in (own, f"{pod.service}.default.svc", "localhost"):
            handshake(server, client, host)
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(server, client, f"{pod.name}0.{pod.service}.default.svc")


def test_a_pod_has_no_keys_of_other_components_and_only_controllers_have_the_password(pods: list[Pod]) -> None:
    for pod in pods:
        found = {path.name for path in pod.files.iterdir()}
        keys = {f"{one.name}.pem" for one in pods if one.service == pod.service}
        of_admin = {"admin.password", "admin.properties"} if pod.service == "klamm-controller" else set()
        assert found == keys | of_admin | {"ca.pem", "health.properties"}


def test_the_settings_of_clients_in_the_pods_name_mounted_files(
    pods: list[Pod], monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = next(one for one in pods if one.service == "klamm-controller")
    for name in ("health.properties", "admin.properties"):
        lines = (pod.files / name).read_text().splitlines()
        settings = dict(line.split("=") for line in lines)
        paths = [path for path in settings.values() if path.startswith(MOUNT)]
        assert paths
        assert all((pod.files / path.removeprefix(MOUNT)).is_file() for path in paths)
        monkeypatch.chdir(pod.files)
        (pod.files.parent / name).write_text((pod.files / name).read_text().replace(MOUNT, ""))
        assert read_tls(str(pod.files.parent / name)) is not None
    assert pod.environment["KLAMM_COMMAND_CONFIG"] == f"{MOUNT}admin.properties"
    assert len(read_password(str(pod.files / "admin.password")).reveal()) == 32


def test_the_init_container_makes_the_user_admin_before_the_first_start_only(
    pods: list[Pod], environment: dict[str, str], tmp_path: Path
) -> None:
    pod = next(one for one in pods if one.service == "klamm-controller")
    (container,) = pod.init_containers
    shell, options, script = container["command"]
    assert (shell, options) == ("sh", "-euc")
    directory = tmp_path / pod.environment["KLAMM_METADATA_LOG_DIR"].removeprefix("/var/lib/klamm/")
    script = script.replace("/var/lib/klamm", str(tmp_path)).replace(MOUNT, f"{pod.files}/")

    run(script, environment, tmp_path)
    first = (directory / "bootstrap.records").read_bytes()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert first.count(b"admin") == 2
    run(script, environment, tmp_path)
    assert (directory / "bootstrap.records").read_bytes() != first, "an interrupted first start is repeated"

    (directory / "meta.properties").touch()
    (directory / "bootstrap.records").unlink()
    run(script, environment, tmp_path)
    assert [path.name for path in directory.iterdir()] == ["meta.properties"]


def minor_version(kubectl: str) -> int:
    """Returns the 32 of kubectl 1.32."""
    command = [kubectl, "version", "--client", "--output", "json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=patience(), check=True)
    return int(json.loads(ended.stdout)["clientVersion"]["minor"].rstrip("+"))


@pytest.mark.parametrize("name", ["kubernetes", "kubernetes-plaintext"])
def test_kubectl_builds_the_same_objects_as_the_tests(name: str) -> None:
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("kubectl not found: make test installs it where Debian has it")
    if name == "kubernetes-plaintext" and (version := minor_version(program)) < FIRST_WITH_KUSTOMIZE_4:
        pytest.skip(f"kubectl 1.{version} cannot read `patches`; it must be 1.{FIRST_WITH_KUSTOMIZE_4} or newer")
    ended = subprocess.run(
        [program, "kustomize", DEPLOY / name], capture_output=True, text=True, timeout=patience(), check=False
    )
    assert ended.returncode == 0, ended.stderr
    text = ended.stdout.replace("image: klamm:latest", "image: klamm")
    key = lambda one: (one["kind"], one["metadata"]["name"])  # noqa: E731
    assert sorted(yaml.safe_load_all(text), key=key) == sorted(built(DEPLOY / name), key=key)
