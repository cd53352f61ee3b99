"""Which brokers are alive, by a monotonic clock that is an argument."""

from __future__ import annotations

from cluster_image import Cluster

from semel.controller.sessions import Sessions

TIMEOUT_MS = 9000


def begun(cluster: Cluster, own_node: int | None = None) -> Sessions:
    sessions = Sessions(TIMEOUT_MS)
    sessions.begin(cluster.image, 50, 0, own_node=own_node)
    return sessions


def checked(sessions: Sessions, until_ms: int, since_ms: int = 0) -> dict[int, int]:
    """When each was found silent, if nothing is heard of anybody."""
    found: dict[int, int] = {}
    for now_ms in range(since_ms, until_ms, sessions.check_interval_ms):
        for node_id in sessions.expired(now_ms):
            found[node_id] = now_ms
            sessions.end(node_id)
    return found


def test_whoever_is_unfenced_when_a_controller_becomes_active_has_a_session() -> None:
    """KAFKA-18138: one that died during the failover is fenced; KAFKA-19130: a fenced one may restart at once."""
    cluster = Cluster()
    cluster.fence(2)
    sessions = begun(cluster)
    assert [sessions.has_session(node_id, node_id * 100, 1) for node_id in (1, 2, 3)] == [True, False, True]
    found = checked(sessions, 20_000)
    assert set(found) == {1, 3}
    assert all(TIMEOUT_MS < at_ms <= TIMEOUT_MS + sessions.check_interval_ms for at_ms in found.values())


def test_the_broker_of_the_same_process_has_none_before_it_registers() -> None:
    """What the log says of it is what it was before this start: it need not wait for its own end."""
    sessions = begun(Cluster(), own_node=1)
    assert not sessions.has_session(1, 100, 1)
    assert set(checked(sessions, 20_000)) == {2, 3}


def test_a_heartbeat_keeps_a_session_of_its_own_epoch_alone() -> None:
    sessions = begun(Cluster())
    sessions.touch(1, 100, 60, 8000)
    sessions.touch(2, 199, 60, 8000)
    assert sessions.has_session(1, 100, 17_000)
    assert not sessions.has_session(1, 100, 17_001)
    assert not sessions.has_session(2, 200, 9001)
    assert not sessions.has_session(1, 99, 8001)


def test_a_registration_is_no_sign_of_life_and_ends_the_session_of_the_one_before() -> None:
    sessions = begun(Cluster())
    sessions.register(1, 500, 70)
    assert not sessions.has_session(1, 500, 1)
    assert sessions.registered_at(1) == 70
    sessions.touch(1, 500, 70, 10)
    assert sessions.has_session(1, 500, 11)
    sessions.register(1, 500, 90)  # amended
    assert sessions.has_session(1, 500, 11)
    assert sessions.registered_at(1) == 90


def test_a_session_that_has_ended_is_not_found_again() -> None:
    sessions = begun(Cluster())
    sessions.end(1)
    assert not sessions.has_session(1, 100, 1)
    assert set(checked(sessions, 20_000)) == {2, 3}
    sessions.remove(2)
    assert checked(sessions, 40_000, 20_000) == {}


def test_time_in_which_the_controller_did_not_run_counts_for_nobody() -> None:
    """All heartbeats of a pause lie in the sockets: nobody was silent."""
    sessions = begun(Cluster())
    interval_ms = sessions.check_interval_ms
    for now_ms in range(0, 3000, interval_ms):
        sessions.expired(now_ms)
    assert sessions.expired(60_000) == []
    assert sessions.expired(60_000 + interval_ms) == []
    found = checked(sessions, 80_000, 60_000 + 2 * interval_ms)
    assert set(found) == {1, 2, 3}
    assert all(at_ms <= 60_000 + TIMEOUT_MS for at_ms in found.values()), "and it is not forgotten that they are"


def test_a_check_that_comes_a_little_late_changes_nothing() -> None:
    sessions = begun(Cluster())
    now_ms = 0
    while not sessions.expired(now_ms):
        now_ms += sessions.check_interval_ms * 2 - 1
    assert now_ms <= TIMEOUT_MS + sessions.check_interval_ms * 2


def test_all_have_seen_a_shutdown_when_every_active_broker_has_told_so() -> None:
    """KAFKA-14292: the offset does not move, though the log grows."""
    cluster = Cluster(brokers=(1, 2, 3, 4))
    sessions = begun(cluster)
    cluster.fence(4)
    cluster.change(1, in_controlled_shutdown=1)
    sessions.begin_shutdown(1, 80)
    sessions.begin_shutdown(1, 95)
    assert sessions.shutdown_offset(1) == 80
    sessions.touch(2, 200, 80, 10)
    assert not sessions.all_have_seen(80, cluster.image), "nothing is known of 3"
    sessions.touch(3, 300, 79, 10)
    assert not sessions.all_have_seen(80, cluster.image)
    sessions.touch(3, 300, 80, 20)
    assert sessions.all_have_seen(80, cluster.image)
    sessions.end(1)
    assert sessions.shutdown_offset(1) is None
