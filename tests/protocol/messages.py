"""Messages generated from the structs: one complete example of each, and random ones.

A new op, event, item or field is covered without a line here.
"""

import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin

import msgspec
from hypothesis import strategies as st
from msgspec import Meta, Struct

from tiller_protocol.answers import AnyAnswer, AnyResult
from tiller_protocol.events import AnyBody, Event
from tiller_protocol.items import Item
from tiller_protocol.ops import AnyOp, Submission
from tiller_protocol.snapshot import Snapshot

INT64 = 2**63 - 1
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), INT64) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=3,
)


def examples() -> Iterator[tuple[str, Struct]]:
    """Yield a name and a message with all fields present, for each member of each union."""
    for one in get_args(AnyOp):
        yield f"op {tag_of(one)}", Submission("01J", example(one), "tests", "secret")
    for one in get_args(AnyBody):
        if tag_of(one) not in ("item_started", "item_completed"):
            yield f"event {tag_of(one)}", _event(example(one))
    for one in get_args(Item):
        yield f"item {tag_of(one)}", _event(_body("item_started")(example(one)))
    yield "event item_completed", _event(example(_body("item_completed")))
    for one in get_args(AnyAnswer):
        yield f"answer {tag_of(one)}", example(one)
    for one in get_args(AnyResult):
        yield f"result {tag_of(one)}", _answer("accepted")("01J", example(one))
    yield "snapshot", example(Snapshot)


def tag_of(struct: type[Struct]) -> str:
    """The value of `type` on the wire."""
    return str(struct.__struct_config__.tag)


def example(wanted: Any) -> Any:
    """A value of the type with all optional fields present."""
    wanted, _ = _plain(wanted)
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin is Literal:
        return arguments[-1]
    if origin in (Union, types.UnionType):
        return example(next(one for one in arguments if one is not type(None)))
    if origin in (tuple, list):
        return origin([example(arguments[0])])
    if origin is dict and arguments[1] is not Any:
        return {"type": example(arguments[1])}
    if origin is dict or wanted is Any:
        return {"type": "object"}
    if issubclass(wanted, Struct):
        fields = msgspec.structs.fields(wanted)
        return wanted(**{field.name: example(field.type) for field in fields})
    return {str: "tëxt", int: 7, float: 1.5, bool: True, bytes: b"\x00\xff"}[wanted]


def random_value(wanted: Any) -> st.SearchStrategy[Any]:
    """A strategy for values of the type."""
    wanted, meta = _plain(wanted)
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, types.UnionType):
        return st.one_of([random_value(one) for one in arguments])
    if origin in (tuple, list):
        return st.lists(random_value(arguments[0]), max_size=2).map(origin)
    if origin is dict:
        values = JSON_VALUES if arguments[1] is Any else random_value(arguments[1])
        return st.dictionaries(st.text(max_size=3), values, max_size=2)
    if wanted is type(None):
        return st.none()
    if issubclass(wanted, Struct):
        fields = msgspec.structs.fields(wanted)
        return st.builds(wanted, **{field.name: random_value(field.type) for field in fields})
    low, high = (meta.ge, meta.le) if meta else (None, None)
    texts = st.text(min_size=(meta.min_length or 0) if meta else 0, max_size=6)
    return {
        str: texts,
        int: st.integers(
            -(2**63) if low is None else int(low), INT64 if high is None else int(high)
        ),
        float: st.floats(
            min_value=(meta.ge if meta.gt is None else meta.gt) if meta else None,
            exclude_min=bool(meta and meta.gt is not None),
            allow_nan=False,
            allow_infinity=False,
        ),
        bool: st.booleans(),
        bytes: st.binary(max_size=4),
    }[wanted]


def random_message(wanted: Any) -> st.SearchStrategy[Any]:
    """A strategy for whole messages: `Submission`, `Event`, an answer, `Snapshot`."""
    return random_value(wanted)


def _plain(wanted: Any) -> tuple[Any, Meta | None]:
    """Strip `Annotated` and `NewType`; also return the constraints."""
    meta = None
    while get_origin(wanted) is Annotated or isinstance(wanted, NewType):
        if isinstance(wanted, NewType):
            wanted = wanted.__supertype__
        else:
            wanted, *metas = get_args(wanted)
            meta = next((one for one in metas if one.description is None), meta)
    return wanted, meta


def _event(body: AnyBody) -> Event:
    return Event(3, "01JSESSION", 1.25, body, "01JTURN", "01J")


def _body(tag: str) -> Any:
    return next(one for one in get_args(AnyBody) if tag_of(one) == tag)


def _answer(tag: str) -> Any:
    return next(one for one in get_args(AnyAnswer) if tag_of(one) == tag)
