"""The names in the broker: subjects, streams, buckets and headers. Tokens are joined with dots."""

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

EXPIRES_HEADER = "Tiller-Expires"
"""When a submission in the inbox becomes void, in Unix seconds by the broker's clock."""


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
