# pyright: reportUnknownMemberType=false
"""The names in the broker: subjects, streams, buckets and headers. Tokens are joined with dots."""

from nats.js import JetStreamContext
from nats.js.api import (
    DiscardPolicy,
    KeyValueConfig,
    ObjectStoreConfig,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from nats.js.errors import NotFoundError

EVENTS_STREAM = "tiller_events"
"""The durable events of all sessions, one subject for each session."""

INBOX_STREAM = "tiller_inbox"
"""Submissions that wait for a host."""

LEASES, HOSTS, TASKS, ANSWERS = "tiller_leases", "tiller_hosts", "tiller_tasks", "tiller_answers"
"""Buckets: which hosts are there, what is known of each, the tasks, answers to `INBOX_STREAM`."""

OBJECTS = "tiller_objects"
"""The bucket of large content: events that are too large for a message, and tasks' bundles."""

SEQ_HEADER = "Tiller-Seq"
"""The `seq` of the event in a message."""

OBJECT_HEADER = "Tiller-Object"
"""The message's content is in the object with this name."""

LEASE_S = 30.0
"""How long a host counts as there after its last sign of life, by the broker's clock."""

INBOX_S = 7 * 86_400.0
"""The longest time that the broker keeps a submission for a host that is away."""

DUPLICATES_S = 120.0
"""How long the servers recognise a repeated message id; correctness does not depend on it."""


def events(host: str, session_id: str) -> str:
    """The subject of a session's durable events."""
    return f"tiller.events.{host}.{session_id}"


def live(host: str, topic: str) -> str:
    """The subject of what a daemon publishes on a topic now, deltas included. Nothing is kept."""
    return f"tiller.live.{host}.{topic.replace('/', '.')}"


def look(host: str) -> str:
    """The subject of requests that only read."""
    return f"tiller.look.{host}"


def drive(host: str) -> str:
    """The subject of all other requests."""
    return f"tiller.drive.{host}"


def inbox(host: str) -> str:
    """The subject of submissions that wait for a host."""
    return f"tiller.inbox.{host}"


def entry(bucket: str, key: str) -> str:
    """The subject of an entry in a bucket."""
    return f"$KV.{bucket}.{key}"


async def make(js: JetStreamContext) -> None:
    """Make the streams and buckets that do not exist yet; raises the errors of `nats`."""
    streams = (
        StreamConfig(
            name=EVENTS_STREAM,
            subjects=[events("*", "*")],
            storage=StorageType.FILE,
            discard=DiscardPolicy.NEW,
            duplicate_window=DUPLICATES_S,
            allow_direct=True,
        ),
        StreamConfig(
            name=INBOX_STREAM,
            subjects=[inbox("*")],
            storage=StorageType.FILE,
            retention=RetentionPolicy.WORK_QUEUE,
            discard=DiscardPolicy.NEW,
            max_age=INBOX_S,
            duplicate_window=DUPLICATES_S,
        ),
    )
    await js.account_info()
    for stream in streams:
        try:
            await js.stream_info(str(stream.name))
        except NotFoundError:
            await js.add_stream(stream)
    for bucket, ttl in ((LEASES, LEASE_S), (HOSTS, None), (TASKS, None), (ANSWERS, INBOX_S)):
        try:
            await js.stream_info(f"KV_{bucket}")
        except NotFoundError:
            await js.create_key_value(KeyValueConfig(bucket, ttl=ttl, direct=True))
    try:
        await js.stream_info(f"OBJ_{OBJECTS}")
    except NotFoundError:
        await js.create_object_store(OBJECTS, config=ObjectStoreConfig(OBJECTS))
