"""The admin client: topics, settings, groups, transactions and the cluster itself. `semel.Admin` is its face."""
