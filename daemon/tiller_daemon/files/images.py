"""Images for a model: recognised by content, checked completely, and made small enough to send.

If a provider refuses an image, it refuses every later request of the session too. So no image gets
into the history unchecked. Pillow decodes images; it is imported with the first image.
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
"""The longest side of an image that a model gets. In requests with more than 20 images, Anthropic
refuses longer sides (https://platform.claude.com/docs/en/build-with-claude/vision). OpenAI shrinks
images to 2048 and less. A screenshot of 1920 x 1080 is sent unchanged."""

FILE_BYTES_MAX: Final = 3_750_000
"""The largest image file that a model gets. Anthropic takes 5 MB of base64, which is a third longer
than the file; other providers take more."""

PIXELS_MAX: Final = 50_000_000
"""Larger images are not decoded at all. Phone cameras have about as many pixels, and Anthropic
takes slightly more (8000 x 8000). Decoding takes up to 400 MB for a moment, so images are decoded
one at a time."""

JPEG_QUALITY: Final = 88
PNG_COMPRESSION: Final = 3
"""The zlib level. It takes half the time of the usual level 6, and reduced screenshots do not get
larger (measured: 1.5 MB instead of 2.3 MB)."""

SHRINK: Final = 0.75
"""As long as the file is too large, the image's sides are multiplied by this."""

_BEGINNINGS: Final = (SIGNATURE, b"\xff\xd8\xff", b"GIF87a", b"GIF89a")
BEGINNING_BYTES: Final = 12
"""How many bytes of a file show whether it is an image."""

_FORMATS: Final = ("PNG", "JPEG", "GIF", "WEBP")

_TAKEN_AS_THEY_ARE: Final = {"PNG": "image/png", "JPEG": "image/jpeg", "MPO": "image/jpeg"}
"""The formats that every provider accepts, by Pillow's names. Some providers refuse GIF, others
WebP, and all use only the first frame. MPO, which many cameras produce, is a JPEG followed by
further images."""

_ORIENTATION: Final = 0x0112
"""The EXIF tag for the camera's orientation."""

UPRIGHT: Final = 1

_limiter: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("image_limiter")


class ImageProblem(Exception):
    """The bytes can't be shown to a model; the message says why, in sentences about "it"."""


class FittedImage(NamedTuple):
    """An image for a model, with its sizes in pixels; `before` is the size in the original file."""

    image: Image
    size: tuple[int, int]
    before: tuple[int, int]


def is_image(beginning: bytes) -> bool:
    """Whether a file that starts with these bytes is a PNG, JPEG, GIF or WebP."""
    webp = beginning[:4] == b"RIFF" and beginning[8:12] == b"WEBP"
    return webp or beginning.startswith(_BEGINNINGS)


async def fit_image(data: bytes) -> FittedImage:
    """Check an image file, and reduce it if it is too large.

    Takes up to a second, in a separate thread. Raises `ImageProblem`.
    """
    return await trio.to_thread.run_sync(
        _fit, data, abandon_on_cancel=True, limiter=_one_at_a_time()
    )


def _one_at_a_time() -> trio.CapacityLimiter:
    try:
        return _limiter.get()
    except LookupError:
        # A limiter belongs to one run of trio, so it can't be a global.
        limiter = trio.CapacityLimiter(1)
        _limiter.set(limiter)
        return limiter


@cache
def _open() -> "Callable[[bytes], Picture]":
    """Return Pillow's `open` for the formats that are read; it refuses decompression bombs."""
    from PIL import Image as pillow  # noqa: N813 - it is the module
    from PIL import WebPImagePlugin

    # Pillow loads only its most common formats by itself.
    assert WebPImagePlugin
    pillow.MAX_IMAGE_PIXELS = PIXELS_MAX
    warnings.simplefilter("error", pillow.DecompressionBombWarning)
    return lambda data: pillow.open(io.BytesIO(data), formats=_FORMATS)


def _fit(data: bytes) -> FittedImage:
    if not is_image(data[:BEGINNING_BYTES]):
        start = data[:BEGINNING_BYTES].hex(" ")
        raise ImageProblem(
            f"It is not a PNG, JPEG, GIF or WebP: it starts with the bytes {start or '(none)'}."
        )
    outcome = _try_decode(data)
    if isinstance(outcome, ImageProblem) and data.startswith(SIGNATURE):
        # Often only a colour profile or a text is broken, and viewers ignore these too.
        pixels = only_pixels(data)
        outcome = _try_decode(pixels) if pixels != data else outcome
    _release_memory()
    if isinstance(outcome, ImageProblem):
        raise outcome
    return outcome


def _try_decode(data: bytes) -> "FittedImage | ImageProblem":
    try:
        return _decode(data)
    except Exception as error:  # with broken bytes, decoders may raise anything
        return _problem(error)


def _decode(data: bytes) -> FittedImage:
    with _open()(data) as picture:
        kind, before = picture.format or "", picture.size
        if before[0] * before[1] > PIXELS_MAX:
            raise _too_many_pixels(before)
        # A JPEG can be decoded at its size divided by a power of two, but never below the wanted
        # size.
        picture.draft("RGB", (SIDE_PIXELS_MAX, SIDE_PIXELS_MAX))
        picture.load()
        media_type = _TAKEN_AS_THEY_ARE.get(kind)
        fits = max(before) <= SIDE_PIXELS_MAX and len(data) <= FILE_BYTES_MAX
        if media_type and fits and _orientation(picture) == UPRIGHT and _is_clean(kind, data):
            return FittedImage(Image(media_type, data), before, before)
        return _reencode(picture, before, lossy=kind in ("JPEG", "MPO", "WEBP"))


def _reencode(picture: "Picture", before: tuple[int, int], *, lossy: bool) -> FittedImage:
    """Return the first frame, upright, as a PNG or JPEG that fits, without any metadata."""
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
                return FittedImage(image, upright.size, before)
        side = max(1, int(max(small.size) * SHRINK))


def _orientation(picture: "Picture") -> int | None:
    """Return the camera's orientation; None if the EXIF data is broken."""
    try:
        return picture.getexif().get(_ORIENTATION, UPRIGHT)
    except Exception:  # as above
        return None


def _is_clean(kind: str, data: bytes) -> bool:
    """Whether a stricter decoder than Pillow will accept the file; only PNGs are checked."""
    return kind != "PNG" or is_whole(data)


def _to_rgb(picture: "Picture") -> "Picture":
    """Convert a picture to a mode that can be scaled smoothly, which a palette can't."""
    if picture.mode.startswith("I"):
        # 16-bit grey: a plain conversion would clip everything bright to white.
        grey = picture.point(lambda value: value * (1 / 256))  # pyright: ignore[reportUnknownMemberType]
        picture = grey.convert("L")
    wanted = "RGBA" if picture.has_transparency_data else "RGB"
    return picture if picture.mode == wanted else picture.convert(wanted)


def _as_png(picture: "Picture") -> Image:
    return _encode(picture, "PNG", compress_level=PNG_COMPRESSION)


def _as_jpeg(picture: "Picture") -> Image:
    """Encode a picture as JPEG; transparent parts become white."""
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
    """Return the freed memory to the system; glibc would keep up to 400 MB for later use."""
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
            return ImageProblem("It is broken: the data after its first bytes can't be decoded.")
        case _:
            pass
    reason = " ".join(str(error).split()) or type(error).__name__
    return ImageProblem(f"It is broken: {reason[:200].rstrip('.')}.")


def _too_many_pixels(size: tuple[int, int] | None = None) -> ImageProblem:
    named = f" ({size[0]} x {size[1]})" if size else ""
    return ImageProblem(f"It has more than {PIXELS_MAX:,} pixels{named}. Shrink or crop it.")
