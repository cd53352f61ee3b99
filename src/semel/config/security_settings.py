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


def _are_rules(text: str) -> bool:
    return text == "DEFAULT" or text.startswith(("RULE:", "DEFAULT,"))


# Those that a listener may have for itself: `listener.name.<listener>.<setting>`.
OF_LISTENERS = (
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.key.password",
    "ssl.truststore.location",
    "ssl.truststore.type",
    "ssl.truststore.certificates",
    "ssl.client.auth",
    "ssl.principal.mapping.rules",
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
    "connections.max.reauth.ms",
)
LISTENER_PREFIX = "listener.name."
JAAS = "sasl.jaas.config"
SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
# Kafka's, which is not served: its default has to be taken, so that nobody has to name a mechanism for nothing.
_GSSAPI = "GSSAPI"


def setting_of_listener(name: str) -> str | None:
    """The setting that `listener.name.<listener>.<setting>` is for one listener, or, for sasl.jaas.config alone,
    `listener.name.<listener>.<mechanism>.sasl.jaas.config`; None for any other name."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    rest = name.removeprefix(LISTENER_PREFIX)
    for setting in OF_LISTENERS:
        listener = rest.removesuffix(f".{setting}")
        if listener != rest and listener and listener == listener.lower():
            return setting
    return None


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
    Setting("ssl.keystore.location", STRING, None,
            "A file with the certificate of a listener, the chain behind it, and its key, in PEM form; it is read "
            "again when it changes, and connections that are open go on."),
    Setting("ssl.keystore.type", STRING, "PEM", "The form of the file: only PEM can be read.", choices=("PEM",),
            kafka_default="JKS"),
    Setting("ssl.keystore.certificate.chain", PASSWORD, None,
            "The certificate and its chain as PEM, in place of a file.", sensitive=True),
    Setting("ssl.keystore.key", PASSWORD, None, "The key of the certificate as PEM.", sensitive=True),
    Setting("ssl.key.password", PASSWORD, None, "The password that the key is encrypted with.", sensitive=True),
    Setting("ssl.truststore.location", STRING, None,
            "A file with the authorities whose certificates are believed, in PEM form: those of clients that show one, "
            "and those of other nodes."),
    Setting("ssl.truststore.type", STRING, "PEM", "The form of the file: only PEM can be read.", choices=("PEM",),
            kafka_default="JKS"),
    Setting("ssl.truststore.certificates", PASSWORD, None,
            "The authorities as PEM, in place of a file.", sensitive=True),
    Setting("ssl.client.auth", STRING, "none",
            "Whether clients have to show a certificate, are asked for one, or need none.",
            choices=("none", "requested", "required")),
    Setting("ssl.principal.mapping.rules", STRING, "DEFAULT",
            "How the subject of a client's certificate becomes the name of its principal.",
            form=Form(_are_rules, "rules of the form RULE:pattern/replacement/ or DEFAULT, with commas")),
    Setting("ssl.endpoint.identification.algorithm", STRING, "https",
            "Whether the certificate of another node has to bear the name that it is reached by: https, or empty.",
            choices=("https", "")),
    Setting("sasl.enabled.mechanisms", LIST, (),
            "The mechanisms by which a listener lets clients log in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512.",
            choices=SASL_MECHANISMS, kafka_default=_GSSAPI),
    Setting("sasl.jaas.config", PASSWORD, None,
            "Kafka's line of login modules for one mechanism of one listener, as "
            "listener.name.<listener>.<mechanism>.sasl.jaas.config, where username and password are those by which "
            "this node logs in to others, and user_NAME is the password of a user of PLAIN.", sensitive=True),
    Setting("sasl.mechanism.inter.broker.protocol", STRING, "SCRAM-SHA-512",
            "The mechanism by which brokers log in to each other, where their listener is one of SASL.",
            choices=SASL_MECHANISMS, kafka_default=_GSSAPI),
    Setting("sasl.mechanism.controller.protocol", STRING, "SCRAM-SHA-512",
            "The mechanism by which nodes log in to controllers, where their listener is one of SASL.",
            choices=SASL_MECHANISMS, kafka_default=_GSSAPI),
    Setting("connections.max.reauth.ms", LONG, 0,
            "How long a login lasts: a connection that does not log in again by then is closed; 0 is for ever.",
            minimum=0),
    Setting("connection.failed.authentication.delay.ms", INT, 100,
            "How long the answer to a login that failed is held back.", minimum=0),
]
# fmt: on
