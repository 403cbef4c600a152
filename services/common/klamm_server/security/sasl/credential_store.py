"""The SCRAM credentials of all users as a login needs them: a user that does not exist looks like one with another
password.

A login by SCRAM shows the salt and the iterations of a user before the password counts. Of a name without a credential
it shows a salt derived from the cluster's secret, the same each time and at every server, and iterations and a length
of salt that some user has, drawn by the name: made-up users are as unlike each other as real ones.
"""

from __future__ import annotations

import hashlib
import hmac
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from klamm.security.sasl.scram_keys import ScramCredential, ScramMechanism
from klamm_server.metadata.image import CredentialKey, MetadataImage


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The credential with which a login continues. If it does not exist, the login fails in the end."""

    mechanism: ScramMechanism
    credential: ScramCredential
    exists: bool


class CredentialStore:
    """The credentials of one metadata image. `secret` is the cluster's.

    `of` returns the same store as long as no credential changes."""

    def __init__(self, credentials: Mapping[CredentialKey, ScramCredential], secret: bytes) -> None:
        self._credentials = credentials
        self._secret = secret

    @classmethod
    def of(cls, image: MetadataImage, before: CredentialStore | None = None) -> CredentialStore:
        """Returns the store of an image. Returns `before` if the credentials have not changed."""
        if before is not None and before._credentials is image.scram_credentials:
            return before
        return cls(image.scram_credentials, image.cluster_secret)

    def find(self, mechanism: ScramMechanism, name: str) -> Found:
        """Returns the user's credential of a mechanism, or a made-up one."""
        return self._found(name, [mechanism], self._shapes[mechanism])

    def find_any(self, name: str) -> Found:
        """Returns the user's credential of any mechanism, or a made-up one. SCRAM-SHA-256 comes first, because it costs
        less to check."""
        return self._found(name, ScramMechanism, self._all_shapes)

    def _found(self, name: str, mechanisms: Iterable[ScramMechanism], shapes: _Shapes) -> Found:
        # Make one up for existing users too. Otherwise the time of the answer would reveal them.
        made_up = self._made_up(name, shapes)
        for mechanism in mechanisms:
            credential = self._credentials.get((name, mechanism))
            if credential is not None:
                return Found(mechanism=mechanism, credential=credential, exists=True)
        return made_up

    @cached_property
    def _shapes(self) -> Mapping[ScramMechanism, _Shapes]:
        # Plain tuples first: there may be 100,000 credentials, and few shapes.
        seen = Counter(
            (key[1], credential.iterations, len(credential.salt)) for key, credential in self._credentials.items()
        )
        counts = {mechanism: Counter[_Shape]() for mechanism in ScramMechanism}
        for (mechanism, iterations, salt_length), times in seen.items():
            counts[mechanism][_Shape(mechanism.number, iterations, salt_length)] = times
        return {mechanism: _Shapes(counts[mechanism], _default_shape(mechanism)) for mechanism in ScramMechanism}

    @cached_property
    def _all_shapes(self) -> _Shapes:
        counts = sum((shapes.counts for shapes in self._shapes.values()), Counter())
        return _Shapes(counts, _default_shape(ScramMechanism.SHA_256))

    def _made_up(self, name: str, shapes: _Shapes) -> Found:
        shape = shapes.draw(int.from_bytes(self._derived("shape", name)[:8], "big"))
        mechanism = ScramMechanism.of_number(shape.mechanism_number)
        assert mechanism is not None, shape
        # If the shape differs, the whole salt differs, because a real user's salt never becomes longer.
        salt = hashlib.shake_256(self._derived(f"salt {shape}", name)).digest(shape.salt_length)
        keys = hashlib.shake_256(self._derived(f"keys {shape}", name)).digest(2 * mechanism.key_length)
        return Found(
            mechanism=mechanism,
            credential=ScramCredential(
                salt=salt,
                iterations=shape.iterations,
                stored_key=keys[: mechanism.key_length],
                server_key=keys[mechanism.key_length :],
            ),
            exists=False,
        )

    def _derived(self, purpose: str, name: str) -> bytes:
        return hmac.digest(self._secret, f"{purpose}\0{name}".encode(), "sha512")


class _Shape(NamedTuple):
    """The parts of a credential that a client sees before the password counts."""

    mechanism_number: int
    iterations: int
    salt_length: int


class _Shapes:
    """Shapes as often as they occur; one that is given, where there are none."""

    def __init__(self, counts: Counter[_Shape], default: _Shape) -> None:
        self.counts = counts
        # Sorted, so that all servers draw alike.
        self._shapes = sorted(counts) or [default]
        self._ends = list(accumulate(counts[shape] for shape in self._shapes))

    def draw(self, number: int) -> _Shape:
        """Selects a shape by a 64-bit number. The number's share of the range decides, not a remainder. So another user
        changes the shapes of few names."""
        return self._shapes[bisect_right(self._ends, number * self._ends[-1] >> 64) if self._ends[-1] else 0]


def _default_shape(mechanism: ScramMechanism) -> _Shape:
    """Returns the shape of the credentials that Klamm's own client makes."""
    return _Shape(mechanism.number, iterations=8192, salt_length=32)
