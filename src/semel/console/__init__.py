"""The web console: pages that show a cluster, and change it where that is allowed. It is a client like any other: it
reaches the cluster through `client` and `views` only, so it shows Apache Kafka as well."""
