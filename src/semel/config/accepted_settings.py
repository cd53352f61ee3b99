"""Settings of Kafka's broker that semel takes and does not use: how many threads there are, how large their buffers,
how long to wait for what is not there. A node that is given them runs as well without.

Those that would promise something (quotas, tiered storage) are not among them: where nobody
keeps the promise, the setting is refused.
"""

from __future__ import annotations

from semel.config.settings import Kind, Setting, Value

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = Kind.BOOLEAN, Kind.STRING, Kind.INT, Kind.LONG, Kind.DOUBLE, Kind.LIST
SHORT = Kind.SHORT


def _accepted(
    reason: str, kind: Kind, defaults: dict[str, Value], *, running: tuple[str, ...] = (), minimum: float | None = None
) -> list[Setting]:
    """`running` are those that Kafka changes without a restart, too."""
    return [
        Setting(
            name,
            kind,
            default,
            f"Accepted and without effect: {reason}.",
            minimum=minimum,
            needs_restart=name not in running,
        )
        for name, default in defaults.items()
    ]


_SETTINGS = [
    *_accepted(
        "one thread serves all connections, and others do what would stall it",
        INT,
        {
            "background.threads": 10,
            "group.coordinator.background.threads": 2,
            "group.coordinator.threads": 4,
            "log.cleaner.threads": 1,
            "num.io.threads": 8,
            "num.network.threads": 3,
            "num.recovery.threads.per.data.dir": 2,
            "num.replica.alter.log.dirs.threads": None,
            "num.replica.fetchers": 1,
        },
        running=(
            "background.threads",
            "log.cleaner.threads",
            "num.io.threads",
            "num.network.threads",
            "num.recovery.threads.per.data.dir",
            "num.replica.fetchers",
        ),
        minimum=0,
    ),
    *_accepted(
        "requests do not queue for a thread, and those that wait are found without a search",
        INT,
        {
            "delete.records.purgatory.purge.interval.requests": 1,
            "fetch.purgatory.purge.interval.requests": 1000,
            "producer.purgatory.purge.interval.requests": 1000,
            "queued.max.requests": 500,
        },
    ),
    *_accepted(
        "the system chooses it",
        INT,
        {
            "replica.socket.receive.buffer.bytes": 65536,
            "socket.listen.backlog.size": 50,
            "socket.receive.buffer.bytes": 102400,
        },
    ),
    *_accepted(
        "semel needs no buffer of this kind",
        INT,
        {
            "group.coordinator.cached.buffer.max.bytes": 1048588,
            "log.cleaner.io.buffer.size": 524288,
            "offsets.load.buffer.size": 5242880,
            "transaction.state.log.load.buffer.size": 5242880,
        },
        running=("group.coordinator.cached.buffer.max.bytes", "log.cleaner.io.buffer.size"),
        minimum=0,
    ),
    *_accepted(
        "compaction runs in a process of its own, as fast as the disk",
        DOUBLE,
        {"log.cleaner.io.buffer.load.factor": 0.9, "log.cleaner.io.max.bytes.per.second": 1.7976931348623157e308},
        running=("log.cleaner.io.buffer.load.factor", "log.cleaner.io.max.bytes.per.second"),
    ),
    *_accepted(
        "what a coordinator decides is written at once, and flushed together with what comes meanwhile",
        INT,
        {
            "add.partitions.to.txn.retry.backoff.max.ms": 100,
            "add.partitions.to.txn.retry.backoff.ms": 20,
            "group.coordinator.append.linger.ms": -1,
        },
    ),
    *_accepted(
        "members of a KIP-848 group are assigned anew with the heartbeat that changes something",
        INT,
        {
            "group.consumer.assignment.interval.ms": 1000,
            "group.consumer.max.assignment.interval.ms": 15000,
            "group.consumer.min.assignment.interval.ms": 0,
        },
        running=("group.consumer.assignment.interval.ms",),
        minimum=0,
    ),
    *_accepted(
        "a node keeps all its logs in one directory, and does not go on without it",
        LONG,
        {"log.dir.failure.timeout.ms": 30000},
        minimum=1,
    ),
    *_accepted(
        "where a log begins is saved when it changes",
        INT,
        {"log.flush.start.offset.checkpoint.interval.ms": 60000},
        minimum=0,
    ),
    *_accepted(
        "semel measures nothing over windows",
        INT,
        {
            "alter.log.dirs.replication.quota.window.num": 11,
            "alter.log.dirs.replication.quota.window.size.seconds": 1,
            "controller.quota.window.num": 11,
            "controller.quota.window.size.seconds": 1,
            "kafka.metrics.polling.interval.secs": 10,
            "metrics.num.samples": 2,
            "quota.window.num": 11,
            "quota.window.size.seconds": 1,
            "replication.quota.window.num": 11,
            "replication.quota.window.size.seconds": 1,
        },
        minimum=1,
    ),
    *_accepted("semel measures nothing over windows", LONG, {"metrics.sample.window.ms": 30000}, minimum=1),
    *_accepted("semel measures nothing over windows", STRING, {"metrics.recording.level": "INFO"}),
    *_accepted(
        "there is no connection to another node",
        INT,
        {"controller.socket.timeout.ms": 30000, "request.timeout.ms": 30000},
    ),
    *_accepted(
        "there is no connection to another node",
        LONG,
        {"socket.connection.setup.timeout.max.ms": 30000, "socket.connection.setup.timeout.ms": 10000},
    ),
    *_accepted(
        "the node itself does not log in by Kerberos",
        LONG,
        {"sasl.kerberos.min.time.before.relogin": 60000},
        running=("sasl.kerberos.min.time.before.relogin",),
    ),
    *_accepted(
        "the node itself does not log in by Kerberos",
        DOUBLE,
        {"sasl.kerberos.ticket.renew.jitter": 0.05, "sasl.kerberos.ticket.renew.window.factor": 0.8},
        running=("sasl.kerberos.ticket.renew.jitter", "sasl.kerberos.ticket.renew.window.factor"),
    ),
    *_accepted(
        "the node itself does not log in anywhere",
        SHORT,
        {"sasl.login.refresh.buffer.seconds": 300, "sasl.login.refresh.min.period.seconds": 60},
        running=("sasl.login.refresh.buffer.seconds", "sasl.login.refresh.min.period.seconds"),
    ),
    *_accepted(
        "the node itself does not log in anywhere",
        DOUBLE,
        {"sasl.login.refresh.window.factor": 0.8, "sasl.login.refresh.window.jitter": 0.05},
        running=("sasl.login.refresh.window.factor", "sasl.login.refresh.window.jitter"),
    ),
    *_accepted(
        "all data is on the node's own disk, and log.retention says how long",
        LONG,
        {"log.local.retention.bytes": -2, "log.local.retention.ms": -2},
        running=("log.local.retention.bytes", "log.local.retention.ms"),
        minimum=-2,
    ),
    Setting(
        "remote.log.storage.system.enable",
        BOOLEAN,
        False,
        "Whether old segments are moved to other storage, which semel does not do.",
        off_because="semel keeps all data on its own disk",
    ),
]

ACCEPTED = sorted(_SETTINGS, key=lambda setting: setting.name)
