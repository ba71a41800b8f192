#!/usr/bin/env python3
"""Compares the results of all agents: prints a table of medians and draws a picture.

    .venv/bin/python scripts/bench/agents.py [RESULTS] [--picture FILE.svg]

RESULTS has one run per line, like `docs/performance/peers.jsonl`. The picture needs matplotlib,
which `scripts/setup` does not install.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

RESULTS = Path(__file__).parents[2] / "docs" / "performance" / "peers.jsonl"
AGENTS = ("codex", "opencode", "pi", "floor", "tiller")
COLOURS = ("tab:blue", "tab:green", "tab:purple", "tab:gray", "tab:red")
STEPS_PER_POINT = 10

FAILED = ("died", "failed", "error", "timeout", "torn")
"""Outcomes of runs whose figures mean nothing."""

Run = dict[str, Any]
Figure = Callable[[list[Run]], float | None]


def _median_of(name: str, scale: float = 1.0, **wanted: object) -> Figure:
    """Return a function that takes the median of a field over the runs with the wanted values."""

    def figure(runs: list[Run]) -> float | None:
        values = [
            run[name]
            for run in runs
            if run.get(name) is not None
            and run.get("status") not in FAILED
            and all(run.get(k) == v for k, v in wanted.items())
        ]
        return median(values) * scale if values else None

    return figure


def _cpu_of_step(test: str, steps: int) -> Figure:
    """Return a function that computes how many CPU milliseconds each step after the first adds."""
    all_of_them, one = (_median_of("cpu", 1000, test=test, tool="shell", k=k) for k in (steps, 1))

    def figure(runs: list[Run]) -> float | None:
        many, few = all_of_them(runs), one(runs)
        return None if many is None or few is None else (many - few) / (steps - 1)

    return figure


FIGURES: dict[str, Figure] = {
    "step with one `echo`, ms": _median_of("gap_med_ms", test="steps", tool="shell", k=200),
    "step with one `touch`, ms": _median_of("gap_med_ms", test="touch", k=50),
    "step with a read of 20 lines, ms": _median_of("gap_med_ms", test="steps", tool="read"),
    "eight reads in one response, ms": _median_of("gap_ms", test="parallel", tool="read"),
    "CPU of a step with `echo`, ms": _cpu_of_step("steps", 200),
    "CPU of a step with `touch`, ms": _cpu_of_step("touch", 50),
    "input to request, ms": _median_of("req", test="server"),
    "the same, first turn, ms": _median_of("first_turn_req_ms", test="server"),
    "input to its acknowledgement, ms": _median_of("ack", test="server"),
    "new session, ms": _median_of("new_session_ms", test="server"),
    "first delta to the frontend, ms": _median_of("delta", test="server"),
    "end of the stream to the end of the turn, ms": _median_of("done", test="server"),
    "CPU of a turn, ms": _median_of("cpu_ms_per_turn", test="server"),
    "CPU of a delta at full speed, us": _median_of("us_per_delta", test="stream", d=20000),
    "CPU of a delta every 2 ms, us": _median_of("us_per_delta", test="stream", pace=2),
    "100 sessions: duration, s": _median_of("wall", test="concurrent", n=100),
    "100 sessions: CPU, s": _median_of("cpu", test="concurrent", n=100),
    "100 sessions: input to request, ms": _median_of("req_ms_med", test="concurrent", n=100),
    "idle server, MB": _median_of("idle_rss_mb", test="server"),
    "idle server without what it shares, MB": _median_of("idle_pss_mb", test="server"),
    "session that has worked, of 100, MB": _median_of(
        "mb_per_idle_session", test="concurrent", n=100
    ),
    "start of the server, ms": _median_of("ready_s", 1000, test="server"),
    "one-shot to request, same home, ms": _median_of(
        "to_first_req", 1000, test="oneshot", home="warm"
    ),
    "one-shot to request, new home, ms": _median_of(
        "to_first_req", 1000, test="oneshot", home="fresh"
    ),
    "interrupt of a stream to the end of the turn, ms": _median_of(
        "to_event_ms", test="cancel", case="stall"
    ),
    "interrupt of a command to the end of the turn, ms": _median_of(
        "to_event_ms", test="cancel", case="tool"
    ),
    "the same, to the end of its process, ms": _median_of(
        "child_dead_ms", test="cancel", case="tool"
    ),
}


def _rounded(value: float | None) -> str:
    if value is None:
        return "-"
    digits = 0 if value >= 20 else 1 if value >= 2 else 2
    return f"{value:,.{digits}f}"


def table(runs: Sequence[Run]) -> str:
    """Return the medians as a Markdown table."""
    by_agent = [[run for run in runs if run["agent"] == agent] for agent in AGENTS]
    rows = [
        [name, *(_rounded(figure(of_agent)) for of_agent in by_agent)]
        for name, figure in FIGURES.items()
    ]
    lines = [["Figure", *AGENTS], ["---"] * (len(AGENTS) + 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def draw(runs: Sequence[Run], path: Path) -> None:
    """Draw the figures for steps, concurrent sessions and deltas."""
    from matplotlib import pyplot  # pyright: ignore[reportMissingImports]

    pyplot.rcParams["svg.hashsalt"] = "tiller"  # Equal results must give identical files.
    figure, ((steps, cpu), (latency, deltas)) = pyplot.subplots(2, 2, figsize=(9.5, 7))
    steps.set(title="Steps", xlabel="step of a turn (one echo each)", yscale="log")
    steps.set_ylabel("response to next request, ms")
    cpu.set(title="Sessions at once: CPU", ylabel="CPU of the server, s")
    latency.set(title="Sessions at once: latency", ylabel="input to request, median, ms")
    for axes in (cpu, latency):
        axes.set(xlabel="sessions, each 200 deltas in 2 s", xscale="log", yscale="log")
        axes.set_xticks((1, 10, 50, 100), ("1", "10", "50", "100"))
    deltas.set(title="Deltas", ylabel="CPU of the server per delta, us", yscale="log")
    kinds = (
        ("2,000, one\nevery 2 ms", _median_of("us_per_delta", test="stream", pace=2)),
        ("2,000 at\nfull speed", _median_of("us_per_delta", test="stream", d=2000, pace=0)),
        ("20,000 at\nfull speed", _median_of("us_per_delta", test="stream", d=20000)),
    )
    deltas.set_xticks(range(len(kinds)), [name for name, _ in kinds])
    for place, (agent, colour) in enumerate(zip(AGENTS, COLOURS, strict=True)):
        own = [run for run in runs if run["agent"] == agent]
        gaps = [r["gaps"] for r in own if r["test"] == "steps" and r["k"] == 200]
        starts = range(0, min(map(len, gaps), default=0) - STEPS_PER_POINT + 1, STEPS_PER_POINT)
        means = [median(g for one in gaps for g in one[at : at + STEPS_PER_POINT]) for at in starts]
        steps.plot([at + STEPS_PER_POINT / 2 for at in starts], means, color=colour, label=agent)
        counts = sorted({r["n"] for r in own if r["test"] == "concurrent" and "cpu" in r})
        for axes, name in ((cpu, "cpu"), (latency, "req_ms_med")):
            values = [_median_of(name, test="concurrent", n=n)(own) for n in counts]
            axes.plot(counts, values, "o-", color=colour)
        bars = [value(own) or 0 for _, value in kinds]
        deltas.bar([n + (place - 2) * 0.16 for n in range(len(bars))], bars, 0.16, color=colour)
    steps.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Print the table, and draw the picture if its file is named."""
    parser = argparse.ArgumentParser(description="Show the results of all agents side by side.")
    parser.add_argument("results", nargs="?", type=Path, default=RESULTS)
    parser.add_argument("--picture", type=Path, help="file for the picture, as SVG")
    arguments = parser.parse_args()
    runs = [json.loads(line) for line in arguments.results.read_text().splitlines()]
    print(table(runs))
    if arguments.picture:
        draw(runs, arguments.picture)


if __name__ == "__main__":
    main()
