"""`semel tls init`: an authority and certificates for a small cluster, for tests and laptops."""

from __future__ import annotations

import argparse
import datetime
import ipaddress
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semel.cli.failures import Exit, WrongCall
from semel.cli.output import Output, add_output_arguments

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_EXAMPLES = """For tests, laptops and small clusters: where there is an authority already, let it make the certificates.

examples:
  semel tls init ./tls
  semel tls init ./tls --host node-1.example --host 10.0.0.5 --client reports
"""
_INSTALL = "semel tls needs the package cryptography: pip install 'semel[security]'"
_AUTHORITY = "ca"


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.epilog = _EXAMPLES
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    init = actions.add_parser(
        "init",
        help="make an authority and certificates",
        description="Make an authority, a certificate for nodes, and one for each client. An authority that is in the "
        "directory already is used again; nothing that is there is written over.",
        epilog=_EXAMPLES,
    )
    init.add_argument("directory", metavar="DIR", help="where the files go; made if it is not there")
    init.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name or an address of a node; may be repeated (default: localhost, 127.0.0.1 and ::1)",
    )
    init.add_argument(
        "--client", action="append", default=[], metavar="NAME", help="a certificate for this client; may be repeated"
    )
    init.add_argument("--days", type=int, default=365, metavar="N", help="how long they are valid (default 365)")
    add_output_arguments(init)
    init.set_defaults(run=_init)


def _init(options: argparse.Namespace) -> int:
    output = Output.of(options)
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise WrongCall(_INSTALL) from None
    if options.days < 1:
        raise WrongCall("--days is at least 1")
    for name in options.client:
        if not name or "/" in name or name in (_AUTHORITY, "node"):
            raise WrongCall(f"--client {name!r} cannot be the name of a file here")
    directory = Path(options.directory)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    hosts = options.host or ["localhost", "127.0.0.1", "::1"]
    written = [f"{name}.pem" for name in _made(directory, hosts, options.client, options.days)]
    if output.is_json:
        output.json({"directory": str(directory), "written": written})
    else:
        output.note(f"in {directory}: " + (", ".join(written) or "everything was there already"))
    return Exit.OK


def _made(directory: Path, hosts: list[str], clients: list[str], days: int) -> list[str]:
    """The names of the files that are new. A file holds a certificate and then its key; that of the authority is
    aside, so that the file can be given to everyone."""
    from cryptography.x509.oid import ExtendedKeyUsageOID

    made = []
    if not (directory / "ca.pem").exists():
        key = _new_key()
        certificate = _certificate("semel authority", key, None, days=max(days, 3650), hosts=(), usage=None)
        _write(directory / "ca.key", _key_pem(key))
        _write(directory / "ca.pem", _pem(certificate))
        made.append(_AUTHORITY)
    authority = _authority(directory)
    wanted: list[tuple[str, list[str], x509.ObjectIdentifier]] = [("node", hosts, ExtendedKeyUsageOID.SERVER_AUTH)]
    wanted += [(name, [], ExtendedKeyUsageOID.CLIENT_AUTH) for name in clients]
    for name, names, usage in wanted:
        if (directory / f"{name}.pem").exists():
            continue
        key = _new_key()
        certificate = _certificate(name, key, authority, days=days, hosts=names, usage=usage)
        _write(directory / f"{name}.pem", _pem(certificate) + _key_pem(key))
        made.append(name)
    return made


def _authority(directory: Path) -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key((directory / "ca.key").read_bytes(), None)
        certificate = x509.load_pem_x509_certificate((directory / "ca.pem").read_bytes())
    except (OSError, ValueError, TypeError) as error:
        raise WrongCall(f"the authority in {directory} cannot be used: {error}") from error
    if not isinstance(key, EllipticCurvePrivateKey):
        raise WrongCall(f"the key in {directory}/ca.key is not one that `semel tls init` has made")
    return certificate, key


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _certificate(
    name: str,
    key: EllipticCurvePrivateKey,
    authority: tuple[x509.Certificate, EllipticCurvePrivateKey] | None,
    *,
    days: int,
    hosts: list[str] | tuple[()],
    usage: x509.ObjectIdentifier | None,
) -> x509.Certificate:
    """Without an authority it is one itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    is_authority = authority is None
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if authority is None else authority[0].subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True)
        .add_extension(_key_usage(is_authority), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if authority is not None:
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority[1].public_key())
        builder = builder.add_extension(issuer, critical=False)
    if usage is not None:
        # A node is a client of the others, too.
        usages = [usage] if usage == ExtendedKeyUsageOID.CLIENT_AUTH else [usage, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_name(host) for host in hosts]), critical=False)
    return builder.sign(key if authority is None else authority[1], hashes.SHA256())


def _key_usage(is_authority: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    found: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return found


def _write(path: Path, data: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
