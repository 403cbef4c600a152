"""Both sides of SCRAM, and JAAS texts, against Kafka's own classes (`java/src/main/java/clients/SaslOracle.java`)."""

from __future__ import annotations

import base64
import os
import random
import subprocess
from collections.abc import Iterator

import pytest

from klamm.errors import ConfigError
from klamm.secret import Secret
from klamm.security.sasl.jaas import parse_jaas
from klamm.security.sasl.scram_client import ScramClient
from klamm.security.sasl.scram_keys import ScramMechanism, credential_of, salted_password
from klamm_server.security.sasl.credential_store import CredentialStore
from klamm_server.security.sasl.scram_server import ScramServer
from klamm_server.security.sasl.server import Authenticated, SaslRefusedError
from tests.support import java_programs
from tests.support.seeds import run_seed

pytestmark = pytest.mark.clients
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
NAMES = ["alice", "a=b,c", "=2C", "x y", "user@example.com"]
PASSWORDS = ["wonderland", "pässwörd", "a,b=c", "\u00a0 \u2000", "ﬁne"]


class Oracle:
    """One JVM that answers questions."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, question: str, *words: str | bytes) -> list[bytes]:
        """Returns the words of the answer. The first word shows the kind of the answer."""
        encoded = [base64.b64encode(w.encode() if isinstance(w, str) else w).decode() or "=" for w in words]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(question, *encoded, file=self._process.stdin, flush=True)
        kind, *values = self._process.stdout.readline().split()
        if kind == "error":
            return [b"error", values[0].encode()]
        return [kind.encode(), *(base64.b64decode(value) if value != "=" else b"" for value in values)]


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    command = java_programs.command("clients.SaslOracle")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        yield Oracle(process)
        process.kill()


def nonce() -> str:
    return base64.b64encode(os.urandom(24)).decode()


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("password", PASSWORDS)
def test_kafkas_scram_client_logs_in_at_klamms_scram_server(
    oracle: Oracle, mechanism: ScramMechanism, name: str, password: str
) -> None:
    salt = os.urandom(20)
    credential = credential_of(mechanism, salted_password(mechanism, Secret(password), salt, 4096), salt, 4096)
    server = ScramServer(mechanism, CredentialStore({(name, mechanism): credential}, b""), nonce=nonce())
    _, first = oracle.ask("client", mechanism.mechanism_name, name, password)
    challenge = server.step(first)
    assert isinstance(challenge, bytes)
    _, final = oracle.ask("client-step", challenge)
    done = server.step(final)
    assert isinstance(done, Authenticated)
    assert done.name == name
    assert oracle.ask("client-step", done.answer) == [b"done"]


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("password", PASSWORDS)
def test_klamms_scram_client_logs_in_at_kafkas_scram_server(
    oracle: Oracle, mechanism: ScramMechanism, name: str, password: str
) -> None:
    salt = os.urandom(20)
    credential = credential_of(mechanism, salted_password(mechanism, Secret(password), salt, 4096), salt, 4096)
    keys = (credential.salt, credential.stored_key, credential.server_key, "4096")
    assert oracle.ask("server", mechanism.mechanism_name, name, *keys) == [b"ok"]
    client = ScramClient(mechanism, name, Secret(password), nonce=nonce())
    _, challenge = oracle.ask("server-step", client.first())
    answer = client.step(challenge)
    assert answer is not None
    kind, final = oracle.ask("server-step", answer)
    assert kind == b"done"
    assert client.step(final) is None


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_wrong_password_is_refused_by_klamms_and_by_kafkas_scram_server(
    oracle: Oracle, mechanism: ScramMechanism
) -> None:
    salt = os.urandom(20)
    credential = credential_of(mechanism, salted_password(mechanism, Secret("right"), salt, 4096), salt, 4096)
    server = ScramServer(mechanism, CredentialStore({("alice", mechanism): credential}, b""), nonce=nonce())
    challenge = server.step(oracle.ask("client", mechanism.mechanism_name, "alice", "wrong")[1])
    assert isinstance(challenge, bytes)
    with pytest.raises(SaslRefusedError, match="wrong password"):
        server.step(oracle.ask("client-step", challenge)[1])
    keys = (credential.salt, credential.stored_key, credential.server_key, "4096")
    oracle.ask("server", mechanism.mechanism_name, "alice", *keys)
    client = ScramClient(mechanism, "alice", Secret("wrong"), nonce=nonce())
    answer = client.step(oracle.ask("server-step", client.first())[1])
    assert oracle.ask("server-step", answer or b"")[0] == b"error"


@pytest.mark.parametrize(
    "first",
    [
        b"n,,n=alice,r=x",
        b"n,a=alice,n=alice,r=x",
        b"n,a=bob,n=alice,r=x",
        b"n,,n=alice,r=x,ext=1",
        b"p=tls-unique,,n=alice,r=x",
        b"n,,n=al=ice,r=x",
        b"n,,n=,r=x",
        b"n,,n=alice,r=",
        b"n,,n=alice,r=x y",
        b"n,,n=alice",
        b"n,n=alice,r=x",
        b"",
    ],
)
def test_scram_first_messages_are_accepted_or_refused_as_by_kafkas_server(oracle: Oracle, first: bytes) -> None:
    mechanism = ScramMechanism.SHA_256
    credential = credential_of(mechanism, b"salted", b"salt", 4096)
    keys = (credential.salt, credential.stored_key, credential.server_key, "4096")
    oracle.ask("server", mechanism.mechanism_name, "alice", *keys)
    theirs = oracle.ask("server-step", first)[0]
    try:
        ScramServer(mechanism, CredentialStore({("alice", mechanism): credential}, b""), nonce="n").step(first)
        ours = b"next"
    except SaslRefusedError:
        ours = b"error"
    assert ours == theirs


def reading(text: str) -> list[bytes]:
    """Ours, as the oracle writes it."""
    try:
        login = parse_jaas(Secret(text))
    except ConfigError:
        return [b"error"]
    options = sorted(login.options.items())
    pairs = [word.encode() for name, value in options for word in (name, value.reveal())]
    return [b"login", login.module.value.encode(), *pairs]


def test_jaas_texts_are_read_as_in_java(oracle: Oracle) -> None:
    seed = run_seed()
    print(f"again: TEST_SEED={seed}")
    rng = random.Random(seed)
    pieces = [
        *["user", "=", '"', "'", ";", "\\", "1", "-", ".", "//x", "/*", "*/", "é", '="p', '="q"', "='q'", "\\7", "#"],
        " ",
        "\n",
    ]
    for _ in range(3000):
        tail = "".join(rng.choices(pieces, k=rng.randint(0, 8)))
        text = f'{SCRAM} required username="a" {tail};'
        ours, theirs = reading(text), oracle.ask("jaas", text)
        # Refused by us alone: a quote that never ends, an option named twice, text that is no word.
        assert ours in (theirs, [b"error"]), (text, ours, theirs)
        if theirs[0] == b"error":
            assert ours == [b"error"], text


@pytest.mark.parametrize(
    "options",
    [
        "username=alice password=secret",
        'username="alice" password="a\\"b\\\\c\\101\\n"',
        "username='alice'\n  password='b c' // the end\n",
        "/* who */ username=a.b-c_d$e",
        "",
        'username="1" é=é',
    ],
)
def test_usual_jaas_texts_are_read_as_in_java(oracle: Oracle, options: str) -> None:
    text = f"{SCRAM} required {options};"
    assert reading(text) == oracle.ask("jaas", text)
    assert reading(text) != [b"error"]
