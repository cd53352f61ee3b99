"""Calling other nodes: connections, pauses after failures, TLS and SASL. Clients use it, and so can brokers."""
