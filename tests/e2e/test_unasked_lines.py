"""Lines that run unasked are really run in a hostile workspace, and nothing gets out (B38).

These are a sample of lines from people and attackers; `scripts/soak/command_lines.py --run` runs
all lines.
"""

import os
import random
import sys
from collections import Counter
from functools import cache

import pytest

from policy.questions import labelled
from policy.shell.attack_lines import ATTACKS
from policy.shell.bypasses_of_working import HELD_BYPASSES
from policy.shell.command_lines import BYPASSES, HONEST
from support.each import each
from support.jail import WHO, jail_of, sandbox_for
from support.unasked_lines import Line, Watch, make_hostile, unasked
from tiller_daemon.sandbox.level import SandboxLevel

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="they are for Linux")

SEED = int(os.environ.get("TEST_SEED", "20261122"))
SAMPLE = 75
"""Number of lines for each user; they take about 15 s."""


@cache
def lines_attacking() -> list[Line]:
    return unasked(attack.text for attack in ATTACKS)


@cache
def lines_of_people() -> list[Line]:
    texts = [
        one.text for name in ("agent_commands.txt", "script_lines.txt") for one in labelled(name)
    ]
    return unasked([*texts, *BYPASSES, *HELD_BYPASSES, *HONEST])


def test_there_are_enough_lines_to_mean_something() -> None:
    levels = Counter(line.level for line in lines_of_people())
    assert levels[SandboxLevel.READ_ONLY] >= 1_500
    assert levels[SandboxLevel.BUILD] >= 300
    assert len(lines_attacking()) >= 25


async def run_all(lines: list[Line], who: str) -> None:
    with jail_of() as jail:
        make_hostile(jail, lines)
        prefix = jail.as_user(who)
        watch = Watch(jail, sandbox_for("bubblewrap", prefix, jail.root))
        escaped = {line: got_out for line in lines if (got_out := await watch.run(line))}
    assert not escaped, f"TEST_SEED={SEED}: {escaped}"


@pytest.mark.timeout(300)
@each("who", WHO)
@pytest.mark.nightly
@pytest.mark.promise("B38")
async def test_whatever_runs_unasked_stays_in_its_sandbox(who: str) -> None:
    builds = [line for line in lines_of_people() if line.level is SandboxLevel.BUILD]
    reads = [line for line in lines_of_people() if line.level is SandboxLevel.READ_ONLY]
    choose = random.Random(f"{SEED}-{who}")
    chosen = [*choose.sample(reads, SAMPLE * 2 // 3), *choose.sample(builds, SAMPLE // 3)]
    await run_all(chosen, who)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("who", WHO)
@pytest.mark.promise("B38")
async def test_no_line_of_the_attack_gets_out(who: str) -> None:
    await run_all(lines_attacking(), who)


async def test_the_tools_of_the_hostile_workspace_do_get_out_where_nothing_holds_them() -> None:
    """Otherwise, these tests would prove nothing."""
    with jail_of() as jail:
        build = Line("make test", SandboxLevel.BUILD)
        make_hostile(jail, [build])
        found = sandbox_for("bubblewrap", [], jail.root)
        watch = Watch(jail, found)
        await jail.run(jail.sandbox(found, SandboxLevel.SESSION), "tools/evil")
        got_out = await watch.run(Line("true", SandboxLevel.READ_ONLY))
    assert "changed home/w/copied" in got_out
