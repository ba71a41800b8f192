"""Images for a model: known by their content, checked whole, and made as small as providers take.

An image that a provider refuses is refused with every later request of its session, so none gets
into history unchecked. Decoding is Pillow's; it is imported with the first image.
"""

import ctypes
import io
import warnings
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from tiller_daemon.files.png import SIGNATURE, is_whole, only_pixels
from tiller_protocol.items import Image

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

SIDE_PIXELS_MAX: Final = 2000
"""Longest side of an image that a model gets. Anthropic refuses a longer one as soon as a request
has more than 20 images (https://platform.claude.com/docs/en/build-with-claude/vision), OpenAI
shrinks to 2048 and less itself; a screen of 1920 x 1080 stays as it is."""

FILE_BYTES_MAX: Final = 3_750_000
"""Largest file of an image that a model gets: Anthropic takes 5 MB of base64, which is a third
longer; others take more."""

PIXELS_MAX: Final = 50_000_000
"""More are not even decoded: what the sensor of a phone has, and a few less than the 8000 x 8000
that Anthropic takes. Decoded they take up to 400 MB for a moment, so it is one image at a time."""

JPEG_QUALITY: Final = 88
PNG_COMPRESSION: Final = 3
"""zlib's level: half the time of the usual 6, and of a screenshot that was made smaller no more
bytes (measured: 1.5 MB instead of 2.3)."""

SHRINK: Final = 0.75
"""An image that is still too large a file becomes so much smaller, again and again."""

_BEGINNINGS: Final = (SIGNATURE, b"\xff\xd8\xff", b"GIF87a", b"GIF89a")
BEGINNING_BYTES: Final = 12
"""How much of a file tells whether it is an image."""

_FORMATS: Final = ("PNG", "JPEG", "GIF", "WEBP")

_TAKEN_AS_THEY_ARE: Final = {"PNG": "image/png", "JPEG": "image/jpeg", "MPO": "image/jpeg"}
"""By Pillow's names what every provider takes; some take no GIF, others no WebP, none more than one
frame. MPO is what many cameras make: a JPEG with more behind it."""

_ORIENTATION: Final = 0x0112
"""The tag of EXIF that says how a camera was held."""

UPRIGHT: Final = 1

_limiter: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("image_limiter")


class ImageProblem(Exception):
    """Bytes that can't be shown to a model; the message is a clause that says why."""


class FittedImage(NamedTuple):
    """An image as a model gets it, in pixels `width` by `height`; it was `before` by its file."""

    image: Image
    width: int
    height: int
    before: tuple[int, int]


def is_image(beginning: bytes) -> bool:
    """Whether the first `BEGINNING_BYTES` are those of a PNG, JPEG, GIF or WebP."""
    webp = beginning[:4] == b"RIFF" and beginning[8:12] == b"WEBP"
    return webp or beginning.startswith(_BEGINNINGS)


async def fit_image(data: bytes) -> FittedImage:
    """Check the bytes of a file, and make them smaller where they are too large.

    Takes up to a second in a thread of its own. Raises `ImageProblem`.
    """
    return await trio.to_thread.run_sync(
        _fit, data, abandon_on_cancel=True, limiter=_one_at_a_time()
    )


def _one_at_a_time() -> trio.CapacityLimiter:
    try:
        return _limiter.get()
    except LookupError:
        limiter = trio.CapacityLimiter(1)
        _limiter.set(limiter)
        return limiter


@cache
def _open() -> "Callable[[bytes], Picture]":
    """Pillow's `open`, for the formats that are wanted; what may be a bomb is an error."""
    from PIL import GifImagePlugin, JpegImagePlugin, PngImagePlugin, WebPImagePlugin
    from PIL import Image as pillow  # noqa: N813 - it is the module

    assert GifImagePlugin
    assert JpegImagePlugin
    assert PngImagePlugin
    assert WebPImagePlugin
    pillow.MAX_IMAGE_PIXELS = PIXELS_MAX
    warnings.simplefilter("error", pillow.DecompressionBombWarning)
    return lambda data: pillow.open(io.BytesIO(data), formats=_FORMATS)


def _fit(data: bytes) -> FittedImage:
    if not is_image(data[:BEGINNING_BYTES]):
        begin = data[:BEGINNING_BYTES].hex(" ")
        raise ImageProblem(
            f"it is no PNG, JPEG, GIF or WebP: it begins with the bytes {begin or '(none)'}"
        )
    outcome = _try_decode(data)
    if isinstance(outcome, ImageProblem) and data.startswith(SIGNATURE):
        # Often it is only a colour profile or a text that is broken; viewers show it without.
        pixels = only_pixels(data)
        outcome = _try_decode(pixels) if pixels != data else outcome
    _release_memory()
    if isinstance(outcome, ImageProblem):
        raise outcome
    return outcome


def _try_decode(data: bytes) -> "FittedImage | ImageProblem":
    try:
        return _decode(data)
    except Exception as error:  # decoders raise whatever broken bytes lead them to
        return _problem(error)


def _decode(data: bytes) -> FittedImage:
    with _open()(data) as picture:
        kind, before = picture.format or "", picture.size
        if before[0] * before[1] > PIXELS_MAX:
            raise _too_many_pixels(before)
        # A JPEG can be decoded smaller at once, by a power of two and never below what is wanted.
        picture.draft("RGB", (SIDE_PIXELS_MAX, SIDE_PIXELS_MAX))
        picture.load()
        media_type = _TAKEN_AS_THEY_ARE.get(kind)
        fits = max(before) <= SIDE_PIXELS_MAX and len(data) <= FILE_BYTES_MAX
        if media_type and fits and _orientation(picture) == UPRIGHT and _is_clean(kind, data):
            return FittedImage(Image(media_type, data), *before, before)
        return _reencode(picture, before, lossy=kind in ("JPEG", "MPO", "WEBP"))


def _reencode(picture: "Picture", before: tuple[int, int], *, lossy: bool) -> FittedImage:
    """The first frame, upright, as a PNG or JPEG that fits. Nothing else of the file is kept."""
    from PIL import Image as pillow  # noqa: N813 - it is the module
    from PIL import ImageOps

    small = _to_rgb(picture)
    side = SIDE_PIXELS_MAX
    while True:
        small.thumbnail((side, side), pillow.Resampling.LANCZOS, reducing_gap=3.0)
        upright = small if _orientation(small) is None else ImageOps.exif_transpose(small)
        for encode in (_as_jpeg,) if lossy and upright.mode == "RGB" else (_as_png, _as_jpeg):
            image = encode(upright)
            if len(image.data) <= FILE_BYTES_MAX:
                return FittedImage(image, *upright.size, before)
        side = max(1, int(max(small.size) * SHRINK))


def _orientation(picture: "Picture") -> int | None:
    """How the camera was held; None when what should say so is broken."""
    try:
        return picture.getexif().get(_ORIENTATION, UPRIGHT)
    except Exception:  # as above
        return None


def _is_clean(kind: str, data: bytes) -> bool:
    """Whether a stricter decoder than Pillow has nothing to complain of; told of PNG only."""
    return kind != "PNG" or is_whole(data)


def _to_rgb(picture: "Picture") -> "Picture":
    """The picture in a mode that can be made smaller without steps, as palettes can't."""
    if picture.mode.startswith("I"):
        # Sixteen bits of grey: a conversion would cut all that is bright to white.
        grey = picture.point(lambda value: value * (1 / 256))  # pyright: ignore[reportUnknownMemberType]
        picture = grey.convert("L")
    wanted = "RGBA" if picture.has_transparency_data else "RGB"
    return picture if picture.mode == wanted else picture.convert(wanted)


def _as_png(picture: "Picture") -> Image:
    return _encode(picture, "PNG", compress_level=PNG_COMPRESSION)


def _as_jpeg(picture: "Picture") -> Image:
    """On white where something shows through: JPEG knows no transparency."""
    if picture.mode == "RGBA":
        from PIL import Image as pillow  # noqa: N813 - it is the module

        ground = pillow.new("RGBA", picture.size, "white")
        picture = pillow.alpha_composite(ground, picture).convert("RGB")
    return _encode(picture, "JPEG", quality=JPEG_QUALITY)


def _encode(picture: "Picture", kind: str, **options: int) -> Image:
    into = io.BytesIO()
    picture.save(into, kind, icc_profile=None, exif=b"", **options)
    return Image(_TAKEN_AS_THEY_ARE[kind], into.getvalue())


def _release_memory() -> None:
    """Let the system have what pictures took: glibc would keep up to 400 MB of it for later."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _problem(error: Exception) -> ImageProblem:
    if isinstance(error, ImageProblem):
        return error
    match type(error).__name__:  # Pillow's own classes
        case "DecompressionBombError" | "DecompressionBombWarning":
            return _too_many_pixels()
        case "UnidentifiedImageError":
            return ImageProblem("it is broken: what follows its first bytes makes no sense")
        case _:
            pass
    reason = " ".join(str(error).split()) or type(error).__name__
    return ImageProblem(f"it is broken: {reason[:200]}")


def _too_many_pixels(size: tuple[int, int] | None = None) -> ImageProblem:
    named = f" ({size[0]} x {size[1]})" if size else ""
    return ImageProblem(
        f"it has more than {PIXELS_MAX:,} pixels{named}; make it smaller, or cut out what matters"
    )
