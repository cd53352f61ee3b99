"""The simulated cluster is trusted because it finds planted bugs of replication, each at seeds that are known to do so.

SEMEL_SIM_HUNT=1 searches instead, from the first seed on: when the drawing of schedules has changed, say.

What may go wrong between nodes, by number, and what would notice it: a bug
planted here, a rule that holds in every run of several nodes (`sim/world/replicas.py`), or a test of a part.

 1  "cut to the high watermark"
 2  rules 2 and 6 (same offset and epoch, same batch); "last epoch not told"
 3  "logs compared by offset alone" in test_fetcher: fast elections with unequal logs; property/test_follower_model
 4  test_partition_leader: epochs of readers are checked; test_replica_fetch: the order of the checks
 5  test_follower, test_log_following: batches of a later term are left out
 6  test_follower: an answer to another question does not count
 7  test_follower: nothing the leader says counts where the logs part
 8  "last epoch not told"; test_follower: the last epoch is told also after an empty answer
 9  test_follower_power_loss: at any disk call; test_log_epochs: a damaged file is no file
10  test_log_epochs: an epoch that wrote nothing leaves no trace; test_following_rules: ... goes with the rest
11  "producers not cut", "epochs not cut"; test_log_truncation: a cut log is what it was at that offset
12  candidates of a quorum: there is one controller
13  test_replicated_log: a log begins again behind a snapshot with its epoch; test_log_truncation, at segments
14  "acknowledged with too few in sync"; rule 4
15  "followers tell what they have not flushed"; rule 4; test_flushed_epoch
16  "restarted node stays in sync"; test_replica_fetch: a node that has been started again is not what it was
17  test_isr_decisions: who is not active does not join (which names other epochs, too); property/test_controller_model
18  "fenced node joins the ISR"; rule 5; test_isr_changes: only a node in its newest start may join
19  test_isr_changes: an answer that comes after newer metadata changes nothing
20  test_isr_changes: what nobody knows the end of is asked again the same
21  "high watermark of the proposed ISR"; rule 4
22  test_in_sync: who is proposed to join is enough only when confirmed; test_replicated_partition: too few is called so
23  test_in_sync: who has caught up and may join holds back and who has stopped does not; property/test_in_sync_model
24  test_replica_fetch: the order of the checks is that of Kafka
25  "ISR joined at an old high watermark" in test_in_sync: all from before this leader; property/test_in_sync_model
26  test_in_sync: who is always a little behind has caught up with what there was at its last fetch
27  test_elections: an ISR that shrinks begins a leader epoch only below the level of Kafka 3.6
28  "fenced node elected"; rule 5; test_elections: the leader is chosen
29  test_active_controller: min.insync.replicas that change make the ELR unknown
30  test_elections: a reassignment is over when those who come are in sync
31  test_broker_decisions: a broker that stops hands on what it leads; test_sessions: all have seen a shutdown
32  "restarted node stays in sync"; test_broker_decisions: an unclean stop of the last one
33  test_log_store: the mark of a clean stop is used up by the start; test_flushed_epoch: gone when it is void
66  test_cluster_failures: a heartbeat of an earlier start is refused
67  strikes that clone a node; test_lifecycle: it waits while another of its id may still live
68  test_topics_of_a_cluster: a topic made again has nothing of the old one; test_log_store, of directories
69  test_transaction_races; test_coordinators_that_move: a delayed end does not touch a later transaction
70  test_transaction_verification: a late produce does not slip in between the decision and its marker
71  test_transaction_verification; test_transactions_across_nodes: what has not joined is not written
72  test_log_producer_transactions: a marker of an older coordinator is fenced; test_txn_marker_writer: replaced
73  test_txn_marker_writer: an end that cannot be noted is noted later; "decisions not carried on"
74  test_txn_end_decisions, test_txn_init_decisions: of the last epoch; property/test_transaction_decisions
75  "old coordinator answers"; test_new_terms: a coordinator loads its shard anew; test_txn_marker_writer
76  "producer ids given out twice"; test_producer_ids
77  "open transactions not followed"
78  test_transactions_across_nodes: offsets of a group on another node; test_group_loading
79  "coordinator does not wait", "coordinator loads what is known to be committed"
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from replication_bugs import BUGS, planted

from semel.sim.world.exploring import explore_one
from semel.sim.world.findings import Violation

NODES = 3
FOUND_BY: dict[str, tuple[int, ...]] = {
    "high watermark of the proposed ISR": (193, 31, 34),
    "high watermark of a majority": (193, 31),
    "acknowledged with too few in sync": (60, 68),
    "followers tell what they have not flushed": (24, 27),
    "success at the end of a term": (193, 149),
    "readers see what is not committed": (193,),
    "ISR joined at an old high watermark": (249,),
    "restarted node stays in sync": (242,),
    "fenced node elected": (30, 25),
    "leader epoch not raised": (193, 31),
    "producer ids given out twice": (16, 13),
    "cut to the high watermark": (24, 91),
    "last epoch not told": (2, 11),
    "producers not cut": (193, 132),
    "producers not followed": (24, 27),
    "open transactions not followed": (16, 13),
    "coordinator loads what is known to be committed": (84,),
}
FOUND_BY_TESTS = {
    "high watermark without who is joining": "replication/test_in_sync.py",
    "unclean election where none is allowed": "controller/test_broker_decisions.py",
    "epochs not cut": "log/test_log_truncation.py",
    "logs compared by offset alone": "replication/test_fetcher.py",
    "answers of other terms taken": "replication/test_follower.py",
    "coordinator does not wait": "broker/test_coordinators_that_move.py",
    "decisions not carried on": "broker/test_coordinators_that_move.py",
    "old coordinator answers": "broker/test_coordinators_that_move.py",
    "nothing cut where logs part": "replication/test_follower.py",
    "fenced node joins the ISR": "broker/test_isr_changes.py",
}
"""What hardly any run has found, or only long ones (decisions that nobody carries on hold everybody up): it takes more
coming together than is drawn. Or it cannot come together: where the only controller has a replica of everything, that
one is eligible, and no election need be unclean."""
HUNTS = bool(os.environ.get("SEMEL_SIM_HUNT"))
MAX_SEEDS = 2000
UNIT = Path(__file__).parent.parent / "unit"


@cache
def found_without_bugs(seed: int) -> list[Violation]:
    return explore_one(seed, NODES).violations


def test_for_every_bug_there_are_seeds_that_find_it() -> None:
    assert FOUND_BY.keys() | FOUND_BY_TESTS.keys() == BUGS.keys()
    assert not FOUND_BY.keys() & FOUND_BY_TESTS.keys()
    assert all(0 < seed <= MAX_SEEDS for seeds in FOUND_BY.values() for seed in seeds)


@pytest.mark.timeout(7200 if HUNTS else 300)
@pytest.mark.parametrize("name", FOUND_BY)
def test_a_planted_bug_of_replication_is_found(name: str) -> None:
    """Any change of the node moves what happens in a run, so there is more than one seed for each."""
    seeds = range(1, MAX_SEEDS + 1) if HUNTS else FOUND_BY[name]
    for seed in seeds:
        with planted(name):
            found = explore_one(seed, NODES).violations
        if found:
            print(f"{name}: seed {seed}: {found[0]}")
            assert not found_without_bugs(seed), "and without the bug there is nothing to find"
            return
    pytest.fail(f"seeds {seeds} have not found it; SEMEL_SIM_HUNT=1 looks for others")


@pytest.mark.parametrize("name", FOUND_BY_TESTS)
def test_a_planted_bug_of_a_part_is_found_by_its_tests(name: str) -> None:
    planting = Path(__file__).parent / "replication_bugs.py"
    command = [sys.executable, str(planting), name, str(UNIT / FOUND_BY_TESTS[name])]
    run = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout + run.stderr
