"""How messages reach a target that fails, is slow, or is dead."""

from collections.abc import Callable

import trio

from support.notice_board import Board
from tiller_daemon.notify.delivery import ATTEMPT_S, PAUSES_S, WAITING_MAX, Delivery, TargetProblem
from tiller_daemon.notify.messages import Message

ATTEMPTS = len(PAUSES_S) + 1


def message(session_id: str, text: str = "Run ls") -> Message:
    return Message(session_id, "needs_answer", "shop needs an answer", text, "/work/shop")


def failing(*failures: Exception) -> Callable[[], Exception | None]:
    left = list(failures)
    return lambda: left.pop(0) if left else None


async def deliver(board: Board, nursery: trio.Nursery) -> Delivery:
    delivery = Delivery(board, "board")
    nursery.start_soon(delivery.run)
    await trio.testing.wait_all_tasks_blocked()
    return delivery


async def test_a_message_is_shown_replaced_and_withdrawn(autojump_clock, nursery) -> None:
    board = Board()
    delivery = await deliver(board, nursery)
    for wanted in (message("a"), message("a", "Run pwd"), None):
        delivery.put("a", wanted)
        await trio.testing.wait_all_tasks_blocked()
        assert board.shown == ({"a": wanted.text} if wanted else {})


async def test_a_failed_message_is_tried_again_and_then_dropped(autojump_clock, nursery) -> None:
    board = Board(failing(*[TargetProblem("away")] * (ATTEMPTS - 1)))
    delivery = await deliver(board, nursery)
    delivery.put("a", message("a"))
    await trio.sleep(sum(PAUSES_S) + 1)
    assert (board.shown, board.attempts) == ({"a": "Run ls"}, ATTEMPTS)

    dead = Board(failing(*[TargetProblem("away")] * 100))
    delivery = await deliver(dead, nursery)
    delivery.put("a", message("a"))
    await trio.sleep(10 * sum(PAUSES_S))
    assert (dead.shown, dead.attempts) == ({}, ATTEMPTS)


async def test_what_can_never_succeed_is_not_tried_again(autojump_clock, nursery) -> None:
    board = Board(failing(TargetProblem("no such topic", final=True)))
    delivery = await deliver(board, nursery)
    delivery.put("a", message("a"))
    await trio.sleep(sum(PAUSES_S))
    assert board.attempts == 1


async def test_what_was_answered_meanwhile_is_not_shown(autojump_clock, nursery) -> None:
    board = Board(failing(TargetProblem("away")))
    delivery = await deliver(board, nursery)
    delivery.put("a", message("a"))
    await trio.testing.wait_all_tasks_blocked()
    delivery.put("a", None)
    await trio.sleep(sum(PAUSES_S))
    assert (board.shown, board.attempts) == ({}, 1)


async def test_a_target_that_hangs_delays_only_its_own_messages(autojump_clock, nursery) -> None:
    class Dead(Board):
        async def _attempt(self) -> None:
            self.attempts += 1
            await trio.sleep_forever()

    dead = Dead()
    delivery = await deliver(dead, nursery)
    for number in range(3 * WAITING_MAX):
        delivery.put(f"s{number}", message(f"s{number}"))  # returns at once
    await trio.sleep(ATTEMPTS * ATTEMPT_S + sum(PAUSES_S) + 1)
    assert dead.attempts == ATTEMPTS + 1, "then the next message has its turn"


async def test_a_defect_in_a_target_ends_nothing(autojump_clock, nursery) -> None:
    board = Board(failing(ZeroDivisionError()))
    delivery = await deliver(board, nursery)
    delivery.put("a", message("a"))
    delivery.put("b", message("b"))
    await trio.testing.wait_all_tasks_blocked()
    assert board.shown == {"b": "Run ls"}
