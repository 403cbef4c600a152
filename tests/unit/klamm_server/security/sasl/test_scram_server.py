from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.secret import Secret
from klamm.security.sasl.scram_client import ScramClient
from klamm.security.sasl.scram_keys import ScramCredential, ScramMechanism, credential_of, salted_password
from klamm.security.sasl.scram_messages import parse_server_first
from klamm_server.security.sasl.credential_store import CredentialStore
from klamm_server.security.sasl.scram_server import ScramServer
from klamm_server.security.sasl.server import Authenticated, SaslRefusedError

SHA_256, SHA_512 = ScramMechanism
SALT = b"0123456789abcdef"


def made_of(password: str, mechanism: ScramMechanism = SHA_256) -> ScramCredential:
    return credential_of(mechanism, salted_password(mechanism, Secret(password), SALT, 4096), SALT, 4096)


STORE = CredentialStore(
    {
        ("alice", SHA_256): made_of("wonderland"),
        ("alice", SHA_512): made_of("looking glass", SHA_512),
        ("böb, =", SHA_256): made_of("builder"),
    },
    b"secret",
)


def server(mechanism: ScramMechanism = SHA_256, nonce: str = "server") -> ScramServer:
    return ScramServer(mechanism, STORE, nonce=nonce)


def login(name: str, password: str, mechanism: ScramMechanism = SHA_256) -> Authenticated:
    """Logs in. Returns the server's final result, after the client has checked the last message."""
    client, ours = ScramClient(mechanism, name, Secret(password), nonce="client"), server(mechanism)
    challenge = ours.step(client.first())
    assert isinstance(challenge, bytes)
    answer = client.step(challenge)
    assert answer is not None
    done = ours.step(answer)
    assert isinstance(done, Authenticated)
    assert client.step(done.answer) is None
    return done


@pytest.mark.parametrize(
    ("name", "password", "mechanism"),
    [("alice", "wonderland", SHA_256), ("alice", "looking glass", SHA_512), ("böb, =", "builder", SHA_256)],
)
def test_a_client_with_the_right_password_logs_in(name: str, password: str, mechanism: ScramMechanism) -> None:
    assert login(name, password, mechanism).name == name


@pytest.mark.parametrize(
    ("name", "password", "mechanism", "cause"),
    [
        ("alice", "Wonderland", SHA_256, "wrong password"),
        ("alice", "wonderland", SHA_512, "wrong password"),
        ("böb, =", "builder", SHA_512, "has no credential for SCRAM-SHA-512"),
        ("nobody", "wonderland", SHA_256, "has no credential"),
        ("Alice", "wonderland", SHA_256, "has no credential"),
    ],
)
def test_a_wrong_password_user_or_mechanism_is_refused_in_the_last_step(
    name: str, password: str, mechanism: ScramMechanism, cause: str
) -> None:
    with pytest.raises(SaslRefusedError, match=cause) as refused:
        login(name, password, mechanism)
    assert password not in str(refused.value)


def test_an_unknown_user_gets_a_challenge_like_that_of_a_real_one() -> None:
    real, made_up = (parse_server_first(server().step(f"n,,n={n},r=x".encode())) for n in ("alice", "nobody"))
    assert (real.nonce, real.iterations, len(real.salt)) == (made_up.nonce, made_up.iterations, len(made_up.salt))
    again = parse_server_first(server(nonce="later").step(b"n,,n=nobody,r=y"))
    assert again.salt == made_up.salt


@pytest.mark.parametrize(
    "first",
    [
        b"n,a=bob,n=alice,r=x",
        b"n,,n=alice,r=x,tokenauth=true",
        b"n,,n=alice,r=x,tokenauth=TRUE",
        b"p=tls-server-end-point,,n=alice,r=x",
        b"n,,m=new,n=alice,r=x",
        b"",
    ],
)
def test_an_unsupported_first_message_is_refused_at_once(first: bytes) -> None:
    with pytest.raises(SaslRefusedError):
        server().step(first)


@pytest.mark.parametrize("first", [b"n,a=alice,n=alice,r=client", b"y,,n=alice,r=client", b"n,,n=alice,r=client,x=y"])
def test_optional_parts_of_a_first_message_are_accepted(first: bytes) -> None:
    assert b"r=clientserver," in server().step(first)


# A login with the final message of another login. The proof covers nonce, header and first message.


def final_message(first: bytes, server_nonce: str) -> bytes:
    """Returns alice's answer to this server's challenge."""
    client = ScramClient(SHA_256, "alice", Secret("wonderland"), nonce="client")
    answer = client.step(server(nonce=server_nonce).step(first))
    assert answer is not None
    return answer


def test_a_replayed_login_is_refused() -> None:
    first = b"n,,n=alice,r=client"
    recorded = final_message(first, "monday")
    today = server(nonce="tuesday")
    today.step(first)
    with pytest.raises(SaslRefusedError, match="nonce differs from the nonce of the first message"):
        today.step(recorded)


@pytest.mark.parametrize("nonce", ["client", "server", "clientserve", "clientserver0", "evilserver", "clientevil"])
def test_a_final_message_with_another_nonce_is_refused(nonce: str) -> None:
    # Kafka compared only whether the nonce ended with the server's part (CVE-2024-56128).
    ours = server()
    ours.step(b"n,,n=alice,r=client")
    with pytest.raises(SaslRefusedError, match="nonce"):
        ours.step(f"c=biws,r={nonce},p=YQ==".encode())


def test_a_final_message_with_another_header_is_refused() -> None:
    ours = server()
    ours.step(b"y,,n=alice,r=client")
    with pytest.raises(SaslRefusedError, match="header"):
        ours.step(b"c=biws,r=clientserver,p=YQ==")


def test_a_message_after_a_completed_login_is_refused() -> None:
    ours = server()
    first = b"n,,n=alice,r=client"
    ours.step(first)
    final = final_message(first, "server")
    assert isinstance(ours.step(final), Authenticated)
    for data in (final, first):
        with pytest.raises(SaslRefusedError, match="after the end"):
            ours.step(data)


def test_a_message_after_a_refused_one_is_refused() -> None:
    ours = server()
    with pytest.raises(SaslRefusedError):
        ours.step(b"?")
    with pytest.raises(SaslRefusedError, match="after the end"):
        ours.step(b"n,,n=alice,r=client")


STEPS = st.one_of(
    st.binary(),
    st.sampled_from([b"n,,n=alice,r=client", b"c=biws,r=clientserver,p=YQ==", b"y,,n=x,r=client"]),
    st.text("nyr=,apsc3D2").map(str.encode),
)


@given(st.lists(STEPS, max_size=3), st.sampled_from(ScramMechanism))
def test_any_bytes_are_answered_or_refused_and_never_log_a_client_in(
    steps: list[bytes], mechanism: ScramMechanism
) -> None:
    ours = server(mechanism)
    with contextlib.suppress(SaslRefusedError):
        for data in steps:
            assert isinstance(ours.step(data), bytes)


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_final_message_with_a_changed_byte_is_refused(at: int, change: int) -> None:
    first = b"n,,n=alice,r=client"
    final = bytearray(FINAL)
    final[at % len(final)] ^= change
    ours = server()
    ours.step(first)
    with pytest.raises(SaslRefusedError):
        ours.step(bytes(final))


FINAL = final_message(b"n,,n=alice,r=client", "server")


def test_a_client_refuses_a_server_that_does_not_know_the_credential() -> None:
    client = ScramClient(SHA_256, "nobody", Secret("x"), nonce="client")
    challenge = server().step(client.first())
    assert isinstance(challenge, bytes)
    client.step(challenge)
    with pytest.raises(EXCEPTIONS[ErrorCode.SASL_AUTHENTICATION_FAILED]):
        client.step(b"v=" + b"A" * 43 + b"=")
