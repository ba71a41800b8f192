#!/usr/bin/env python3
"""Measures the full-text index over sessions: filling it, its size on disk, searching it.

    .venv/bin/python scripts/bench/session_search.py [--sessions 2000]

Each session has 20 texts of 60 words, distributed as in natural language. The searches are for a
rare word, for a common word, and for a prefix of many words.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

from table import Row, print_rows

from tiller_daemon.store.base import SessionRow
from tiller_daemon.store.search_index import SearchIndex, Text
from tiller_daemon.store.search_query import match_expression

TEXTS, WORDS, VOCABULARY = 20, 60, 20_000
PAGE, RUNS = 20, 5
QUERIES = ("w9999", "w3", "w1*", '"w3 w7"')


def main() -> None:
    """Fill an index and search it."""
    parser = argparse.ArgumentParser(description="Measure the search over sessions.")
    parser.add_argument("--sessions", type=int, default=2_000)
    options = parser.parse_args()
    source = Random(5)
    words = [f"w{number}" for number in range(VOCABULARY)]
    weights = [1 / (number + 1) for number in range(VOCABULARY)]
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "search.db")
        index = SearchIndex(path, "log")
        size = 0
        took: list[float] = []
        for number in range(options.sessions):
            said = [" ".join(source.choices(words, weights, k=WORDS)) for _ in range(TEXTS)]
            size += sum(len(text) for text in said)
            row = SessionRow(f"{number:026}", "/w", 1.0, float(number), TEXTS)
            texts = [Text("input", text, 1.0, seq) for seq, text in enumerate(said, 1)]
            took.append(_cpu_ms(partial(index.add, row, TEXTS, texts)))
        rows = [Row(f"add {TEXTS} texts", "ms", tuple(took))]
        for query in QUERIES:
            find = partial(
                index.find,
                match_expression(query),
                None,
                archived=False,
                limit=PAGE,
                before=(float("inf"), ""),
            )
            rows.append(Row(f"search {query}", "ms", tuple(_cpu_ms(find) for _ in range(RUNS))))
        inputs = [_cpu_ms(lambda: index.inputs(None, 100, (float("inf"), 0))) for _ in range(RUNS)]
        rows.append(Row("the last 100 inputs", "ms", tuple(inputs)))
        index.close()
        rows.append(Row("file, per byte of text", "bytes", (path.stat().st_size / size,)))
        print_rows(rows)


def _cpu_ms(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1000


if __name__ == "__main__":
    main()
