"""Three hosts do many tasks while a host, the network and the broker fail."""

import os
import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from e2e.words import bash, calls, text
from support.fleet import Broker, Host, fleet_of, repository, wait_until

TASKS = int(os.environ.get("TILLER_FLEET_TASKS", "60"))
SEEDS = int(os.environ.get("TILLER_FLEET_SEEDS", "1"))
BATCHES = 10
LOST_S = 60.0
END_S = 900.0
OUTCOMES = {"completed", "interrupted"}


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_task_has_one_outcome_and_nothing_is_lost(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    runs = tmp_path / "runs"
    origin = repository(tmp_path / "origin")
    commit = "git -c user.name=t -c user.email=t@t.invalid commit -qam Two"
    command = f"echo $$ >> {runs}; sleep 0.5; echo two >> a.txt; {commit}"
    with fleet_of(tmp_path, 3, "slots = 3") as (broker, hosts):
        for host in hosts:
            host.daemon.play("main", calls(bash(command)), text("Done."))
        asking = hosts[0]
        tasks = [
            task
            for retry in (("--retry", "2"), ()) * (BATCHES // 2)
            for task in asking.run("Go", origin, "--n", str(TASKS // BATCHES), *retry)
        ]
        wait_until(lambda: runs.exists())
        faults = [
            threading.Thread(target=_lose, args=(hosts[2], chance.random())),
            threading.Thread(target=_partition, args=(hosts[1],)),
            threading.Thread(target=_kill_broker, args=(broker, chance.random())),
        ]
        for fault in faults:
            fault.start()
        for fault in faults:
            fault.join()
        ended: dict[str, Any] = {}

        def all_ended() -> bool:
            ended.update(asking.tasks())
            return Counter(one["state"] for one in ended.values()) == {"done": TASKS}

        wait_until(all_ended, END_S)
        assert set(ended) == set(tasks)
        reports = [one["report"] for one in ended.values()]
        assert [one for one in reports if one["outcome"] not in OUTCOMES] == []
        for host in hosts:
            _check_stream(host)


def _lose(host: Host, share: float) -> None:
    """A power cut, and a start some time later."""
    _sleep(5 * share)
    host.kill()
    _sleep(70)
    host.daemon.start()
    host.start_gateway()


def _partition(host: Host) -> None:
    _sleep(2)
    host.link.hold()
    _sleep(LOST_S)
    host.link.release()


def _kill_broker(broker: Broker, share: float) -> None:
    _sleep(8 * share)
    broker.kill9()
    _sleep(3)
    broker.start()


def _sleep(seconds: float) -> None:
    threading.Event().wait(seconds)


def _check_stream(host: Host) -> None:
    """All sessions in the stream are as in the host's log."""
    for session in host.lines("ls"):
        name = session["session_id"]
        logged = host.tiller("log", name, "--json").stdout.splitlines()
        durable = [one for one in logged if '"item_delta"' not in one]

        def is_complete(name: str = name, durable: list[str] = durable) -> bool:
            place = f"{name}@{host.name}"
            return host.tiller("fleet", "logs", place, "--json").stdout.splitlines() == durable

        wait_until(is_complete)
