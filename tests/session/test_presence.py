"""Whether somebody looks at a frontend, as frontends say, and as what they submit shows."""

from hypothesis import given
from hypothesis import strategies as st

from tiller_daemon.session.presence import LOOKING_MAX, Presence
from tiller_protocol.ops import Replay
from tiller_protocol.sessions import FOLLOW_LEASE_S

SAYS = st.tuples(
    st.sampled_from(["a", "b", "c"]), st.floats(0, FOLLOW_LEASE_S), st.booleans(), st.booleans()
)


def test_nobody_looks_before_somebody_does() -> None:
    presence = Presence(lambda: 100.0)
    assert presence.quiet_s() == float("inf")
    presence.note(Replay("s", focus=True))
    assert presence.quiet_s() == float("inf"), "this one is no follower"
    presence.acted()
    assert presence.quiet_s() == 0


@given(st.lists(SAYS, max_size=30), st.floats(0, 3 * FOLLOW_LEASE_S))
def test_it_is_quiet_only_when_no_frontend_has_the_focus(says, rest: float) -> None:
    now = 0.0
    presence = Presence(lambda: now)
    until: dict[str, float] = {}
    for follower, waits, focus, leaves in says:
        now += waits
        presence.note(Replay("s", follower=follower, focus=focus, leaves=leaves))
        until.pop(follower, None)
        if focus and not leaves:
            until[follower] = now + FOLLOW_LEASE_S
    now += rest
    quiet_s = presence.quiet_s()
    assert (quiet_s is None) == any(end > now for end in until.values())
    if any(focus for _, _, focus, _ in says):
        assert quiet_s is None or quiet_s <= now


def test_no_flood_of_ids_is_remembered() -> None:
    now = 0.0
    presence = Presence(lambda: now)
    for number in range(2 * LOOKING_MAX):
        presence.note(Replay("s", follower=f"f{number}", focus=True))
    assert presence.quiet_s() is None
    now = FOLLOW_LEASE_S + 1
    assert presence.quiet_s() == now
