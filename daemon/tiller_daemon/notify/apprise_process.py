# pyright: reportUnknownMemberType=false
"""The process that sends one message with Apprise, and ends; see `programs.Apprise`.

Apprise brings dozens of modules, and blocks while it sends, so it has no place in the daemon.
"""

import sys

import msgspec

from tiller_daemon.notify.programs import ApprisePost


def main() -> None:
    """Send the message on standard input; exits with 1 if the service does not take it."""
    from apprise import Apprise

    post = msgspec.json.decode(sys.stdin.buffer.read(), type=ApprisePost)
    services = Apprise()
    if not services.add(post.url):
        sys.exit("Apprise does not understand the address")
    if not services.notify(title=post.title, body=post.body):
        sys.exit("the service did not take the message")


if __name__ == "__main__":
    main()
