"""The simulated world: virtual time, a network and disks that fail by seed. Same seed, same history."""
