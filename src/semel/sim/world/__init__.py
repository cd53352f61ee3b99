"""One seed, one run: a node, its clients, faults and checks in virtual time; `simulation.simulate` runs it."""
