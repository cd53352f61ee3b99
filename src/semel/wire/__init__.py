"""Kafka's bytes, without I/O: descriptions of messages (`spec`) and the functions made from them (`codec`, `frame`)."""
