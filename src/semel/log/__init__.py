"""One partition on one disk: Kafka's log, file by file, with idempotence, transactions, retention and compaction."""
