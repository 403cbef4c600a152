from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.security.sasl.scram_messages import (
    ClientFirst,
    ScramMessageError,
    ServerFirst,
    client_final_without_proof,
    parse_client_final,
    parse_client_first,
    parse_server_final,
    parse_server_first,
    server_final,
    with_proof,
)

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)
NONCES = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters=","), min_size=1)
SOME = st.binary(min_size=1)
PARSERS = [parse_client_first, parse_server_first, parse_client_final, parse_server_final]
BYTES = st.one_of(
    st.binary(),
    st.lists(
        st.sampled_from(
            [b"n", b"y", b"p=x", b"a=b", b"n=u", b"r=1", b"s=YQ==", b"i=4096", b"c=biws", b"v=YQ==", b"e=x", b""]
        )
    ).map(b",".join),
)


@given(NAMES, NAMES | st.just(""), NONCES, st.sampled_from(["n", "y"]))
def test_the_client_first_message_round_trips(name: str, authzid: str, nonce: str, flag: str) -> None:
    message = ClientFirst(name=name, authzid=authzid, nonce=nonce, gs2_flag=flag, extensions=(("x", "a=b"),))
    assert parse_client_first(message.encode()) == message


@given(NONCES, SOME, st.integers(1, 999_999_999))
def test_the_server_first_message_round_trips(nonce: str, salt: bytes, iterations: int) -> None:
    message = ServerFirst(nonce=nonce, salt=salt, iterations=iterations)
    assert parse_server_first(message.encode()) == message


@given(SOME, NONCES, SOME)
def test_the_client_final_message_round_trips(binding: bytes, nonce: str, proof: bytes) -> None:
    signed = client_final_without_proof(binding, nonce)
    final = parse_client_final(with_proof(signed, proof))
    assert (final.channel_binding, final.nonce, final.proof, final.without_proof) == (binding, nonce, proof, signed)


@given(SOME)
def test_the_server_final_message_round_trips(signature: bytes) -> None:
    assert parse_server_final(server_final(signature)) == signature


@given(st.sampled_from(PARSERS), BYTES)
def test_any_bytes_are_parsed_or_raise_a_scram_message_error(parse, data: bytes) -> None:
    with contextlib.suppress(ScramMessageError):
        parse(data)


@given(BYTES)
def test_a_parsed_client_first_message_encodes_to_the_received_bytes(data: bytes) -> None:
    # The server signs the message as it writes it again, so reading must keep all of it.
    with contextlib.suppress(ScramMessageError):
        assert parse_client_first(data).encode() == data


@pytest.mark.parametrize(
    "message",
    [
        "p=tls-unique,,n=user,r=nonce",
        "n,,m=x,n=user,r=nonce",
        "n,,n=user,r=nonce,m=x",
        "n,,n=,r=nonce",
        "n,,n=user,r=",
        "n,a=,n=user,r=nonce",
        "n,user,n=user,r=nonce",
        "n,,n=us=er,r=nonce",
        "n,,n=us=3der,r=nonce",
        "n,,n=us\0er,r=nonce",
        "n,,n=user,r=non ce",
        "n,,n=user,r=nönce",
        "n,,n=user,r=nonce,",
        "n,,n=user,r=nonce,=x",
        "n,,r=nonce,n=user",
        "n,,n=user",
        "",
    ],
)
def test_an_invalid_client_first_message_is_refused(message: str) -> None:
    with pytest.raises(ScramMessageError):
        parse_client_first(message.encode())


@pytest.mark.parametrize("iterations", ["0", "-1", "+4096", "4_096", "04096", "1e4", "٤", "9999999999", ""])
def test_iterations_are_a_plain_number(iterations: str) -> None:
    with pytest.raises(ScramMessageError):
        parse_server_first(f"r=nonce,s=YQ==,i={iterations}".encode())


def test_a_server_error_in_the_final_message_is_raised() -> None:
    with pytest.raises(ScramMessageError, match="refuses the login"):
        parse_server_final(b"e=other-error")


def test_scram_errors_do_not_show_the_message() -> None:
    for data in (b"n,,n=hunter2=,r=x", b"hunter2", b"n,,hunter2,r=x", b"n,,n=u,r=x,hunter2", b"\xffhunter2"):
        with pytest.raises(ScramMessageError) as refused:
            parse_client_first(data)
        assert "hunter2" not in str(refused.value)
