"""Which topics of a daemon go through the broker: those that somebody follows. Pure."""

import re

from tiller_protocol.events import LIFECYCLE_TOPIC
from tiller_protocol.lending import LEASE_S, SessionLend, lender_topic
from tiller_protocol.ops import AnyOp, Replay
from tiller_protocol.sessions import FOLLOW_LEASE_S

TOPICS_MAX = 4096
"""How many topics are followed at once; with more, the one that ends first is dropped."""

_PLAIN = re.compile(r"[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)?")
"""A topic that is a valid part of a NATS subject, and no wildcard."""


class Topics:
    """The topics that are followed. Times are of any clock in seconds."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def note(self, op: AnyOp, now: float) -> str:
        """Follow the topic that an op shows to be wanted; return its name, or "" if there is none.

        A session is followed for some time after each `replay`, questions to a lender as long as
        the loan lasts.
        """
        match op:
            case Replay():
                topic, lease_s = op.session_id, 0.0 if op.leaves else FOLLOW_LEASE_S
            case SessionLend():
                lends = op.mcp_servers or op.reads_files
                topic, lease_s = lender_topic(op.lender), LEASE_S if lends else 0.0
            case _:
                return ""
        if not lease_s or not _PLAIN.fullmatch(topic):
            return ""
        self._until[topic] = max(now + lease_s, self._until.get(topic, now))
        if len(self._until) > TOPICS_MAX:
            del self._until[min(self._until, key=lambda one: self._until[one])]
        return topic

    def has(self, topic: str, now: float) -> bool:
        """Whether a topic is followed; the one of all sessions' life cycle always is."""
        return topic == LIFECYCLE_TOPIC or self._until.get(topic, now) > now

    def expire(self, now: float) -> list[str]:
        """Forget the topics that are not followed any more, and return them."""
        gone = [topic for topic, until in self._until.items() if until <= now]
        for topic in gone:
            del self._until[topic]
        return gone
