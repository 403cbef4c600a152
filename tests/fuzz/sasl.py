"""A coverage-guided fuzzer of what a client says before it is anybody: the servers' side of each SASL mechanism.

Run: make fuzz, or python tests/fuzz/sasl.py [--inputs 10000000] [--corpus DIRECTORY]

It stops at the first input that raises anything but a refusal, or logs somebody in. The input is left in the working
directory, to be run again with `--again FILE`. Its first byte chooses the mechanism, 0xFF begins the next message.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import resource
import sys
import tempfile
from typing import Any

import atheris

with atheris.instrument_imports(include=["klamm.security.sasl", "klamm_server.security.sasl"]):
    from klamm.security.sasl.scram_keys import ScramCredential, ScramMechanism
    from klamm_server.security.sasl.credential_store import CredentialStore
    from klamm_server.security.sasl.known_passwords import KnownPasswords
    from klamm_server.security.sasl.oauthbearer_server import OAuthBearerServer
    from klamm_server.security.sasl.plain_server import PlainServer
    from klamm_server.security.sasl.scram_server import ScramServer
    from klamm_server.security.sasl.server import Authenticated, SaslRefusedError, SaslServer, Verification
    from klamm_server.security.sasl.token_rules import KeySet, TokenRules

MESSAGES_MAX = 4
REPORT_EVERY = 500_000
_CREDENTIAL = ScramCredential(salt=b"salt", iterations=4096, stored_key=b"k" * 32, server_key=b"v" * 32)
_STORE = CredentialStore({("alice", mechanism): _CREDENTIAL for mechanism in ScramMechanism}, b"secret")
# The generator of P-256. Any public key will do, because no input has a valid signature.
_KEY = {
    "kty": "EC",
    "crv": "P-256",
    "kid": "k",
    "x": "axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY",
    "y": "T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU",
}
_KEYS = KeySet(json.dumps({"keys": [_KEY]}).encode())
_RULES = TokenRules(expected_issuer="i", expected_audience=frozenset({"a"}))
SEEDS = (
    b"\x00n,,n=alice,r=client\xffc=biws,r=clientserver,p=YQ==",
    b"\x01n,a=alice,n=alice,r=client,x=y\xffc=bixhPWFsaWNlLA==,r=clientserver,p=YQ==",
    b"\x02alice\0alice\0password",
    b"\x03n,a=u,\x01auth=Bearer eyJhbGciOiJFUzI1NiIsImtpZCI6ImsifQ.eyJpc3MiOiJpIn0.AAAA\x01\x01\xff\x01",
)


def server(kind: int) -> SaslServer:
    match kind % 4:
        case 0:
            return ScramServer(ScramMechanism.SHA_256, _STORE, nonce="server")
        case 1:
            return ScramServer(ScramMechanism.SHA_512, _STORE, nonce="server")
        case 2:
            return PlainServer(_STORE, KnownPasswords(b"key"), 0)
    return OAuthBearerServer(lambda token: _RULES.validate(token, _KEYS, 0))


class Target:
    """Takes the inputs, and counts them."""

    def __init__(self) -> None:
        self._inputs = 0

    def __call__(self, data: bytes) -> None:
        if data:
            self._feed(server(data[0]), data[1:].split(b"\xff")[:MESSAGES_MAX])
        self._inputs += 1
        if self._inputs % REPORT_EVERY == 0:
            peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
            print(f"{self._inputs} inputs, {peak_mb} MB at most", flush=True)

    def _feed(self, login: SaslServer, messages: list[bytes]) -> None:
        try:
            for message in messages:
                answered: Any = login.step(message)
                if isinstance(login, OAuthBearerServer) and isinstance(answered, Verification):
                    answered = answered.decide(answered.check())
                assert not isinstance(answered, Authenticated), f"{answered} logs in"
        except SaslRefusedError:
            pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000_000)
    parser.add_argument("--corpus", type=pathlib.Path, help="kept between runs [default: a new one]")
    parser.add_argument("--again", type=pathlib.Path, metavar="FILE", help="run this input alone")
    options = parser.parse_args()
    target = Target()
    if options.again is not None:
        target(options.again.read_bytes())
        return
    with tempfile.TemporaryDirectory() as directory:
        corpus = options.corpus or pathlib.Path(directory)
        corpus.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(SEEDS):
            (corpus / f"seed-{number}").write_bytes(seed)
        # Never left: atheris ends the process.
        atheris.Setup([sys.argv[0], f"-runs={options.inputs}", "-max_len=2000", str(corpus)], target)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
