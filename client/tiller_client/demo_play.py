"""Data of the demo: a small project with a real bug, and a script of the model's responses.

The tools, the daemon and the failing test are real; only the model is scripted.
"""

import json
from typing import Any

PROMPT = "A test has failed since we added the discount. Find out why and fix it."
STEERING = "Whole numbers only, please: no floats for money."
ANSWER = "once"

PROJECT = {
    "shop/__init__.py": "",
    "shop/prices.py": '''\
"""Prices, in cents."""


def total(cents: list[int], discount_percent: int = 0) -> int:
    """Return the sum less the discount, rounded to the nearest cent."""
    subtotal = sum(cents)
    return subtotal - subtotal * discount_percent // 100
''',
    "shop/cart.py": '''\
"""The shopping cart."""

from shop.prices import total


class Cart:
    """Items by name, with their price in cents."""

    def __init__(self) -> None:
        self.items: dict[str, int] = {}

    def to_pay(self, discount_percent: int = 0) -> int:
        """Return the cents to pay."""
        return total(list(self.items.values()), discount_percent)
''',
    "tests/__init__.py": "",
    "tests/test_prices.py": """\
import time
import unittest

from shop.prices import total


def setUpModule() -> None:
    time.sleep(1.2)  # a suite that takes a moment


class TestTotal(unittest.TestCase):
    def test_prices_add_up(self) -> None:
        self.assertEqual(total([250, 749]), 999)

    def test_a_discount_is_rounded_to_the_nearest_cent(self) -> None:
        self.assertEqual(total([250, 749], 15), 849)
""",
    ".gitignore": "__pycache__/\n",
}

OLD_LINE = "    return subtotal - subtotal * discount_percent // 100\n"
NEW_LINE = "    return (subtotal * (100 - discount_percent) + 50) // 100\n"


def configuration(scripts: str) -> str:
    """The daemon's configuration: the scripted model, and permission to run the tests."""
    return f"""\
model = "demo/repair"

[providers.demo]
api = "scripted"
scripts = {json.dumps(scripts, ensure_ascii=False)}

[[permissions]]
permission = "bash"
pattern = "python3 -m unittest*"
action = "allow"
"""


def script() -> dict[str, Any]:
    """The model's responses in the format of the `scripted` provider, one step per request."""
    return {
        "title": {"parts": [_say("Round discounts to the nearest cent")]},
        "steps": [
            _step(
                {
                    "type": "reasoning",
                    "text": "The code, its test and its callers: three reads, in any order.",
                    "pieces": 6,
                },
                _say("I'll read the code, its test and its callers at the same time."),
                _call("read", path="shop/prices.py"),
                _call("read", path="tests/test_prices.py"),
                _call("grep", pattern=r"total\(", path="."),
            ),
            _step(
                _say(
                    "The discount is rounded down before it is subtracted. "
                    "First I'll watch the test fail."
                ),
                _call("bash", command="python3 -m unittest"),
            ),
            _step(
                _say(
                    "Expected 849, got 850. I was about to use round(); since you want whole "
                    "numbers, I'll add half a cent before the division."
                ),
                _call("edit", path="shop/prices.py", old=OLD_LINE, new=NEW_LINE),
                expects=STEERING,
            ),
            _step(
                _say("Now I'll run the tests again."),
                _call("bash", command="python3 -m unittest"),
            ),
            _step(
                _say(
                    "Fixed: `total` rounded the discount down, so 9.99 less 15 % came out one cent "
                    "too high. It now rounds the result to the nearest cent, in whole numbers. "
                    "Both tests pass; `Cart.to_pay` needs no change."
                ),
            ),
        ],
    }


def _step(*parts: dict[str, Any], expects: str = "") -> dict[str, Any]:
    """One response, after a short silence like that of a real model.

    The step fails unless the messages since the last response contain `expects`.
    """
    usage = {"input_tokens": 1800, "cached_input_tokens": 1500, "output_tokens": 90}
    pause = {"type": "wait", "seconds": 0.4}
    return {"parts": [pause, *parts], "usage": usage, "expect": {"contains": expects}}


def _say(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "pieces": 8}


def _call(name: str, **arguments: str) -> dict[str, Any]:
    return {"type": "tool_call", "name": name, "arguments": arguments}
