"""Sets, removes and describes the SCRAM credentials of users (KIP-554). Descriptions contain no secrets.

Each user's change succeeds or fails by itself. The checks, their order and their error codes are Kafka's. A request may
name a user only once, even for different mechanisms.
"""

from __future__ import annotations

from klamm.errors import ErrorCode
from klamm.security.sasl.scram_keys import MAX_ITERATIONS, MIN_ITERATIONS, ScramMechanism, credential_of
from klamm.wire.v1.controller_pb2 import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribedUserScramCredentials,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    NamedResult,
    ScramCredentialDeletion,
    ScramCredentialInfo,
    ScramCredentialUpsertion,
)
from klamm.wire.v1.metadata_pb2 import ClusterSecretRecord, MetadataRecord, RemoveUserScramCredentialRecord
from klamm_controller.metadata.decision import Decision, Refusal
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.image_records import credential_record
from klamm_server.metadata.users import described_users

_Change = ScramCredentialDeletion | ScramCredentialUpsertion
_Outcome = MetadataRecord | Refusal
"""The record of a user's change, or why there is none."""


def handle_alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, image: MetadataImage, new_secret: bytes
) -> Decision[AlterUserScramCredentialsResponse]:
    """Sets and removes credentials. `new_secret` has 32 random bytes, which become the cluster's secret with its first
    credential."""
    asked: list[_Change] = [*request.deletions]
    asked += request.upsertions
    outcomes: dict[str, _Outcome] = {}
    for change in asked:
        before = outcomes.get(change.name)
        if not isinstance(before, Refusal):
            outcomes[change.name] = _twice() if before is not None else _outcome(change, image)
    records = [outcome for outcome in outcomes.values() if isinstance(outcome, MetadataRecord)]
    if records and not image.cluster_secret:
        records.insert(0, MetadataRecord(cluster_secret=ClusterSecretRecord(secret=new_secret)))
    results = [_result(name, outcome) for name, outcome in outcomes.items()]
    return Decision(records=tuple(records), reply=AlterUserScramCredentialsResponse(results=results))


def describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, image: MetadataImage
) -> DescribeUserScramCredentialsResponse:
    """Returns the credentials of the users in the request, or of all users if it names none, without secrets."""
    return DescribeUserScramCredentialsResponse(
        users=[
            DescribedUserScramCredentials(
                name=user.name,
                error_code=user.error_code,
                error_message=user.error_message,
                credentials=[
                    ScramCredentialInfo(
                        mechanism=mechanism.number,  # type: ignore[arg-type]  # stubs want the enum's NewType
                        iterations=iterations,
                    )
                    for mechanism, iterations in user.credentials
                ],
            )
            for user in described_users(image, request.users)
        ]
    )


def _twice() -> Refusal:
    return Refusal(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")


def _result(name: str, outcome: _Outcome) -> NamedResult:
    if isinstance(outcome, Refusal):
        return NamedResult(name=name, error_code=outcome.code, error_message=outcome.message)
    return NamedResult(name=name)


def _outcome(change: _Change, image: MetadataImage) -> _Outcome:
    # A request may have thousands of changes, and each raised exception would keep its frames alive.
    if not change.name:
        return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = ScramMechanism.of_number(change.mechanism)
    if mechanism is None:
        return Refusal(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    key = change.name, mechanism
    if isinstance(change, ScramCredentialUpsertion):
        if problem := _problem(change):
            return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, problem)
        return credential_record(key, credential_of(mechanism, change.salted_password, change.salt, change.iterations))
    if key not in image.scram_credentials:
        return Refusal(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    return MetadataRecord(
        remove_user_scram_credential=RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)
    )


def _problem(change: ScramCredentialUpsertion) -> str:
    if change.iterations < MIN_ITERATIONS:
        return "Too few iterations"
    if change.iterations > MAX_ITERATIONS:
        return "Too many iterations"
    if not change.salt or not change.salted_password:
        return "Neither the salt nor the salted password may be empty"
    return ""
