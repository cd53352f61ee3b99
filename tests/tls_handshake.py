"""A TLS handshake in memory with a broker that has the certificates of the tests."""

import ssl
from pathlib import Path

CERTIFICATES = Path(__file__).parent / "certificates"


def handshake(context, name="broker", *, wants_certificate=False, newest=None):
    """The name on the client's certificate, None without one."""
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(CERTIFICATES / "broker.pem", CERTIFICATES / "broker.key")
    if newest is not None:
        server_context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        server_context.maximum_version = newest
    if wants_certificate:
        server_context.load_verify_locations(CERTIFICATES / "ca.pem")
        server_context.verify_mode = ssl.CERT_REQUIRED
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server, server_hostname=name)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    done = set()
    for _ in range(6):
        for side in (client, server):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                pass
    assert done == {client, server}
    shown = server.getpeercert()
    return dict(part[0] for part in shown["subject"])["commonName"] if shown else None
