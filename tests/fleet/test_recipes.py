"""The recipes in docs/fleet: files that fit their schemas, and activities that submit once."""

import asyncio
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Generator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from e2e.words import bash, calls, text
from support.fleet import Host, fleet_of, repository
from tiller_protocol.fleet import Fleet

RECIPES = Path(__file__).parents[2] / "docs" / "fleet"
SCHEMAS = Path(__file__).with_name("agent_sandbox.json")
"""The specs of agent-sandbox's v1beta1 at 2fd412d5, but without `podTemplate.spec`, a Pod's."""

KUBERNETES = "1.33"
"""The oldest version that docs/fleet/kubernetes.yaml names."""


def documents(name: str) -> list[dict[str, Any]]:
    yaml = pytest.importorskip("yaml")
    return list(yaml.safe_load_all((RECIPES / name).read_text()))


def kubernetes(document: dict[str, Any]) -> None:
    package = pytest.importorskip("kubernetes_validate")
    package.validate(document, KUBERNETES, strict=True)


def closed(schema: Any) -> Any:
    """The schema without unknown fields, which the server would drop."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(one) for key, one in schema.items()}
    if "properties" in schema and isinstance(schema["properties"], dict):
        found["additionalProperties"] = False
    return found


def test_the_kubernetes_example_fits_its_schemas() -> None:
    for document in documents("kubernetes.yaml"):
        kubernetes(document)


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze")
    tiller = tmp_path / ".local" / "bin" / "tiller"
    tiller.parent.mkdir(parents=True)
    tiller.symlink_to(sys.executable)
    done = subprocess.run(
        [program, "--user", "verify", str(RECIPES / "tiller-gateway.service")],
        env={"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path), "PATH": os.environ["PATH"]},
        capture_output=True,
        check=False,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_configuration_in_the_kubernetes_example_is_valid() -> None:
    (config,) = (one for one in documents("kubernetes.yaml") if one["kind"] == "ConfigMap")
    msgspec.convert(tomllib.loads(config["data"]["config.toml"])["fleet"], Fleet)


def test_the_agent_sandbox_example_fits_its_schemas() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schemas = json.loads(SCHEMAS.read_text())
    found = documents("agent-sandbox.yaml")
    assert [one["kind"] for one in found] == ["SandboxTemplate", "SandboxWarmPool", "SandboxClaim"]
    for one in found:
        assert one["apiVersion"] == "extensions.agents.x-k8s.io/v1beta1"
        jsonschema.validate(one["spec"], closed(schemas[one["kind"]]))


def test_both_examples_run_the_same_pod() -> None:
    template = next(one for one in documents("agent-sandbox.yaml") if "podTemplate" in one["spec"])
    pod = template["spec"]["podTemplate"]["spec"]
    deployment = next(one for one in documents("kubernetes.yaml") if one["kind"] == "Deployment")
    assert pod == deployment["spec"]["template"]["spec"]
    kubernetes({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": pod})


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Generator[Host]:
    pytest.importorskip("temporalio")
    with fleet_of(tmp_path_factory.mktemp("f"), 1) as (_, hosts):
        yield hosts[0]


@pytest.fixture
def worker(host: Host, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module with the activities, which run `tiller` as on this host."""
    for name, value in host.daemon.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.syspath_prepend(str(RECIPES))
    import temporal_worker  # pyright: ignore[reportMissingImports] - found by the line above

    monkeypatch.setattr(temporal_worker, "POLL", timedelta(seconds=0.1))
    return temporal_worker


def attempt(origin: Path, cursor: object = None) -> Any:
    """An attempt of an activity; `cursor` is what the former attempt's heartbeat carried."""
    from temporalio.testing import (  # pyright: ignore[reportMissingImports] - not everywhere
        ActivityEnvironment,
    )

    found = ActivityEnvironment()
    found.info = dataclasses.replace(
        found.info, workflow_id=str(origin), heartbeat_details=cursor or []
    )
    return found


def submit(worker: Any, origin: Path, *options: str) -> str:
    return str(asyncio.run(attempt(origin).run(worker.submit, "Go", str(origin), list(options))))


def test_an_activity_that_is_tried_again_submits_no_second_task(
    host: Host, worker: Any, tmp_path: Path
) -> None:
    origin = repository(tmp_path / "origin")
    model = "--model", host.daemon.script(calls(bash("true")), text("Done."))
    before = host.tasks()
    task = submit(worker, origin, *model)
    assert submit(worker, origin, *model) == task
    assert host.tasks().keys() - before == {task}
    with pytest.raises(worker.ApplicationError, match="another prompt or other options") as found:
        submit(worker, origin, *model, "--push")
    assert found.value.non_retryable


def test_waiting_goes_on_after_the_event_that_the_heartbeat_carries(
    host: Host, worker: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    def said() -> int:
        return sum(one.startswith("All done.") for one in caplog.messages)

    origin = repository(tmp_path / "origin")
    task = submit(worker, origin, "--model", host.daemon.script(text("All done.")))
    first = attempt(origin)
    beats: list[tuple[str, int]] = []
    first.on_heartbeat = lambda *details: beats.append(details)
    assert asyncio.run(first.run(worker.wait, task))["report"]["outcome"] == "completed"
    assert said() == 1
    asyncio.run(attempt(origin, beats[-1]).run(worker.wait, task))
    assert said() == 1
    asyncio.run(attempt(origin).run(worker.wait, task))
    assert said() == 2


def test_a_cancelled_activity_cancels_its_task(host: Host, worker: Any, tmp_path: Path) -> None:
    origin = repository(tmp_path / "origin")
    sleep = host.daemon.script(calls(bash("sleep 1000")), text("Late."))
    task = submit(worker, origin, "--model", sleep)

    async def cancelled() -> None:
        run = attempt(origin)
        run.on_heartbeat = lambda *_: run.cancel()
        await run.run(worker.wait, task)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert host.ended(task)["state"] == "cancelled"
