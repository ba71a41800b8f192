"""Faults of what commands are permitted: the network of their enclosures."""

from fault import SESSION, Fault

NETWORK = "daemon/tiller_daemon/policy/shell/network.py"

FAULTS = (
    Fault(
        "B38 only the permission for the network opens it",
        SESSION + "calls/tool_call.py",
        "PreparedToolCall._enclose",
        "A.permission == NETWORK",
        "A.permission",
    ),
    Fault(
        "B38 where nobody is asked the network stays closed",
        SESSION + "calls/turn_enclosures.py",
        "TurnEnclosures.network_requirements",
        'A.approve == "ask"',
        "True",
    ),
    Fault(
        "B38 only rules that name the network open it",
        NETWORK,
        "judge_network",
        "if A.permission == NETWORK",
        'if A.permission in ("*", NETWORK)',
    ),
    Fault(
        "B38 the network of one command is none of those beside it",
        NETWORK,
        "_allowing_rule",
        'A(B) != "passes_on" or B.assigns',
        "False",
    ),
    Fault(
        "B38 a network that was granted lets the command run",
        "daemon/tiller_daemon/policy/shell/enclosures.py",
        "_implies",
        "A.granted and",
        "False and",
    ),
    Fault(
        "B38 what only reads has no network",
        "daemon/tiller_daemon/sandbox/confiner.py",
        "Confiner.confined",
        "A.writes and network",
        "network",
        equivalent="`judge_network` never allows it to a line that seems to read: two locks",
    ),
)
