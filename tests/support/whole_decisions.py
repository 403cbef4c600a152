"""Decisions of the controller that it makes in parts, made in one part."""

from __future__ import annotations

import random
import sys

from klamm.wire.v1.controller_pb2 import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    RegisterBrokerRequest,
    RegisterResponse,
)
from klamm_controller.metadata.brokers import BrokerRegistration
from klamm_controller.metadata.decision import Decision
from klamm_controller.metadata.policy import TopicPolicy
from klamm_controller.metadata.topics import TopicCreation
from klamm_server.metadata.image import MetadataImage


def handle_create_topics(
    request: CreateTopicsRequest, image: MetadataImage, policy: TopicPolicy, rng: random.Random
) -> Decision[CreateTopicsResponse]:
    """Creates all topics of the request."""
    return TopicCreation(request, policy, rng).next_part(image, sys.maxsize)


def handle_register_broker(
    request: RegisterBrokerRequest, image: MetadataImage, *, session_live: bool
) -> Decision[RegisterResponse]:
    """Registers a broker or refuses it."""
    return BrokerRegistration(request, changes_max=sys.maxsize).next_part(image, session_live=session_live)
