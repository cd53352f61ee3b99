"""Every metric of a node.

Where Kafka's usual exporters have a name, it is that: of the JMX exporter with Kafka's own rules, and of kafka_exporter
for groups. Names that begin with semel_ are ours.
"""

from __future__ import annotations

from semel.metrics.declaration import Metric, Type

COUNTER, GAUGE, HISTOGRAM, INFO = Type.COUNTER, Type.GAUGE, Type.HISTOGRAM, Type.INFO
TOPIC = ("topic",)
PARTITION = ("topic", "partition")

# fmt: off
NODE = (
    NODE_INFO := Metric("semel_node", INFO, "This node: its number, cluster and version.",
                        ("node_id", "cluster_id", "version")),
    CONNECTIONS := Metric("semel_connections", GAUGE, "Open connections, by listener.", ("listener",)),
    ACCEPTED := Metric("semel_connections_accepted", COUNTER, "Connections that were accepted."),
    REFUSED := Metric("semel_connections_refused", COUNTER,
                      "Connections that were closed at once, because there were too many."),
    MEMORY_USED := Metric("semel_request_memory_bytes", GAUGE,
                          "Memory that requests and answers take, of queued.max.request.bytes."),
    MEMORY_LIMIT := Metric("semel_request_memory_limit_bytes", GAUGE, "queued.max.request.bytes."),
    MEMORY_WAITING := Metric("semel_request_memory_waiting", GAUGE, "Connections that wait for such memory."),
    SLOW_TURNS := Metric("semel_loop_slow_turns", COUNTER,
                         "Turns of the event loop over 5 ms, by processor time of the node and by the clock.", ("by",)),
    LONGEST_TURN := Metric("semel_loop_longest_turn_seconds", GAUGE,
                           "The longest turn of the event loop since the node serves.", ("by",)),
    DISK_FREE := Metric("semel_disk_free_bytes", GAUGE, "Free bytes of the file system that holds the data."),
    DISK_SIZE := Metric("semel_disk_size_bytes", GAUGE, "Size of the file system that holds the data."),
    LEFT_OUT := Metric("semel_metrics_left_out", GAUGE,
                       "Time series that were left out, because a metric has more than metrics.max.series.",
                       ("metric",)),
)

REQUESTS = (
    REQUEST_COUNT := Metric("kafka_network_requestmetrics_requests", COUNTER, "Answered requests, by API.",
                            ("request",)),
    REQUEST_ERRORS := Metric("kafka_network_requestmetrics_errors", COUNTER,
                             "Errors in answers, by API and error; of an answer that lists items, the first 1,000 "
                             "count. Success is not counted.", ("request", "error")),
    REQUEST_TIME := Metric("semel_request_seconds", HISTOGRAM,
                           "From the bytes of a request to its answer: flushes, replication and long polls included.",
                           ("request",)),
    FENCED := Metric("semel_producers_fenced", COUNTER,
                     "Refusals of producers that a newer instance has replaced (PRODUCER_FENCED and "
                     "INVALID_PRODUCER_EPOCH)."),
)

TOPICS = (
    RECORDS_IN := Metric("kafka_server_brokertopicmetrics_messagesin", COUNTER,
                         "Records that producers have written, by topic.", TOPIC),
    BYTES_IN := Metric("kafka_server_brokertopicmetrics_bytesin", COUNTER,
                       "Bytes of batches that producers have written, by topic.", TOPIC),
    BYTES_OUT := Metric("kafka_server_brokertopicmetrics_bytesout", COUNTER,
                        "Bytes of batches that consumers have fetched, by topic.", TOPIC),
    REPLICATION_BYTES_OUT := Metric("kafka_server_brokertopicmetrics_replicationbytesout", COUNTER,
                                    "Bytes of batches that followers have fetched, by topic.", TOPIC),
    FAILED_PRODUCES := Metric("kafka_server_brokertopicmetrics_failedproducerequests", COUNTER,
                              "Batches that were refused, by topic.", TOPIC),
    BATCHES_IN := Metric("semel_batches_in", COUNTER, "Batches that producers have written, by topic.", TOPIC),
    DUPLICATES := Metric("semel_duplicate_batches", COUNTER,
                         "Batches that came again, were answered as written, and were not written again, by topic.",
                         TOPIC),
)

FLUSHES = (
    FLUSH_TIME := Metric("semel_flush_seconds", HISTOGRAM, "How long flushes of logs to the disk (fsync) take."),
    FLUSH_RECORDS := Metric("semel_flush_records", COUNTER,
                            "Records that flushes have made durable; divided by semel_flush_seconds_count: records "
                            "per flush."),
)

PARTITIONS = (
    LOG_SIZE := Metric("kafka_log_log_size", GAUGE, "Bytes of the log of each replica on this node.", PARTITION),
    LOG_START := Metric("kafka_log_log_logstartoffset", GAUGE, "Where the log of each replica begins.", PARTITION),
    LOG_END := Metric("kafka_log_log_logendoffset", GAUGE, "Where the log of each replica ends.", PARTITION),
    STABLE_LAG := Metric("semel_partition_stable_lag", GAUGE,
                         "How far the last stable offset is behind the high watermark, for partitions that this node "
                         "leads: what read_committed consumers cannot read because a transaction is open.", PARTITION),
)

REPLICATION = (
    LEADERS := Metric("kafka_server_replicamanager_leadercount", GAUGE, "Partitions that this node leads."),
    REPLICAS := Metric("kafka_server_replicamanager_partitioncount", GAUGE,
                       "Partitions of which this node has a replica."),
    UNDER_REPLICATED := Metric("kafka_server_replicamanager_underreplicatedpartitions", GAUGE,
                               "Partitions led here of which a replica is not in sync."),
    UNDER_MIN_ISR := Metric("kafka_server_replicamanager_underminisrpartitioncount", GAUGE,
                            "Partitions led here that take no acks=all, because too few replicas are in sync."),
    OFFLINE_REPLICAS := Metric("kafka_server_replicamanager_offlinereplicacount", GAUGE,
                               "Replicas of this node whose log cannot be opened."),
    ISR_SHRINKS := Metric("kafka_server_replicamanager_isrshrinks", COUNTER,
                          "Times that replicas have left the in-sync replicas of a partition led here."),
    ISR_EXPANDS := Metric("kafka_server_replicamanager_isrexpands", COUNTER,
                          "Times that replicas have joined the in-sync replicas of a partition led here."),
)

CONTROLLER = (
    ACTIVE_CONTROLLER := Metric("kafka_controller_kafkacontroller_activecontrollercount", GAUGE,
                                "1 on the active controller, 0 elsewhere."),
    OFFLINE_PARTITIONS := Metric("kafka_controller_kafkacontroller_offlinepartitionscount", GAUGE,
                                 "Partitions without a leader. Only the active controller tells."),
    TOPIC_COUNT := Metric("kafka_controller_kafkacontroller_globaltopiccount", GAUGE,
                          "Topics of the cluster. Only the active controller tells."),
    PARTITION_COUNT := Metric("kafka_controller_kafkacontroller_globalpartitioncount", GAUGE,
                              "Partitions of the cluster. Only the active controller tells."),
    ACTIVE_BROKERS := Metric("kafka_controller_kafkacontroller_activebrokercount", GAUGE,
                             "Brokers that serve. Only the active controller tells."),
    FENCED_BROKERS := Metric("kafka_controller_kafkacontroller_fencedbrokercount", GAUGE,
                             "Brokers that are registered and do not serve. Only the active controller tells."),
)

TRANSACTIONS = (
    OPEN_TRANSACTIONS := Metric("semel_open_transactions", GAUGE,
                                "Transactions that this node coordinates and that are not ended, by the age that they "
                                "have at least: older_than=\"0\" are all.", ("older_than",)),
    OLDEST_TRANSACTION := Metric("semel_oldest_transaction_seconds", GAUGE,
                                 "The age of the oldest open transaction that this node coordinates."),
)

GROUPS = (
    GROUP_COUNT := Metric("semel_groups", GAUGE, "Groups that this node coordinates."),
    GROUP_MEMBERS := Metric("kafka_consumergroup_members", GAUGE, "Members of each group.", ("consumergroup",)),
    GROUP_OFFSET := Metric("kafka_consumergroup_current_offset", GAUGE, "Committed offsets.",
                           ("consumergroup", "topic", "partition")),
    GROUP_LAG := Metric("kafka_consumergroup_lag", GAUGE,
                        "How far each committed offset is behind the end of the partition. The coordinator of the "
                        "group tells it, for partitions of which it has a replica.",
                        ("consumergroup", "topic", "partition")),
)
# fmt: on

SECTIONS = {
    "The node": NODE,
    "Requests": REQUESTS,
    "Topics": TOPICS,
    "Flushes": FLUSHES,
    "Partitions": PARTITIONS,
    "Replication": REPLICATION,
    "The controller": CONTROLLER,
    "Transactions": TRANSACTIONS,
    "Groups": GROUPS,
}
