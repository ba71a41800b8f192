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
        "tests/session/calls/test_network.py::test_a_rule_for_every_permission_opens_no_network",
    ),
    Fault(
        "B38 where nobody is asked the network stays closed",
        SESSION + "calls/turn_enclosures.py",
        "TurnEnclosures.network_requirements",
        'A.approve == "ask"',
        "True",
        "tests/session/calls/test_network.py::test_b38_no_line_has_the_network_without_a_verdict",
    ),
    Fault(
        "B38 only rules that name the network open it",
        NETWORK,
        "judge_network",
        "if A.permission == NETWORK",
        'if A.permission in ("*", NETWORK)',
        "tests/session/calls/test_network.py::test_a_rule_for_every_permission_opens_no_network",
    ),
    Fault(
        "B38 the network of one command is none of those beside it",
        NETWORK,
        "_allowing_rule",
        'A(B) != "passes_on" or B.assigns',
        "False",
        "tests/session/calls/test_network.py"
        "::test_one_question_is_about_the_command_and_the_network",
    ),
    Fault(
        "B38 a network that was granted lets the command run",
        "daemon/tiller_daemon/policy/shell/enclosures.py",
        "_implies",
        "A.granted and",
        "False and",
        "tests/session/calls/test_network.py"
        "::test_one_question_is_about_the_command_and_the_network",
    ),
    Fault(
        "B38 a denial of the network closes it to the whole line",
        NETWORK,
        "judge_network",
        "[A for B in C.commands if (A := strict_rule(B, NETWORK, D))]",
        "list[Rule]()",
        "tests/policy/shell/test_network.py::test_a_denial_of_one_command_leaves_nothing_to_ask",
    ),
    Fault(
        "B38 where the network is open nobody is asked about it",
        SESSION + "calls/turn_enclosures.py",
        "TurnEnclosures.network_requirements",
        'A.mode == "workspace_write" and not A.network',
        "True",
        "tests/session/calls/test_network.py"
        "::test_where_commands_have_the_network_anyway_no_question_is_about_it",
    ),
    Fault(
        "B38 always opens the network only to what is known to need it",
        "daemon/tiller_daemon/policy/always.py",
        "always_network_patterns",
        "always_patterns(A) if B else ()",
        "always_patterns(A)",
        "tests/policy/shell/test_network.py::test_always_names_the_program_and_what_it_does",
    ),
    Fault(
        "B38 a command gets the network that was permitted",
        SESSION + "calls/turn_enclosures.py",
        "TurnEnclosures.enclose",
        "network=A",
        "network=False",
        "tests/session/calls/test_network.py"
        "::test_one_question_is_about_the_command_and_the_network",
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
