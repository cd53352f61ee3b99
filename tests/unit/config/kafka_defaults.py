"""Defaults of Apache Kafka 4.3 for the settings that semel declares, as its broker prints them at start.

Internal topics: the declared defaults (3, 3 and 2), not those of the sample file that the broker was started with.
"""

KAFKA_DEFAULTS = """
advertised.listeners = null
allow.everyone.if.no.acl.found = false
authorizer.class.name =
auto.create.topics.enable = true
broker.heartbeat.interval.ms = 2000
broker.rack = null
broker.session.timeout.ms = 9000
compression.gzip.level = -1
compression.lz4.level = 9
compression.type = producer
compression.zstd.level = 3
connections.max.idle.ms = 600000
controller.listener.names = none
controller.quorum.bootstrap.servers =
controller.quorum.voters =
controller.quorum.election.timeout.ms = 1000
controller.quorum.fetch.timeout.ms = 2000
controller.quorum.election.backoff.max.ms = 1000
controller.quorum.retry.backoff.ms = 20
default.replication.factor = 1
delete.topic.enable = true
fetch.max.bytes = 57671680
group.consumer.assignors = uniform,range
group.consumer.heartbeat.interval.ms = 5000
group.consumer.max.heartbeat.interval.ms = 15000
group.consumer.max.session.timeout.ms = 60000
group.consumer.max.size = 2147483647
group.consumer.min.heartbeat.interval.ms = 5000
group.consumer.min.session.timeout.ms = 45000
group.consumer.regex.refresh.interval.ms = 600000
group.consumer.session.timeout.ms = 45000
group.initial.rebalance.delay.ms = 3000
group.max.session.timeout.ms = 1800000
group.max.size = 2147483647
group.min.session.timeout.ms = 6000
initial.broker.registration.timeout.ms = 60000
inter.broker.listener.name = null
listener.security.protocol.map = SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
listeners = PLAINTEXT://:9092
log.cleaner.backoff.ms = 15000
log.cleaner.dedupe.buffer.size = 134217728
log.cleaner.delete.retention.ms = 86400000
log.cleaner.enable = true
log.cleaner.max.compaction.lag.ms = 9223372036854775807
log.cleaner.min.cleanable.ratio = 0.5
log.cleaner.min.compaction.lag.ms = 0
log.cleanup.policy = delete
log.dir = /tmp/kafka-logs
log.dirs = null
log.flush.interval.messages = 9223372036854775807
log.flush.interval.ms = null
log.flush.offset.checkpoint.interval.ms = 60000
log.flush.scheduler.interval.ms = 9223372036854775807
log.index.interval.bytes = 4096
log.index.size.max.bytes = 10485760
log.message.timestamp.after.max.ms = 3600000
log.message.timestamp.before.max.ms = 9223372036854775807
log.message.timestamp.type = CreateTime
log.preallocate = false
log.retention.bytes = -1
log.retention.check.interval.ms = 300000
log.retention.hours = 168
log.retention.minutes = null
log.retention.ms = null
log.roll.hours = 168
log.roll.jitter.hours = 0
log.roll.jitter.ms = null
log.roll.ms = null
log.segment.bytes = 1073741824
log.segment.delete.delay.ms = 60000
max.connections = 2147483647
max.connections.per.ip = 2147483647
max.incremental.fetch.session.cache.slots = 1000
max.request.partition.size.limit = 2000
message.max.bytes = 1048588
min.insync.replicas = 1
node.id = none
num.partitions = 1
process.roles = none
offset.metadata.max.bytes = 4096
offsets.commit.timeout.ms = 5000
offsets.retention.check.interval.ms = 600000
offsets.retention.minutes = 10080
offsets.topic.compression.codec = 0
offsets.topic.num.partitions = 50
offsets.topic.replication.factor = 3
offsets.topic.segment.bytes = 104857600
producer.id.expiration.check.interval.ms = 600000
producer.id.expiration.ms = 86400000
queued.max.request.bytes = -1
replica.fetch.backoff.ms = 1000
replica.fetch.max.bytes = 1048576
replica.fetch.min.bytes = 1
replica.fetch.response.max.bytes = 10485760
replica.fetch.wait.max.ms = 500
replica.high.watermark.checkpoint.interval.ms = 5000
replica.lag.time.max.ms = 30000
sasl.server.max.receive.size = 524288
super.users =
ssl.keystore.location = null
ssl.keystore.type = JKS
ssl.keystore.certificate.chain = null
ssl.keystore.key = null
ssl.key.password = null
ssl.truststore.location = null
ssl.truststore.type = JKS
ssl.truststore.certificates = null
ssl.client.auth = none
ssl.principal.mapping.rules = DEFAULT
ssl.endpoint.identification.algorithm = https
sasl.enabled.mechanisms = GSSAPI
sasl.jaas.config = null
sasl.mechanism.inter.broker.protocol = GSSAPI
sasl.mechanism.controller.protocol = GSSAPI
connections.max.reauth.ms = 0
connection.failed.authentication.delay.ms = 100
socket.request.max.bytes = 104857600
socket.send.buffer.bytes = 102400
transaction.abort.timed.out.transaction.cleanup.interval.ms = 10000
transaction.max.timeout.ms = 900000
transaction.partition.verification.enable = true
transaction.remove.expired.transaction.cleanup.interval.ms = 3600000
transaction.state.log.min.isr = 2
transaction.state.log.num.partitions = 50
transaction.state.log.replication.factor = 3
transaction.state.log.segment.bytes = 104857600
transaction.two.phase.commit.enable = false
transactional.id.expiration.ms = 604800000
unclean.leader.election.enable = false
add.partitions.to.txn.retry.backoff.max.ms = 100
add.partitions.to.txn.retry.backoff.ms = 20
alter.log.dirs.replication.quota.window.num = 11
alter.log.dirs.replication.quota.window.size.seconds = 1
auto.leader.rebalance.enable = true
background.threads = 10
controlled.shutdown.enable = true
controller.quota.window.num = 11
controller.quota.window.size.seconds = 1
controller.socket.timeout.ms = 30000
delete.records.purgatory.purge.interval.requests = 1
fetch.purgatory.purge.interval.requests = 1000
group.consumer.assignment.interval.ms = 1000
group.consumer.max.assignment.interval.ms = 15000
group.consumer.min.assignment.interval.ms = 0
group.coordinator.append.linger.ms = -1
group.coordinator.background.threads = 2
group.coordinator.cached.buffer.max.bytes = 1048588
group.coordinator.threads = 4
kafka.metrics.polling.interval.secs = 10
leader.imbalance.check.interval.seconds = 300
log.cleaner.io.buffer.load.factor = 0.9
log.cleaner.io.buffer.size = 524288
log.cleaner.io.max.bytes.per.second = 1.7976931348623157e+308
log.cleaner.threads = 1
log.dir.failure.timeout.ms = 30000
log.flush.start.offset.checkpoint.interval.ms = 60000
log.local.retention.bytes = -2
log.local.retention.ms = -2
metrics.num.samples = 2
metrics.recording.level = INFO
metrics.sample.window.ms = 30000
num.io.threads = 8
num.network.threads = 3
num.recovery.threads.per.data.dir = 2
num.replica.alter.log.dirs.threads = null
num.replica.fetchers = 1
offsets.load.buffer.size = 5242880
producer.purgatory.purge.interval.requests = 1000
queued.max.requests = 500
quota.window.num = 11
quota.window.size.seconds = 1
remote.log.storage.system.enable = false
replica.socket.receive.buffer.bytes = 65536
replica.socket.timeout.ms = 30000
replication.quota.window.num = 11
replication.quota.window.size.seconds = 1
request.timeout.ms = 30000
sasl.kerberos.min.time.before.relogin = 60000
sasl.kerberos.ticket.renew.jitter = 0.05
sasl.kerberos.ticket.renew.window.factor = 0.8
sasl.login.refresh.buffer.seconds = 300
sasl.login.refresh.min.period.seconds = 60
sasl.login.refresh.window.factor = 0.8
sasl.login.refresh.window.jitter = 0.05
socket.connection.setup.timeout.max.ms = 30000
socket.connection.setup.timeout.ms = 10000
socket.listen.backlog.size = 50
socket.receive.buffer.bytes = 102400
transaction.state.log.load.buffer.size = 5242880
"""

BROKER_DEFAULTS = {
    name: value.strip() for name, _, value in (line.partition(" =") for line in KAFKA_DEFAULTS.strip().splitlines())
}

# Topic settings and the text that a topic without settings of its own has under Kafka's defaults.
TOPIC_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
