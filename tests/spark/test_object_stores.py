"""Stores as the session describes them: Hadoop's settings for pyarrow, and what is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from semel.client.errors import BadSetting
from semel.spark.object_stores import hadoop_settings, open_store
from semel.spark.session_facts import SessionFacts


class Opened:
    """In place of a class of pyarrow: keeps what it was made with."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.arguments = {**dict(enumerate(args)), **kwargs}


@pytest.fixture(autouse=True)
def stores(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("S3FileSystem", "GcsFileSystem", "AzureFileSystem", "HadoopFileSystem"):
        monkeypatch.setattr(fs, name, Opened, raising=False)


def opened(uri: str, **conf: str) -> tuple[dict[Any, Any], str]:
    system, path = open_store(uri, hadoop_settings({f"spark.hadoop.{name}": text for name, text in conf.items()}))
    assert isinstance(system, Opened)
    return system.arguments, path


def refusal(uri: str, **conf: str) -> str:
    with pytest.raises(BadSetting) as caught:
        opened(uri, **conf)
    return str(caught.value)


KEYS = {"fs.s3a.access.key": "me", "fs.s3a.secret.key": "mine"}
BY_KEYS = {"access_key": "me", "secret_key": "mine"}
PROVIDER = "fs.s3a.aws.credentials.provider"
LOCAL = {"endpoint_override": "minio:9000", "scheme": "http", "region": "us-east-1"}


@pytest.mark.parametrize(
    ("conf", "arguments"),
    [
        (KEYS, BY_KEYS),
        ({**KEYS, "fs.s3a.session.token": "t"}, {**BY_KEYS, "session_token": "t"}),
        ({**KEYS, "fs.s3a.endpoint": "http://minio:9000/"}, {**BY_KEYS, **LOCAL}),
        ({**KEYS, "fs.s3a.endpoint": "minio:9000", "fs.s3a.connection.ssl.enabled": "false"}, {**BY_KEYS, **LOCAL}),
        (
            {**KEYS, "fs.s3a.endpoint": "http://minio:9000", "fs.s3a.path.style.access": "false"},
            {**BY_KEYS, **LOCAL, "force_virtual_addressing": True},
        ),
        ({**KEYS, "fs.s3a.endpoint.region": "eu-west-1"}, {**BY_KEYS, "region": "eu-west-1"}),
        ({**KEYS, "fs.s3a.endpoint": "s3.amazonaws.com"}, BY_KEYS),
        ({**KEYS, "fs.s3a.bucket.lake.access.key": "other"}, {"access_key": "other", "secret_key": "mine"}),
        ({**KEYS, "fs.s3a.bucket.pond.access.key": "other"}, BY_KEYS),
        ({PROVIDER: "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"}, {"anonymous": True}),
        ({**KEYS, PROVIDER: "com.amazonaws.auth.EnvironmentVariableCredentialsProvider"}, {}),
        (
            {
                PROVIDER: "org.apache.hadoop.fs.s3a.auth.AssumedRoleCredentialProvider",
                "fs.s3a.assumed.role.arn": "arn:role",
                "fs.s3a.assumed.role.session.name": "here",
            },
            {"role_arn": "arn:role", "session_name": "here"},
        ),
        (
            {**KEYS, "fs.s3a.proxy.host": "out", "fs.s3a.proxy.port": "3128", "fs.s3a.proxy.username": "u"},
            {**BY_KEYS, "proxy_options": {"scheme": "http", "host": "out", "port": 3128, "username": "u"}},
        ),
        ({**KEYS, "fs.s3a.threads.max": "64", "fs.s3a.encryption.algorithm": "AES256"}, BY_KEYS),
    ],
)
def test_settings_of_s3a_are_those_of_the_sink(conf: dict[str, str], arguments: dict[str, Any]) -> None:
    assert opened("s3a://lake/a%20b/c", **conf) == (arguments, "lake/a b/c")


@pytest.mark.parametrize(
    ("uri", "conf", "sentence"),
    [
        ("s3://b", {"fs.s3a.encryption.algorithm": "SSE-KMS"}, "spark.hadoop.fs.s3a.encryption.algorithm: pyarrow.fs"),
        ("s3://b", {PROVIDER: "com.corp.Vault"}, "com.corp.Vault is a Java class"),
        ("s3://b", {"fs.s3a.access.key": "me"}, "spark.hadoop.fs.s3a.secret.key is missing"),
        ("s3://b", {**KEYS, "hadoop.security.credential.provider.path": "jceks://x"}, "credential files of Hadoop"),
        ("s3://b", {**KEYS, "fs.s3a.delegation.token.binding": "x"}, "fs.s3a.delegation.token.binding: delegation"),
        ("gs://b", {"fs.gs.auth.type": "USER_CREDENTIALS"}, "cannot log in by USER_CREDENTIALS"),
        ("gs://b", {"fs.gs.auth.service.account.json.keyfile": "/no/such"}, "there is no file /no/such"),
        ("abfss://c/p", {"fs.azure.account.key": "k"}, "the account is missing; expected is abfss://CONTAINER@ACCOUNT"),
        ("abfss://c@a.dfs.core.windows.net/p", {"fs.azure.account.auth.type": "Custom"}, "cannot log in by Custom"),
        (
            "abfss://c@a.dfs.core.windows.net/p",
            {"fs.azure.account.auth.type": "OAuth", "fs.azure.account.oauth.provider.type": "x.UserPasswords"},
            "UserPasswords is a Java class",
        ),
    ],
)  # fmt: skip
def test_what_pyarrow_cannot_do_is_refused_by_name(uri: str, conf: dict[str, str], sentence: str) -> None:
    assert sentence in refusal(uri, **conf)


def test_google_cloud_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    key = tmp_path / "key.json"
    key.touch()
    conf = {"fs.gs.auth.service.account.json.keyfile": str(key), "fs.gs.project.id": "p"}
    assert opened("gs://lake/a", **conf) == ({"project_id": "p"}, "lake/a")
    (tmp_path / "other.json").touch()
    conf["fs.gs.auth.service.account.json.keyfile"] = str(tmp_path / "other.json")
    assert f"GOOGLE_APPLICATION_CREDENTIALS is {key}" in refusal("gs://lake/a", **conf)
    conf = {"fs.gs.auth.type": "UNAUTHENTICATED", "fs.gs.storage.root.url": "http://127.0.0.1:4443/"}
    expected = {"anonymous": True, "endpoint_override": "127.0.0.1:4443", "scheme": "http"}
    assert opened("gs://lake/a", **conf) == (expected, "lake/a")


@pytest.mark.parametrize(
    ("conf", "arguments"),
    [
        ({"fs.azure.account.key.acc.dfs.core.windows.net": "k"}, {"account_key": "k"}),
        ({"fs.azure.account.auth.type": "SAS", "fs.azure.sas.fixed.token": "t"}, {"sas_token": "t"}),
        (
            {
                "fs.azure.account.auth.type.acc.dfs.core.windows.net": "OAuth",
                "fs.azure.account.oauth.provider.type": "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider",
                "fs.azure.account.oauth2.client.id": "i",
                "fs.azure.account.oauth2.client.secret": "s",
                "fs.azure.account.oauth2.client.endpoint": "https://login.microsoftonline.com/ten/oauth2/token",
            },
            {"client_id": "i", "client_secret": "s", "tenant_id": "ten"},
        ),
        (
            {
                "fs.azure.account.auth.type": "OAuth",
                "fs.azure.account.oauth.provider.type": "org.apache.hadoop.fs.azurebfs.oauth2.MsiTokenProvider",
            },
            {},
        ),
    ],
)
def test_azure(conf: dict[str, str], arguments: dict[str, str]) -> None:
    found = opened("abfss://lake@acc.dfs.core.windows.net/a/b", **conf)
    assert found == ({"account_name": "acc", **arguments}, "lake/a/b")


def test_hdfs() -> None:
    given = {"dfs.nameservices": "prod", "dfs.ha.namenodes.prod": "one,two"}
    assert opened("hdfs://prod/a", **given) == ({0: "prod", 1: 0, "user": None, "extra_conf": given}, "/a")
    found, path = opened("hdfs://me@name:9000/a", **{"dfs.replication": "2"})
    assert (found[0], found[1], found["user"], path) == ("name", 9000, "me", "/a")


def test_secrets_of_a_session_are_not_shown() -> None:
    facts = SessionFacts.of({"spark.hadoop.fs.s3a.secret.key": "mine", "spark.master": "local[2]", "spark.x": "y"})
    assert facts.hadoop == (("fs.s3a.secret.key", "mine"),)
    assert "mine" not in repr(facts)
