"""What things of a cluster look like as documents, for commands and others that show them. They ask through the client
and Kafka's own requests only, so they show Apache Kafka as well."""
