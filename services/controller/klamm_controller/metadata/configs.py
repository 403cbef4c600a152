"""Changes the configs of topics and brokers, incrementally (KIP-339) or by replacing them.

All changes of one resource succeed or fail together. Their result must be valid as a whole, but not each change by
itself. klamm_server.config.config_defs decides which names and values are valid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from klamm.errors import BrokerError, ConfigError, ErrorCode
from klamm.model import AUDIT_TOPIC, topic_name_problem
from klamm.setting import hint
from klamm.wire.v1.controller_pb2 import (
    CONFIG_OPERATION_APPEND,
    CONFIG_OPERATION_DELETE,
    CONFIG_OPERATION_SET,
    CONFIG_OPERATION_SUBTRACT,
    AlterConfigsResource,
    ConfigChange,
    ConfigResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    NamedResult,
)
from klamm.wire.v1.metadata_pb2 import (
    CONFIG_RESOURCE_TYPE_BROKER,
    CONFIG_RESOURCE_TYPE_GROUP,
    CONFIG_RESOURCE_TYPE_TOPIC,
    ConfigRecord,
    MetadataRecord,
)
from klamm_controller.metadata.config_layers import broker_layers
from klamm_controller.metadata.decision import Decision, Refusal
from klamm_controller.metadata.leader_election import after_config_changes
from klamm_server.config.config_defs import (
    accepted_broker_configs,
    append_to_list,
    normal_text,
    resolve_broker_config,
    resolve_topic_config,
    subtract_from_list,
    validate_broker_configs,
    validate_topic_configs,
)
from klamm_server.config.configs_without_effect import stored_text
from klamm_server.config.dynamic_configs import check_step, in_force, own_config
from klamm_server.config.listener_settings import listener_setting
from klamm_server.config.topic_configs import TOPIC_CONFIGS
from klamm_server.metadata.entities import BrokerImage
from klamm_server.metadata.image import MetadataImage

T = TypeVar("T")


def handle_incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, image: MetadataImage
) -> Decision[IncrementalAlterConfigsResponse]:
    """Changes configs. Each resource succeeds or fails by itself. With `validate_only`, makes no records and returns
    the same results."""
    asked = Counter(_key(wanted.resource) for wanted in request.resources)
    records: list[MetadataRecord] = []
    results = []
    for wanted in request.resources:
        result = NamedResult(name=wanted.resource.name)
        try:
            if asked[_key(wanted.resource)] > 1:
                raise Refusal(ErrorCode.INVALID_REQUEST, f"{describe(wanted.resource)} is named twice")
            if wanted.resource.type == CONFIG_RESOURCE_TYPE_TOPIC and wanted.resource.name == AUDIT_TOPIC:
                raise Refusal(
                    ErrorCode.POLICY_VIOLATION, f"the configs of the internal topic {AUDIT_TOPIC} cannot be changed"
                )
            records += _alter(wanted, image)
        except Refusal as refusal:
            result.error_code, result.error_message = refusal.code, refusal.message
        results.append(result)
    reply = IncrementalAlterConfigsResponse(results=results)
    if request.validate_only:
        return Decision(reply=reply)
    return Decision(records=(*after_config_changes(image, records), *records), reply=reply)


def check_topic_configs(configs: Mapping[str, str]) -> None:
    """Raises Refusal(INVALID_CONFIG) unless a topic may have these configs."""
    _refusing(lambda: validate_topic_configs(configs))


def check_resource(resource: ConfigResource, image: MetadataImage) -> None:
    """Raises Refusal unless the resource exists. A broker need not be alive."""
    if resource.type == CONFIG_RESOURCE_TYPE_TOPIC:
        if problem := topic_name_problem(resource.name):
            raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if resource.name not in image.topics_by_name:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {resource.name!r} does not exist")
    elif resource.type == CONFIG_RESOURCE_TYPE_BROKER:
        _check_broker(resource.name, image)
    else:
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            f"resource type {int(resource.type)} has no configs; expected 2 (topic) or 4 (broker)",
        )


def describe(resource: ConfigResource) -> str:
    """Describes the resource in words, for error messages."""
    if resource.type == CONFIG_RESOURCE_TYPE_TOPIC:
        return f"topic {resource.name}"
    if resource.type == CONFIG_RESOURCE_TYPE_GROUP:
        return f"group {resource.name}"
    return f"broker {resource.name}" if resource.name else "the default of all brokers"


def _check_broker(name: str, image: MetadataImage) -> None:
    if not name:
        return
    if not (name.isascii() and name.isdecimal() and name == str(int(name))):
        raise Refusal(ErrorCode.INVALID_REQUEST, f"{name!r} is not a broker id")
    if int(name) not in image.brokers:
        raise Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {name} is not registered")


def _key(resource: ConfigResource) -> tuple[int, str]:
    return int(resource.type), resource.name


def _alter(wanted: AlterConfigsResource, image: MetadataImage) -> Iterator[MetadataRecord]:
    resource = wanted.resource
    check_resource(resource, image)
    names = Counter(change.name for change in wanted.changes)
    for name, times in names.items():
        if times > 1:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"{describe(resource)}: {name} is changed {times} times")
    before = image.configs.get(_key(resource), {})
    after = {} if wanted.replace_all else dict(before)
    for change in wanted.changes:
        _apply(change, resource, after, image)
    _check_outcome(resource, after, frozenset(names), image)
    return _difference(resource, before, after)


def _apply(change: ConfigChange, resource: ConfigResource, settings: dict[str, str], image: MetadataImage) -> None:
    is_topic = resource.type == CONFIG_RESOURCE_TYPE_TOPIC
    known = TOPIC_CONFIGS if is_topic else accepted_broker_configs()
    if not is_topic and listener_setting(known, change.name) is not None:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"{change.name} is read-only: set it in the broker's own file")
    if change.name not in known:
        raise Refusal(ErrorCode.INVALID_CONFIG, f"unknown config {change.name}{hint(change.name, known)}")
    if change.operation == CONFIG_OPERATION_SET:
        value = normal_text(change.name, change.value)
        settings[change.name] = value if is_topic else stored_text(change.name, value)
    elif change.operation == CONFIG_OPERATION_DELETE:
        settings.pop(change.name, None)
    elif change.operation in (CONFIG_OPERATION_APPEND, CONFIG_OPERATION_SUBTRACT):
        edit = append_to_list if change.operation == CONFIG_OPERATION_APPEND else subtract_from_list
        current = _in_force(change.name, resource, image)
        settings[change.name] = _refusing(lambda: edit(change.name, current, change.value))
    else:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"{change.name}: operation {int(change.operation)} is unknown")


def _in_force(name: str, resource: ConfigResource, image: MetadataImage) -> str:
    """Returns the value in force of a config of a list, so that appending to a default keeps the default's items."""
    if resource.type == CONFIG_RESOURCE_TYPE_TOPIC:
        own = image.topic_configs(resource.name)
        return resolve_topic_config(name, own, broker_layers(image, None)).value
    broker_id = int(resource.name) if resource.name else None
    return resolve_broker_config(name, broker_layers(image, broker_id)).value


def _check_outcome(
    resource: ConfigResource, settings: Mapping[str, str], changed: frozenset[str], image: MetadataImage
) -> None:
    if resource.type == CONFIG_RESOURCE_TYPE_TOPIC:
        check_topic_configs(settings)
        return
    ours = {name: value for name, value in settings.items() if name in changed}
    _refusing(lambda: validate_broker_configs(ours, all_brokers=not resource.name))
    for broker_id, broker in image.brokers.items():
        if not resource.name or resource.name == str(broker_id):
            _check_in_force(broker, resource, settings, image)


def _check_in_force(
    broker: BrokerImage, resource: ConfigResource, settings: Mapping[str, str], image: MetadataImage
) -> None:
    """Raises Refusal unless the broker can change from its configs in force to the new ones."""
    of_broker, of_all = image.broker_configs(broker.broker_id), image.broker_configs(None)
    try:
        own = own_config(broker.broker_id, broker.static_configs)
        before = in_force(own, of_broker, of_all)
    except ConfigError:
        return  # Another version may have set this value. The broker itself reports what it does with it.
    try:
        after = in_force(own, settings, of_all) if resource.name else in_force(own, of_broker, settings)
        check_step(before, after)
    except ConfigError as error:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"broker {broker.broker_id}: {error}") from error


def _difference(
    resource: ConfigResource, before: Mapping[str, str], after: Mapping[str, str]
) -> Iterator[MetadataRecord]:
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield MetadataRecord(
                config=ConfigRecord(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    name=name,
                    value=after.get(name),
                )
            )


def _refusing(check: Callable[[], T]) -> T:
    """Returns the result of `check`. Raises the exceptions of config_defs as Refusal."""
    try:
        return check()
    except BrokerError as error:
        raise Refusal(error.code, error.message) from error
