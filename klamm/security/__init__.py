"""TLS, SASL, and the principal that a certificate stands for, for clients and servers alike (KIP-651, KIP-371).

Modules, each using only those after it: `dev_files`, `dev_certificates` | `contexts` | `certificate_facts` | `reload` |
`token_endpoint`, `material` | `client_settings`, `tls_settings`, `principal_rules` | `distinguished_name` | `sasl`.
`cryptography` and `re2` are the extra `security`; they are loaded when a connection with TLS is made, never by an
import of this package.
"""
