"""Object stores and HDFS as the Spark session describes them: Hadoop's settings, for pyarrow.fs.

A program tells Spark once where its store is and who it is there, by `spark.hadoop.fs.s3a.*` and the like. The sink
opens the same places by pyarrow, so the same settings count for it. What pyarrow cannot do is refused by name before
anything is opened: without it, data would go elsewhere, or be stored less safely than was asked for. Settings that only
tune Hadoop's own client are passed over.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

from semel.client.errors import BadSetting

if TYPE_CHECKING:
    from pyarrow import fs

Hadoop: TypeAlias = tuple[tuple[str, str], ...]
"""Settings of Hadoop by name, sorted: hashable, so that what was opened by them can be kept. They may hold secrets."""

PREFIX = "spark.hadoop."
_OURS = re.compile(r"(fs\.s3a\.|fs\.gs\.|google\.cloud\.|fs\.azure\.|fs\.defaultFS$|dfs\.|hadoop\.security\.)")
_AS_ARROW_CALLS_IT = {"s3a": "s3", "s3n": "s3", "wasb": "abfs", "wasbs": "abfss", "gcs": "gs"}
_JCEKS = "hadoop.security.credential.provider.path"
_INSTEAD = "set stagingLocation and checkpointLocation to places that pyarrow.fs can open"


def hadoop_settings(conf: Mapping[str, str]) -> Hadoop:
    """Those of a session's settings that say how file systems are opened."""
    names = {name: name.removeprefix(PREFIX) for name in conf if name.startswith(PREFIX)}
    return tuple(sorted((short, conf[name]) for name, short in names.items() if _OURS.match(short)))


def arrow_scheme(scheme: str) -> str:
    return _AS_ARROW_CALLS_IT.get(scheme, scheme)


def open_store(uri: str, hadoop: Hadoop) -> tuple[fs.FileSystem, str]:
    """The file system of a URI, and the path in it. Raises BadSetting."""
    given = dict(hadoop)
    scheme = arrow_scheme(urlsplit(uri).scheme)
    if _JCEKS in given and scheme != "file":
        raise _refused(_JCEKS, "credential files of Hadoop can only be read by Java")
    opened = _OPENERS.get(scheme)
    if opened is not None and _is_described(scheme, given):
        return opened(uri, given)
    from pyarrow import fs

    return fs.FileSystem.from_uri(uri)  # type: ignore[no-any-return]


def _is_described(scheme: str, given: Mapping[str, str]) -> bool:
    beginnings = _BEGINNINGS[scheme]
    return any(name.startswith(beginnings) for name in given)


def _refused(name: str, why: str) -> BadSetting:
    return BadSetting(f"{PREFIX}{name}: {why}: {_INSTEAD}")


def _is_true(text: str | None) -> bool:
    return (text or "").strip().lower() == "true"


# -- S3

_DEFAULT_CHAIN = frozenset(
    {
        "EnvironmentVariableCredentialsProvider",
        "InstanceProfileCredentialsProvider",
        "IAMInstanceCredentialsProvider",
        "ContainerCredentialsProvider",
        "EC2ContainerCredentialsProviderWrapper",
        "WebIdentityTokenCredentialsProvider",
        "WebIdentityTokenFileCredentialsProvider",
        "ProfileCredentialsProvider",
        "DefaultCredentialsProvider",
        "DefaultAWSCredentialsProviderChain",
    }
)
_BY_KEYS = frozenset({"SimpleAWSCredentialsProvider", "TemporaryAWSCredentialsProvider"})
_ANONYMOUS, _ROLE = "AnonymousAWSCredentialsProvider", "AssumedRoleCredentialProvider"
_S3_REFUSED = {
    "security.credential.provider.path": "credential files of Hadoop can only be read by Java",
    "delegation.token.binding": "delegation tokens of Hadoop can only be read by Java",
    "custom.signers": "signers are Java classes",
    "signing-algorithm": "signers are Java classes",
    "encryption.key": "pyarrow.fs cannot encrypt with a key of its own: have the bucket encrypt by default",
    "server-side-encryption.key": "pyarrow.fs cannot encrypt with a key of its own: have the bucket encrypt by default",
    "proxy.domain": "pyarrow.fs cannot log in at a proxy by NTLM",
    "accesspoint.arn": "give the access point's alias as the bucket",
}
_S3_PARAMETERS = ("region", "scheme", "endpoint_override")
_ENCRYPTIONS = ("encryption.algorithm", "server-side-encryption-algorithm")


def _s3(uri: str, given: Mapping[str, str]) -> tuple[fs.FileSystem, str]:
    parts = urlsplit(uri)
    bucket = parts.netloc.rpartition("@")[2]
    settings = _of_bucket(given, bucket)
    for name, why in _S3_REFUSED.items():
        if settings.get(name, "").strip():
            raise _refused(f"fs.s3a.{name}", why)
    for name in _ENCRYPTIONS:
        if settings.get(name, "").strip().upper() not in ("", "AES256"):
            why = f"pyarrow.fs cannot ask for {settings[name]}: have the bucket encrypt by default"
            raise _refused(f"fs.s3a.{name}", why)
    arguments = {**_s3_endpoint(settings), **_s3_identity(settings), **_s3_proxy(settings)}
    # What pyarrow itself takes in a URI wins, as it is nearer.
    arguments |= {name: value for name, value in parse_qsl(parts.query) if name in _S3_PARAMETERS}
    from pyarrow import fs

    return fs.S3FileSystem(**arguments), f"{bucket}{unquote(parts.path)}"


def _of_bucket(given: Mapping[str, str], bucket: str) -> dict[str, str]:
    """Settings without `fs.s3a.`; those of the bucket win over those of all."""
    prefix, own = "fs.s3a.", f"fs.s3a.bucket.{bucket}."
    settings = {name.removeprefix(prefix): text for name, text in given.items() if name.startswith(prefix)}
    return settings | {name.removeprefix(own): text for name, text in given.items() if name.startswith(own)}


def _s3_endpoint(settings: Mapping[str, str]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    scheme, _, address = settings.get("endpoint", "").strip().rpartition("://")
    if not scheme and settings.get("connection.ssl.enabled", "true").strip().lower() == "false":
        scheme = "http"
    if address and address.strip("/") not in ("s3.amazonaws.com", "central"):
        arguments["endpoint_override"] = address.strip("/")
        # Hadoop names the bucket in the host unless it is told not to; pyarrow does not where an endpoint is given.
        if settings.get("path.style.access", "").strip().lower() == "false":
            arguments["force_virtual_addressing"] = True
    if scheme:
        arguments["scheme"] = scheme.lower()
    region = settings.get("endpoint.region", "").strip()
    if region or "endpoint_override" in arguments:
        # Without one the SDK would ask the network, for seconds.
        arguments["region"] = region or "us-east-1"
    return arguments


def _s3_identity(settings: Mapping[str, str]) -> dict[str, Any]:
    keys = {
        argument: settings[name].strip()
        for name, argument in (
            ("access.key", "access_key"),
            ("secret.key", "secret_key"),
            ("session.token", "session_token"),
        )
        if settings.get(name, "").strip()
    }
    named = re.split(r"[\s,]+", settings.get("aws.credentials.provider", "").strip())
    providers = [name.rpartition(".")[2].rpartition("$")[2] for name in named if name]
    for full_name, name in zip(filter(None, named), providers, strict=True):
        if name not in _DEFAULT_CHAIN | _BY_KEYS | {_ANONYMOUS, _ROLE}:
            raise _refused("fs.s3a.aws.credentials.provider", f"{full_name} is a Java class that pyarrow.fs cannot use")
    if _ROLE in providers:
        role = {
            "role_arn": settings.get("assumed.role.arn"),
            "session_name": settings.get("assumed.role.session.name"),
            "external_id": settings.get("assumed.role.external.id"),
        }
        return {name: text.strip() for name, text in role.items() if text}
    if providers and not set(providers) & _BY_KEYS:
        return {"anonymous": True} if providers == [_ANONYMOUS] else {}
    if keys.keys() == {"access_key"} or keys.keys() == {"secret_key"}:
        missing = "secret.key" if "access_key" in keys else "access.key"
        raise BadSetting(f"{PREFIX}fs.s3a.{missing} is missing: it goes with the other key")
    if not keys and _ANONYMOUS in providers:
        return {"anonymous": True}
    return keys


def _s3_proxy(settings: Mapping[str, str]) -> dict[str, Any]:
    host = settings.get("proxy.host", "").strip()
    if not host:
        return {}
    is_secure = _is_true(settings.get("proxy.ssl.enabled"))
    proxy: dict[str, Any] = {
        "scheme": "https" if is_secure else "http",
        "host": host,
        "port": int(settings.get("proxy.port", "443" if is_secure else "80")),
    }
    for name in ("username", "password"):
        if settings.get(f"proxy.{name}"):
            proxy[name] = settings[f"proxy.{name}"]
    return {"proxy_options": proxy}


# -- Google Cloud Storage

_KEY_FILES = ("fs.gs.auth.service.account.json.keyfile", "google.cloud.auth.service.account.json.keyfile")
_GS_AUTH = frozenset({"APPLICATION_DEFAULT", "COMPUTE_ENGINE", "SERVICE_ACCOUNT_JSON_KEYFILE", "UNAUTHENTICATED"})
_GS_REFUSED = {
    "fs.gs.encryption.key": "pyarrow.fs cannot encrypt with a key of its own",
    "fs.gs.auth.service.account.keyfile": "PKCS12 files cannot be read: give a JSON file",
    "fs.gs.auth.access.token.provider": "it is a Java class",
    "fs.gs.auth.access.token.provider.impl": "it is a Java class",
    "fs.gs.auth.service.account.private.key": "give a JSON file by fs.gs.auth.service.account.json.keyfile",
}
_GOOGLE_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"


def _gs(uri: str, given: Mapping[str, str]) -> tuple[fs.FileSystem, str]:
    for name, why in _GS_REFUSED.items():
        if given.get(name, "").strip():
            raise _refused(name, why)
    kind = given.get("fs.gs.auth.type", "").strip().upper()
    if kind and kind not in _GS_AUTH:
        raise _refused("fs.gs.auth.type", f"pyarrow.fs cannot log in by {kind}")
    arguments: dict[str, Any] = {}
    scheme, _, address = given.get("fs.gs.storage.root.url", "").strip().strip("/").rpartition("://")
    if address and address != "storage.googleapis.com":
        arguments["endpoint_override"] = address
        arguments["scheme"] = scheme or "https"
    if given.get("fs.gs.project.id", "").strip():
        arguments["project_id"] = given["fs.gs.project.id"].strip()
    if given.get("fs.gs.auth.impersonation.service.account", "").strip():
        arguments["target_service_account"] = given["fs.gs.auth.impersonation.service.account"].strip()
    if kind == "UNAUTHENTICATED" or given.get("fs.gs.auth.null.enable", "").strip().lower() == "true":
        arguments["anonymous"] = True
    else:
        _use_key_file(given)
    from pyarrow import fs

    parts = urlsplit(uri)
    return fs.GcsFileSystem(**arguments), f"{parts.netloc}{unquote(parts.path)}"


def _use_key_file(given: Mapping[str, str]) -> None:
    """pyarrow takes a key file by the variable that all of Google's clients know, and by nothing else."""
    name = next((one for one in _KEY_FILES if given.get(one, "").strip()), None)
    if name is None:
        return
    file = given[name].strip()
    if not os.path.isfile(file):
        raise BadSetting(f"{PREFIX}{name}: there is no file {file} on this machine: driver and executors need it")
    known = os.environ.setdefault(_GOOGLE_VARIABLE, file)
    if known != file:
        raise BadSetting(f"{PREFIX}{name} is {file}, but {_GOOGLE_VARIABLE} is {known}: unset one of them")


# -- Azure

_AZURE_HOST = re.compile(r"(?P<account>[a-z0-9-]+)\.(?:dfs|blob)\.(?P<authority>.+)")
_CLIENT_SECRET, _MANAGED = "ClientCredsTokenProvider", frozenset({"MsiTokenProvider", "WorkloadIdentityTokenProvider"})


def _abfs(uri: str, given: Mapping[str, str]) -> tuple[fs.FileSystem, str]:
    parts = urlsplit(uri)
    container, _, host = parts.netloc.partition("@")
    found = _AZURE_HOST.fullmatch(host.lower())
    if found is None:
        expected = f"{parts.scheme}://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"
        raise BadSetting(f"{uri}: the account is missing; expected is {expected}")
    account = found["account"]

    def told(name: str) -> tuple[str, str]:
        """A setting for this account or for all, and its full name."""
        for full_name in (f"{name}.{host}", f"{name}.{account}", name):
            if given.get(full_name, "").strip():
                return given[full_name].strip(), full_name
        return "", name

    arguments: dict[str, Any] = {"account_name": account}
    if found["authority"] != "core.windows.net":
        arguments["blob_storage_authority"] = f".blob.{found['authority']}"
        arguments["dfs_storage_authority"] = f".dfs.{found['authority']}"
    arguments |= _azure_identity(told)
    from pyarrow import fs

    return fs.AzureFileSystem(**arguments), f"{container}{unquote(parts.path)}"


def _azure_identity(told: Callable[[str], tuple[str, str]]) -> dict[str, str]:
    key, _ = told("fs.azure.account.key")
    kind, kind_name = told("fs.azure.account.auth.type")
    if kind.lower() in ("", "sharedkey"):
        return {"account_key": key} if key else {}
    if kind.lower() == "sas":
        token, name = told("fs.azure.sas.fixed.token")
        if not token:
            raise _refused(name, "SAS tokens are given as they are; providers of tokens are Java classes")
        return {"sas_token": token}
    if kind.lower() != "oauth":
        raise _refused(kind_name, f"pyarrow.fs cannot log in by {kind}")
    provider, provider_name = told("fs.azure.account.oauth.provider.type")
    provider = provider.rpartition(".")[2]
    client_id, _ = told("fs.azure.account.oauth2.client.id")
    if provider in _MANAGED:
        return {"client_id": client_id} if client_id else {}
    if provider != _CLIENT_SECRET:
        raise _refused(provider_name, f"{provider or 'nothing'} is a Java class that pyarrow.fs cannot use")
    secret, _ = told("fs.azure.account.oauth2.client.secret")
    endpoint, endpoint_name = told("fs.azure.account.oauth2.client.endpoint")
    tenant = urlsplit(endpoint).path.strip("/").partition("/")[0]
    if not tenant or urlsplit(endpoint).netloc != "login.microsoftonline.com":
        raise _refused(endpoint_name, f"{endpoint!r} names no tenant of login.microsoftonline.com")
    return {"client_id": client_id, "client_secret": secret, "tenant_id": tenant}


# -- HDFS


def _hdfs(uri: str, given: Mapping[str, str]) -> tuple[fs.FileSystem, str]:
    from pyarrow import fs

    parts = urlsplit(uri)
    host = parts.hostname or ("default" if "fs.defaultFS" not in given else urlsplit(given["fs.defaultFS"]).hostname)
    is_service = host in given.get("dfs.nameservices", "").split(",")
    port = parts.port or (0 if is_service or host == "default" else 8020)
    extra = {name: text for name, text in given.items() if name.startswith(("dfs.", "hadoop.security."))}
    return fs.HadoopFileSystem(host, port, user=parts.username, extra_conf=extra or None), unquote(parts.path)


_BEGINNINGS: dict[str, tuple[str, ...]] = {
    "s3": ("fs.s3a.",),
    "gs": ("fs.gs.", "google.cloud."),
    "abfs": ("fs.azure.",),
    "abfss": ("fs.azure.",),
    "hdfs": ("dfs.", "fs.defaultFS"),
}
_OPENERS: dict[str, Callable[[str, Mapping[str, str]], tuple[Any, str]]] = {
    "s3": _s3,
    "gs": _gs,
    "abfs": _abfs,
    "abfss": _abfs,
    "hdfs": _hdfs,
}
