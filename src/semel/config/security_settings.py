"""Settings of logins, certificates and permissions. Names, types and defaults are Kafka's."""

from __future__ import annotations

from semel.config.settings import Form, Kind, Setting

BOOLEAN, STRING, INT, LONG, LIST, CLASS, PASSWORD = (
    Kind.BOOLEAN,
    Kind.STRING,
    Kind.INT,
    Kind.LONG,
    Kind.LIST,
    Kind.CLASS,
    Kind.PASSWORD,
)

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def parse_principals(text: str) -> tuple[str, ...]:
    """`User:admin;User:kafka`, as super.users has them."""
    return tuple(part.strip() for part in text.split(";") if part.strip())


def _are_principals(text: str) -> bool:
    return all(kind and colon and name for kind, colon, name in (one.partition(":") for one in parse_principals(text)))


# fmt: off
SECURITY = [
    Setting("authorizer.class.name", CLASS, "",
            "Who may do what: nobody asks if this is empty; with Kafka's class the access rules (ACLs) of the cluster "
            "decide.", choices=("", STANDARD_AUTHORIZER)),
    Setting("super.users", STRING, "",
            "Principals that may do everything, such as User:admin;User:CN=broker1, whatever the access rules say; "
            "the nodes themselves have to be among them, or be given ClusterAction on the cluster.",
            form=Form(_are_principals, "principals of the form Type:name, separated by semicolons")),
    Setting("allow.everyone.if.no.acl.found", BOOLEAN, False,
            "Whether everyone may do everything with what no access rule covers."),
]
# fmt: on
