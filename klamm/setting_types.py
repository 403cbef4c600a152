"""The settings of every client, as keyword arguments. Written by `python -m tools.setting_types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

from klamm.security.client_settings import TokenCallback


class ClientSettings(TypedDict, total=False):
    """The settings of every client, by names with underscores. Each may be left out."""

    ssl_keystore_type: str
    """The format of the key and its certificates. Only PEM is possible. Default: PEM. Name in a mapping:
    `ssl.keystore.type`."""
    ssl_keystore_location: str | None
    """A PEM file with the private key and its certificate chain. The key's own certificate comes first. Only the file's
    owner and group may have the right to read it. Not set by default. Name in a mapping: `ssl.keystore.location`."""
    ssl_keystore_key: str | None
    """The private key as PEM text, instead of a file. Set it together with ssl.keystore.certificate.chain. Not set by
    default. Name in a mapping: `ssl.keystore.key`."""
    ssl_keystore_certificate_chain: str | None
    """The certificate chain of the key as PEM text. The key's own certificate comes first. Set it together with
    ssl.keystore.key. Not set by default. Name in a mapping: `ssl.keystore.certificate.chain`."""
    ssl_key_password: str | None
    """The password of the private key, if the key is encrypted. Not set by default. Name in a mapping:
    `ssl.key.password`."""
    ssl_truststore_type: str
    """The format of the trusted certificates. Only PEM is possible. Default: PEM. Name in a mapping:
    `ssl.truststore.type`."""
    ssl_truststore_location: str | None
    """A PEM file with the certificates of the trusted CAs. Without one, clients trust public CAs. Not set by default.
    Name in a mapping: `ssl.truststore.location`."""
    ssl_truststore_certificates: str | None
    """The certificates of the trusted CAs as PEM text, instead of a file. Not set by default. Name in a mapping:
    `ssl.truststore.certificates`."""
    ssl_enabled_protocols: str | Sequence[str]
    """The enabled versions of TLS. gRPC always enables both. Default: TLSv1.2,TLSv1.3. Name in a mapping:
    `ssl.enabled.protocols`."""
    ssl_cipher_suites: str | Sequence[str]
    """The cipher suites of TLS 1.2. Empty: all valid suites. With gRPC it must be empty, because gRPC chooses the
    suites itself. Not set by default. Name in a mapping: `ssl.cipher.suites`."""
    ssl_endpoint_identification_algorithm: str
    """How a client verifies that a server's certificate names the host to which the client connects. It is always
    https. Default: https. Name in a mapping: `ssl.endpoint.identification.algorithm`."""
    ssl_reload_interval_ms: int
    """How often the files with keys and certificates are checked for changes. In milliseconds. Default: 10000. Name in
    a mapping: `ssl.reload.interval.ms`."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    """Whether connections are encrypted (SSL, SASL_SSL) and whether the client logs in (SASL_PLAINTEXT, SASL_SSL). With
    encryption, the client presents the certificate in ssl.keystore.*, if there is one. The settings sasl.* define the
    login. Default: PLAINTEXT. Name in a mapping: `security.protocol`."""
    sasl_mechanism: Literal["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"] | None
    """The mechanism by which the client logs in if security.protocol is SASL_PLAINTEXT or SASL_SSL. Not set by default.
    Name in a mapping: `sasl.mechanism`."""
    sasl_jaas_config: str | None
    """The login module of the mechanism with its options, as in Kafka's clients:
    org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="b"; The client reads the
    options and loads no class. Not set by default. Name in a mapping: `sasl.jaas.config`."""
    sasl_username: str | None
    """The user of SCRAM or PLAIN. Set it together with sasl.password or sasl.password.file, instead of
    sasl.jaas.config. Not set by default. Name in a mapping: `sasl.username`."""
    sasl_password: str | None
    """The user's password. Not set by default. Name in a mapping: `sasl.password`."""
    sasl_password_file: str | None
    """A file whose first line is the user's password. The client reads it for each login. Only the file's owner and
    group may have the right to read it. Klamm's own setting; Kafka has none. Not set by default. Name in a mapping:
    `sasl.password.file`."""
    sasl_oauthbearer_token_endpoint_url: str | None
    """The URL where the client gets an OAUTHBEARER token for its client credentials (RFC 6749, 4.4). The environment
    variable KLAMM_OAUTHBEARER_ALLOWED_URLS must contain it. Separate its URLs by commas. Not set by default. Name in a
    mapping: `sasl.oauthbearer.token.endpoint.url`."""
    sasl_oauthbearer_client_credentials_client_id: str | None
    """The client's id at sasl.oauthbearer.token.endpoint.url. It is the same as clientId in sasl.jaas.config. Not set
    by default. Name in a mapping: `sasl.oauthbearer.client.credentials.client.id`."""
    sasl_oauthbearer_client_credentials_client_secret: str | None
    """The client's secret at sasl.oauthbearer.token.endpoint.url. It is the same as clientSecret in sasl.jaas.config.
    Not set by default. Name in a mapping: `sasl.oauthbearer.client.credentials.client.secret`."""
    sasl_oauthbearer_scope: str | None
    """The scope that the client requests for its token. It is the same as scope in sasl.jaas.config. Not set by
    default. Name in a mapping: `sasl.oauthbearer.scope`."""
    sasl_oauthbearer_token_callback: TokenCallback | None
    """A function without arguments that returns an OAUTHBEARER token, instead of a URL. The client calls it in its own
    thread for each login. It can only be set in code. Klamm's own setting; Kafka has none. Not set by default. Name in
    a mapping: `sasl.oauthbearer.token.callback`."""
    sasl_login_callback_handler_class: (
        Literal[
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
            "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
        ]
        | None
    )
    """Accepted because configurations of Kafka contain it; it has no effect. Only Kafka's own handlers for OAUTHBEARER
    are possible. Not set by default. Name in a mapping: `sasl.login.callback.handler.class`."""
    sasl_login_connect_timeout_ms: int
    """How long it may take to connect to the server that issues tokens, and to receive each part of its response. In
    milliseconds. Default: 10000. Name in a mapping: `sasl.login.connect.timeout.ms`."""
    bootstrap_servers: str | Sequence[str]
    """The brokers that the client contacts first, as host:port. One live broker is enough. Default: localhost:9094.
    Name in a mapping: `bootstrap.servers`."""
    client_id: str
    """Names this client in the servers' logs and quotas. Default: klamm. Name in a mapping: `client.id`."""
    client_rack: str
    """The rack of this client, or a path of failure domains as dc1/host7. A consumer reads from a replica on a broker
    with the same broker.rack, or else with the most levels of the path in common (KIP-392). Not set by default. Name in
    a mapping: `client.rack`."""
    request_timeout_ms: int
    """How long one request may take. In milliseconds. Default: 30000. Name in a mapping: `request.timeout.ms`."""
    default_api_timeout_ms: int
    """How long an API call without its own timeout may take, including retries. In milliseconds. Default: 60000. Name
    in a mapping: `default.api.timeout.ms`."""
    retry_backoff_ms: int
    """The wait before the first retry. It doubles with each further retry (KIP-580). In milliseconds. Default: 100.
    Name in a mapping: `retry.backoff.ms`."""
    retry_backoff_max_ms: int
    """The longest wait before a retry. In milliseconds. Default: 1000. Name in a mapping: `retry.backoff.max.ms`."""
    reconnect_backoff_ms: int
    """The wait before the first attempt to reconnect. It grows with each further attempt. In milliseconds. Default: 50.
    Name in a mapping: `reconnect.backoff.ms`."""
    reconnect_backoff_max_ms: int
    """The longest wait before an attempt to reconnect. In milliseconds. Default: 1000. Name in a mapping:
    `reconnect.backoff.max.ms`."""
    socket_connection_setup_timeout_ms: int
    """How long an attempt to connect to a server may take. In milliseconds. Default: 10000. Name in a mapping:
    `socket.connection.setup.timeout.ms`."""
    metadata_max_age_ms: int
    """The client refreshes its metadata after this time, even if no error requires it. In milliseconds. Default:
    300000. Name in a mapping: `metadata.max.age.ms`."""
    receive_message_max_bytes: int
    """The client rejects a response that is larger than this (librdkafka's receive.message.max.bytes). Default:
    100000000. Name in a mapping: `receive.message.max.bytes`."""
    tracing_enable: bool
    """Whether the client exports its calls as OpenTelemetry spans. See klamm/tracing.py. Default: false. Name in a
    mapping: `tracing.enable`."""
