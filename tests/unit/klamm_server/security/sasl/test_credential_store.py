from __future__ import annotations

from collections import Counter

from klamm.secret import Secret
from klamm.security.sasl.scram_client import ScramClient
from klamm.security.sasl.scram_keys import ScramCredential, ScramMechanism, credential_of, salted_password
from klamm.wire.v1.metadata_pb2 import (
    ClusterSecretRecord,
    MetadataRecord,
    NoOpRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.image_records import credential_record
from klamm_server.metadata.replay import replay
from klamm_server.security.sasl.credential_store import CredentialStore
from klamm_server.security.sasl.scram_server import ScramServer
from klamm_server.security.sasl.server import Authenticated

SHA_256, SHA_512 = ScramMechanism
SECRET = b"of the cluster"
REMOVAL = RemoveUserScramCredentialRecord(name="b", mechanism=1)


def credential(salt_length: int = 26, iterations: int = 4096) -> ScramCredential:
    return ScramCredential(salt=b"s" * salt_length, iterations=iterations, stored_key=b"k", server_key=b"v")


def test_a_credential_is_found_by_name_and_mechanism() -> None:
    store = CredentialStore({("a", SHA_256): credential(1), ("a", SHA_512): credential(2)}, SECRET)
    found = store.find(SHA_512, "a")
    assert (found.exists, found.credential) == (True, credential(2))
    assert not store.find(SHA_256, "b").exists
    assert not store.find(SHA_256, "A").exists


def test_a_credential_of_any_mechanism_is_found_by_name() -> None:
    store = CredentialStore(
        {("both", SHA_512): credential(2), ("both", SHA_256): credential(1), ("one", SHA_512): credential(3)}, SECRET
    )
    assert store.find_any("both").mechanism is SHA_256
    assert store.find_any("one").mechanism is SHA_512
    assert not store.find_any("none").exists


def record(name: str, salt: bytes, mechanism: int = 1) -> MetadataRecord:
    return MetadataRecord(user_scram_credential=UserScramCredentialRecord(name=name, mechanism=mechanism, salt=salt))


def test_a_credential_store_is_rebuilt_only_if_the_images_credentials_changed() -> None:
    secret = MetadataRecord(cluster_secret=ClusterSecretRecord(secret=SECRET))
    image = replay(MetadataImage.empty(), [secret, record("a", b"one"), record("b", b"two")], 3)
    store = CredentialStore.of(image)
    assert store.find(SHA_256, "a").credential.salt == b"one"
    assert store.find(SHA_256, "x") == CredentialStore(image.scram_credentials, SECRET).find(SHA_256, "x")

    elsewhere = replay(image, [MetadataRecord(no_op=NoOpRecord())], 4)
    assert CredentialStore.of(elsewhere, store) is store

    changes = [record("a", b"new"), MetadataRecord(remove_user_scram_credential=REMOVAL)]
    after = CredentialStore.of(replay(elsewhere, changes, 6), store)
    assert after.find(SHA_256, "a").credential.salt == b"new"
    assert not after.find(SHA_256, "b").exists
    assert store.find(SHA_256, "b").exists


def test_a_scram_login_succeeds_with_a_credential_of_the_image() -> None:
    credential = credential_of(SHA_256, salted_password(SHA_256, Secret("secret"), b"salt", 4096), b"salt", 4096)
    image = replay(MetadataImage.empty(), [credential_record(("alice", SHA_256), credential)], 1)
    client = ScramClient(SHA_256, "alice", Secret("secret"), nonce="client")
    server = ScramServer(SHA_256, CredentialStore.of(image), nonce="server")
    challenge = server.step(client.first())
    assert isinstance(challenge, bytes)
    answer = client.step(challenge)
    assert answer is not None
    done = server.step(answer)
    assert isinstance(done, Authenticated)
    assert (done.name, client.step(done.answer)) == ("alice", None)


def test_an_unknown_user_has_the_same_made_up_credential_at_every_server() -> None:
    one = CredentialStore({("a", SHA_256): credential(1), ("b", SHA_256): credential(2)}, SECRET)
    other = CredentialStore({("b", SHA_256): credential(2), ("a", SHA_256): credential(1)}, SECRET)
    assert one.find(SHA_256, "x") == other.find(SHA_256, "x")
    assert one.find(SHA_256, "x").credential.salt != one.find(SHA_256, "y").credential.salt
    assert one.find(SHA_256, "x").credential != CredentialStore({}, b"another").find(SHA_256, "x").credential


def test_made_up_credentials_have_the_shapes_of_real_ones_in_equal_shares() -> None:
    real = {(f"user{n}", SHA_256): credential(26, 4096) if n < 75 else credential(200, 8192) for n in range(100)}
    store = CredentialStore({**real, ("other", SHA_512): credential(9, 5000)}, SECRET)
    shapes = Counter()
    for n in range(1000):
        found = store.find(SHA_256, f"nobody{n}").credential
        shapes[len(found.salt), found.iterations] += 1
    assert set(shapes) == {(26, 4096), (200, 8192)}
    assert 680 < shapes[26, 4096] < 820


def test_a_new_user_changes_few_made_up_credentials() -> None:
    real = {(f"user{n}", SHA_256): credential(20 + n % 2) for n in range(1000)}
    before = CredentialStore(real, SECRET)
    after = CredentialStore({**real, ("new", SHA_256): credential(20)}, SECRET)
    changed = [n for n in range(500) if before.find(SHA_256, f"x{n}") != after.find(SHA_256, f"x{n}")]
    assert len(changed) <= 5


def test_made_up_credentials_of_one_user_in_two_shapes_have_different_salts() -> None:
    former = CredentialStore({("a", SHA_256): credential(20)}, SECRET).find(SHA_256, "x").credential.salt
    after = CredentialStore({("a", SHA_256): credential(30)}, SECRET).find(SHA_256, "x").credential.salt
    assert (len(former), len(after)) == (20, 30)
    assert after[:20] != former


def test_the_mechanism_of_a_made_up_credential_is_drawn_like_the_real_ones() -> None:
    real = {(f"user{n}", SHA_512 if n < 3 else SHA_256): credential() for n in range(10)}
    store = CredentialStore(real, SECRET)
    drawn = Counter(store.find_any(f"nobody{n}").mechanism for n in range(1000))
    assert 220 < drawn[SHA_512] < 380
    assert drawn.total() == 1000


def test_without_users_a_made_up_credential_has_klamms_default_shape() -> None:
    found = CredentialStore({}, SECRET).find(SHA_512, "x")
    assert (len(found.credential.salt), found.credential.iterations) == (32, 8192)
    assert len(found.credential.stored_key) == len(found.credential.server_key) == 64
