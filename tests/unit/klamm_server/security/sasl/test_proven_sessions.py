from __future__ import annotations

from klamm.security.sasl.scram_keys import ScramCredential, ScramMechanism
from klamm_server.security.sasl.proven_sessions import REASON, ProvenSession, ProvenSessions

SHA_256, SHA_512 = ScramMechanism


def credential(salt: bytes = b"salt") -> ScramCredential:
    return ScramCredential(salt=salt, iterations=4096, stored_key=b"stored", server_key=b"server")


def test_a_changed_or_removed_credential_ends_only_its_own_sessions() -> None:
    sessions, ended = ProvenSessions(), list[tuple[str, str]]()

    def begun(name: str, mechanism: ScramMechanism) -> ProvenSession:
        one = ProvenSession(
            (name, mechanism), credential(), lambda why: ended.append((f"{name} {mechanism.number}", why))
        )
        assert sessions.begin(one)
        return one

    users = {(name, mechanism): credential() for name in ("alice", "bob", "carol") for mechanism in ScramMechanism}
    sessions.on_credentials(users)
    for name, mechanism in users:
        begun(name, mechanism)
    # The same records come again, as from a snapshot. Then one is changed, and one is gone.
    sessions.on_credentials(dict(users))
    assert not ended
    sessions.on_credentials({**users, ("alice", SHA_256): credential(b"new")})
    assert ended == [("alice 1", REASON)]
    sessions.on_credentials({key: user for key, user in users.items() if key != ("bob", SHA_512)})
    assert ended[1:] == [("bob 2", REASON)]
    assert len(sessions) == 4


def test_a_login_that_proved_a_changed_credential_gets_no_session() -> None:
    sessions = ProvenSessions()
    one = ProvenSession(("alice", SHA_256), credential(), lambda _: None)
    assert not sessions.begin(one)
    sessions.on_credentials({("alice", SHA_256): credential(b"new")})
    assert not sessions.begin(one)
    assert len(sessions) == 0


def test_a_forgotten_session_is_not_ended() -> None:
    sessions, ended = ProvenSessions(), list[str]()
    sessions.on_credentials({("alice", SHA_256): credential()})
    one, other = (ProvenSession(("alice", SHA_256), credential(), ended.append) for _ in range(2))
    for each in (one, other):
        assert sessions.begin(each)
    sessions.forget(one)
    sessions.forget(one)
    sessions.on_credentials({})
    assert ended == [REASON]
    sessions.forget(other)
    assert len(sessions) == 0


def test_the_end_of_a_session_may_forget_other_sessions() -> None:
    sessions, ended = ProvenSessions(), list[str]()
    sessions.on_credentials({("alice", SHA_256): credential()})
    every: list[ProvenSession] = []

    def end(reason: str) -> None:
        ended.append(reason)
        for each in every:
            sessions.forget(each)

    every += [ProvenSession(("alice", SHA_256), credential(), end) for _ in range(3)]
    for each in every:
        assert sessions.begin(each)
    sessions.on_credentials({})
    assert ended == [REASON] * 3
