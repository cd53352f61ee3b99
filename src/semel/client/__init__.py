"""Producer, consumer and admin for any cluster that speaks the Kafka protocol. Knows nothing of our broker."""
