"""Tests the settings that deploy/ gives to servers: each server would start with them, and they fit together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import kubernetes_validate
import pytest
import yaml

from klamm_controller.config import ControllerConfig
from klamm_coordinator.config import CoordinatorConfig
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.config.environment import environment_properties, listeners_in
from klamm_server.config.member_config import MemberConfig
from klamm_server.config.server_config import ServiceConfig, known_configs, load
from klamm_server.net.listeners import Listener, SecurityProtocol
from tests.support.manifests import DEPLOY, built, environment_of, of_kind

COMMANDS: Mapping[str, type[ServiceConfig]] = {
    "klamm-controller": ControllerConfig,
    "klamm-broker": BrokerConfig,
    "klamm-coordinator": CoordinatorConfig,
}


class Server(NamedTuple):
    """A server with the configuration that deploy/ starts it with."""

    name: str
    config: ServiceConfig
    probed_port: int
    memory_limit: str


def _config(command: str, environment: Mapping[str, str]) -> ServiceConfig:
    config_class = COMMANDS[command]
    known = known_configs(config_class, listeners_in(environment))
    return load(config_class, environment_properties(environment, known))


def _compose_services(profile: str) -> dict[str, Any]:
    """Returns the Klamm servers of a profile in compose.yaml, with the default values of variables inserted."""
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", (DEPLOY / "compose.yaml").read_text())
    services: dict[str, Any] = yaml.safe_load(text)["services"]
    return {
        name: service
        for name, service in services.items()
        if profile in service["profiles"] and service.get("image") == "klamm" and "healthcheck" in service
    }


def _compose_servers(profile: str) -> Iterator[Server]:
    for name, service in _compose_services(profile).items():
        port = int(service["healthcheck"]["test"][-1].rpartition(":")[2])
        yield Server(name, _config(service["command"], service["environment"]), port, service["mem_limit"])


KUBERNETES = {"kubernetes, secure": built(DEPLOY / "kubernetes"), "kubernetes": built(DEPLOY / "kubernetes-plaintext")}
"""The objects of each deployment for Kubernetes."""


def _kubernetes_servers(objects: list[dict[str, Any]]) -> Iterator[Server]:
    for described in of_kind("StatefulSet", objects):
        first = described["spec"]["ordinals"]["start"]
        (container,) = described["spec"]["template"]["spec"]["containers"]
        for ordinal in range(first, first + described["spec"]["replicas"]):
            pod = f"{described['metadata']['name']}-{ordinal}"
            environment = environment_of(container, pod, ordinal)
            limit = container["resources"]["limits"]["memory"]
            yield Server(
                pod, _config(container["command"][0], environment), _probed_port(container["readinessProbe"]), limit
            )


def _probed_port(probe: Mapping[str, Any]) -> int:
    if "grpc" in probe:
        return int(probe["grpc"]["port"])
    return int(probe["exec"]["command"][-1].rpartition(":")[2])


def _dialled(config: ServiceConfig) -> tuple[Listener, ...]:
    """Returns the listeners. Other servers connect to the first one."""
    return config.resolved_listeners().advertised


CLUSTERS = {
    "compose": list(_compose_servers("cluster")),
    "compose, small": list(_compose_servers("small")),
    "compose, secure": list(_compose_servers("secure")),
    **{name: list(_kubernetes_servers(objects)) for name, objects in KUBERNETES.items()},
}
SECURED = ("compose, secure", "kubernetes, secure")
EACH = pytest.mark.parametrize("cluster", CLUSTERS.values(), ids=CLUSTERS.keys())


def test_every_deployment_has_its_number_of_servers() -> None:
    sizes = {name: len(cluster) for name, cluster in CLUSTERS.items()}
    assert sizes == {
        "compose": 8,
        "compose, small": 3,
        "compose, secure": 8,
        "kubernetes, secure": 8,
        "kubernetes": 8,
    }


@EACH
def test_every_server_is_configured_with_the_controllers_endpoints(cluster: list[Server]) -> None:
    controllers = [one.config for one in cluster if isinstance(one.config, ControllerConfig)]
    endpoints = ["{}:{}".format(*_dialled(controller)[0].address) for controller in controllers]
    for controller in controllers:
        voters = [f"{voter.key.node_id}@{voter.endpoint}" for voter in controller.listed_voters()]
        wanted = [f"{one.node_id}@{endpoint}" for one, endpoint in zip(controllers, endpoints, strict=True)]
        assert voters == (wanted if len(wanted) > 1 else [])
    assert len({controller.cluster_id for controller in controllers}) == 1
    for server in cluster:
        if isinstance(server.config, MemberConfig):
            assert list(server.config.controller_quorum_bootstrap_servers) == endpoints, server.name


@EACH
def test_every_server_has_its_own_id_and_endpoints(cluster: list[Server]) -> None:
    for kind in COMMANDS.values():
        ids = [one.config.node_id for one in cluster if isinstance(one.config, kind)]
        assert ids == list(range(1, len(ids) + 1))
    endpoints = [listener.address for one in cluster for listener in _dialled(one.config)]
    assert len(set(endpoints)) == len(endpoints)


@EACH
def test_probes_ask_where_the_server_listens(cluster: list[Server]) -> None:
    for server in cluster:
        listeners = server.config.resolved_listeners()
        # A listener whose servers show each other certificates would require one of the probe.
        open_to_probes = [one for one in listeners.of(SecurityProtocol.GRPC) if one.name != "INTERNAL"]
        assert server.probed_port == open_to_probes[0].port, server.name
        assert [one.port for one in listeners.bound] == [one.port for one in listeners.advertised], server.name


@EACH
def test_metrics_are_served_to_other_containers_unless_the_cluster_is_secured(cluster: list[Server]) -> None:
    shown = {(one.config.resolved_metrics_host(), one.config.metrics_port) for one in cluster}
    is_secured = any(one.config.resolved_listeners().secured for one in cluster)
    assert {host for host, port in shown if port} == ({"localhost"} if is_secured else {"0.0.0.0"})


@pytest.mark.parametrize("name", SECURED)
def test_a_secured_cluster_has_logins_for_clients_and_a_certificate_for_each_server(name: str) -> None:
    servers = CLUSTERS[name]
    names = {server.name for server in servers}
    bindings = {f"{_kind(server)}:{server.config.node_id}=User:CN={server.name}" for server in servers}
    for server in servers:
        first, *others = server.config.resolved_listeners().bound
        assert (first.protocol_name, server.config.tls_settings(first.name).ssl_client_auth) == ("GRPC_SSL", "required")
        assert all(other.security.wants_sasl and other.security.is_encrypted for other in others)
        assert server.config.tls_settings(first.name).ssl_keystore_location == f"/security/{server.name}.pem"
        assert set(server.config.super_user_names()) == {"User:admin", *(f"User:CN={name}" for name in names)}
        assert set(server.config.node_principals) == bindings
        assert server.config.authorizer_class_name == "StandardAuthorizer"


def _kind(server: Server) -> str:
    """Returns the kind of a server as `node.principals` names it."""
    (command,) = [command for command, kind in COMMANDS.items() if isinstance(server.config, kind)]
    return command.removeprefix("klamm-")


@EACH
def test_the_buffers_of_a_broker_are_at_most_half_of_its_memory_limit(cluster: list[Server]) -> None:
    for server in cluster:
        if isinstance(config := server.config, BrokerConfig):
            held = config.queued_max_request_bytes + config.log_cleaner_dedupe_buffer_size
            assert 2 * held <= _bytes(server.memory_limit), server.name


def _bytes(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)([a-zA-Z]+)", text).groups()
    return int(number) << {"m": 20, "g": 30}[unit[0].lower()]


@EACH
def test_replication_factor_and_min_isr_of_a_deployment_follow_its_number_of_brokers(cluster: list[Server]) -> None:
    brokers = [one.config for one in cluster if isinstance(one.config, BrokerConfig)]
    (factor,) = {
        number
        for one in cluster
        if isinstance(one.config, ControllerConfig)
        for number in (
            one.config.default_replication_factor,
            one.config.offsets_topic_replication_factor,
            one.config.transaction_topic_replication_factor,
        )
    }
    assert factor == len(brokers)
    assert {broker.originals.get("min.insync.replicas", "1") for broker in brokers} == {str(max(1, factor - 1))}


def test_published_ports_equal_the_container_ports_and_are_unique() -> None:
    ports = [port.split(":") for service in _compose_services("cluster").values() for port in service["ports"]]
    assert all(host == container and bind == "127.0.0.1" for bind, host, container in ports)
    assert len({host for _, host, _ in ports}) == len(ports) == 11


@pytest.mark.parametrize("profile", ["cluster", "small", "secure"])
def test_the_host_and_the_containers_each_have_listeners_with_reachable_addresses(profile: str) -> None:
    for name, service in _compose_services(profile).items():
        hostnames = {"INTERNAL": name, "GRPC": name, "KAFKA": name, "GRPC_HOST": "localhost", "KAFKA_HOST": "localhost"}
        dialled = _dialled(_config(service["command"], service["environment"]))
        assert [one.host for one in dialled] == [hostnames[one.name] for one in dialled]
        published = {int(port.split(":")[1]) for port in service["ports"]}
        assert {one.port for one in dialled if one.host == "localhost"} == published


@pytest.mark.parametrize("version", ["1.29", "1.37"])
@pytest.mark.parametrize(("name", "count"), [("kubernetes, secure", 11), ("kubernetes", 9)])
def test_the_kubernetes_manifests_match_the_schemas_of_its_api(name: str, count: int, version: str) -> None:
    """The schemas of its API have every field that we use, so that Kubernetes drops none silently."""
    described = KUBERNETES[name]
    assert len(described) == count
    for one in described:
        kubernetes_validate.validate(one, version, strict=True)
    replicas = {**described[-1], "spec": {**described[-1]["spec"], "replicaz": 2}}
    with pytest.raises(kubernetes_validate.ValidationError, match="replicaz"):
        kubernetes_validate.validate(replicas, version, strict=True)


STATEFUL_SETS = pytest.mark.parametrize(
    ("deployment", "described"),
    [(name, described) for name, objects in KUBERNETES.items() for described in of_kind("StatefulSet", objects)],
    ids=lambda one: one if isinstance(one, str) else one["metadata"]["name"],
)


@STATEFUL_SETS
def test_a_stateful_set_has_a_service_and_a_budget(deployment: str, described: dict[str, Any]) -> None:
    objects = KUBERNETES[deployment]
    name, spec = described["metadata"]["name"], described["spec"]
    labels = spec["template"]["metadata"]["labels"]
    (service,) = [one for one in of_kind("Service", objects) if one["metadata"]["name"] == spec["serviceName"]]
    (budget,) = [one for one in of_kind("PodDisruptionBudget", objects) if one["metadata"]["name"] == name]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    for selector in (
        service["spec"]["selector"],
        *(one["spec"]["selector"]["matchLabels"] for one in (budget, described)),
    ):
        assert selector == labels
    assert budget["spec"]["maxUnavailable"] == 1
    pod = spec["template"]["spec"]
    # Otherwise a server would refuse the variables of services, such as KLAMM_BROKER_PORT, as unknown settings.
    assert pod["enableServiceLinks"] is False
    (container,) = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    config = next(cluster.config for cluster in CLUSTERS[deployment] if cluster.name == f"{name}-1")
    metrics_port = None if config.resolved_metrics_host() == "localhost" else config.metrics_port
    assert ports.pop("metrics", None) == metrics_port
    assert ("prometheus.io/port" in spec["template"]["metadata"].get("annotations", {})) == (metrics_port is not None)
    assert set(ports.values()) == {one.port for one in config.resolved_listeners().bound}
    assert {port["port"] for port in service["spec"]["ports"]} == set(ports.values()) - {ports.get("internal")}
    # The grace counts twice: for requests in flight at the hand-over, and for those at the end.
    assert pod["terminationGracePeriodSeconds"] * 1000 >= 2 * config.shutdown_grace_ms + 20_000
    mounted = {one["mountPath"] for one in container["volumeMounts"]}
    directories = [config.metadata_log_dir] if isinstance(config, ControllerConfig) else []
    directories += list(config.data_dirs) if isinstance(config, BrokerConfig) else []
    for directory in directories:
        assert str(Path(directory).parent) in mounted


SECURED_SETS = pytest.mark.parametrize(
    "described", of_kind("StatefulSet", KUBERNETES["kubernetes, secure"]), ids=lambda one: one["metadata"]["name"]
)


@SECURED_SETS
def test_every_probe_of_a_secured_pod_uses_tls_and_ends_before_kubernetes_kills_it(described: dict[str, Any]) -> None:
    (container,) = described["spec"]["template"]["spec"]["containers"]
    services = {"startupProbe": "liveness", "livenessProbe": "liveness", "readinessProbe": ""}
    for name, service in services.items():
        probe = container[name]
        program, *arguments, address = probe["exec"]["command"]
        options = dict(zip(arguments[::2], arguments[1::2], strict=True))
        assert (program, options["--config"]) == ("klamm-health", "/security/health.properties")
        assert options.get("--service", "") == service
        # The certificates of all servers are valid for this name.
        assert address == f"localhost:{_probed_port(container['readinessProbe'])}"
        assert float(options.get("--timeout", "3")) + 2 <= probe["timeoutSeconds"]


@SECURED_SETS
def test_servers_can_read_the_mounted_secrets_and_other_users_cannot(described: dict[str, Any]) -> None:
    pod = described["spec"]["template"]["spec"]
    (volume,) = [one["projected"] for one in pod["volumes"] if one["name"] == "security"]
    # The files belong to root and to the group of fsGroup. Servers refuse a key with a mode like 0444.
    assert volume["defaultMode"] == 0o440
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"]
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        (mount,) = [one for one in container["volumeMounts"] if one["name"] == "security"]
        # Kubernetes does not update a file that is mounted with subPath.
        assert mount == {"name": "security", "mountPath": "/security", "readOnly": True}
    secrets = {source["secret"]["name"] for source in volume["sources"] if "secret" in source}
    own = {f"{described['metadata']['name']}-certificates"}
    assert secrets == (own | {"klamm-admin"} if described["metadata"]["name"] == "klamm-controller" else own)


def test_only_servers_reach_the_listeners_between_servers() -> None:
    objects = KUBERNETES["kubernetes, secure"]
    (policy,) = [one["spec"] for one in of_kind("NetworkPolicy", objects)]
    templates = [one["spec"]["template"] for one in of_kind("StatefulSet", objects)]
    servers = policy["podSelector"]["matchLabels"].items()
    assert all(servers <= template["metadata"]["labels"].items() for template in templates)
    for_servers, for_everyone = policy["ingress"]
    assert for_servers["from"] == [{"podSelector": policy["podSelector"]}]
    assert "from" not in for_everyone
    named = {port["name"] for template in templates for port in template["spec"]["containers"][0]["ports"]}
    assert {port["port"] for port in for_servers["ports"]} == {"internal"}
    assert {port["port"] for port in for_everyone["ports"]} == named - {"internal"}


def test_the_deployment_in_plain_text_mounts_no_secrets() -> None:
    assert "security" not in yaml.safe_dump(
        [one["spec"]["template"]["spec"]["volumes"] for one in of_kind("StatefulSet", KUBERNETES["kubernetes"])]
    )
    assert {manifest["kind"] for manifest in KUBERNETES["kubernetes"]} == {
        "Service",
        "PodDisruptionBudget",
        "StatefulSet",
    }
    for server in CLUSTERS["kubernetes"]:
        assert not server.config.resolved_listeners().secured
