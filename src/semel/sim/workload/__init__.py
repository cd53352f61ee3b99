"""What clients do while a cluster is attacked, recorded as a history. Runs on a real host and on a simulated one."""
