"""How the live part fits a terminal that is too low for it."""

from tiller_client.chat.frame import Parts, compose
from tiller_client.chat.rows import PROMPT


def test_the_chosen_answer_and_the_editor_are_seen_on_a_low_terminal() -> None:
    question = ["? Run git push", *(f"answer {n}" for n in range(1, 9)), "a letter chooses"]
    for height in (4, 6, 10):
        for chosen in range(len(question)):
            parts = Parts(
                live=["old"] * 9,
                question=question,
                chosen=chosen,
                editor=[PROMPT],
                cursor=(0, 2),
                status=["status"],
            )
            frame = compose(parts, height)
            assert len(frame.rows) <= height
            assert question[chosen] in frame.rows
            assert frame.rows[frame.cursor[0]] == PROMPT
