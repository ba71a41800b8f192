"""Which images a model gets, and the messages about others."""

import warnings
import zlib

import pytest
import trio
from PIL import Image, ImageOps

from support.each import each
from support.narrowing import of_kind
from support.pictures import SIZE, decode, encode, noise, picture
from tiller_daemon.files.images import (
    FILE_BYTES_MAX,
    PIXELS_MAX,
    SIDE_PIXELS_MAX,
    ImageProblem,
    fit_image,
    is_image,
)
from tiller_daemon.files.png import SIGNATURE, is_whole


def pixel(image: Image.Image, x: int, y: int) -> tuple[int, ...]:
    return of_kind(tuple, image.getpixel((x, y)))


@pytest.mark.parametrize(("kind", "media_type"), [("PNG", "image/png"), ("JPEG", "image/jpeg")])
async def test_an_image_that_fits_stays_as_it_is(kind, media_type):
    data = picture(kind)
    fitted = await fit_image(data)
    assert (fitted.image.data, fitted.image.media_type) == (data, media_type)
    assert fitted.size == fitted.before == SIZE


async def test_a_full_hd_screen_stays_as_it_is():
    data = picture("PNG", (1920, 1080))
    assert (await fit_image(data)).image.data is data


@each("kind", ["PNG", "JPEG", "GIF", "WEBP"])
async def test_a_large_image_becomes_smaller_in_its_proportions(kind):
    fitted = await fit_image(picture(kind, (3000, 1500)))
    assert fitted.size == (SIDE_PIXELS_MAX, SIDE_PIXELS_MAX // 2)
    assert fitted.before == (3000, 1500)
    assert decode(fitted.image.data).size == fitted.size


async def test_an_image_of_one_line_keeps_a_line():
    fitted = await fit_image(picture("PNG", (30_000, 1)))
    assert fitted.size == (SIDE_PIXELS_MAX, 1)


async def test_a_large_file_becomes_smaller():
    data = noise("PNG", (1500, 1500))
    assert len(data) > FILE_BYTES_MAX
    fitted = await fit_image(data)
    assert len(fitted.image.data) <= FILE_BYTES_MAX
    assert fitted.image.media_type == "image/jpeg"


async def test_a_file_that_no_encoding_makes_small_enough_loses_pixels():
    fitted = await fit_image(noise("JPEG", (2000, 2000), quality=100))
    assert len(fitted.image.data) <= FILE_BYTES_MAX
    decode(fitted.image.data)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
async def test_of_an_animation_the_first_frame_is_shown(kind):
    frames = [Image.new("RGB", SIZE, colour) for colour in ("red", "green", "blue")]
    data = encode(frames[0], kind, save_all=True, append_images=frames[1:], duration=100)
    shown = decode((await fit_image(data)).image.data).convert("RGB")
    red, green, blue = pixel(shown, 5, 5)
    assert red > 240
    assert green < 20
    assert blue < 20


@pytest.mark.parametrize(("kind", "becomes"), [("GIF", "image/png"), ("WEBP", "image/jpeg")])
async def test_what_not_every_provider_takes_is_written_anew(kind, becomes):
    fitted = await fit_image(picture(kind))
    assert fitted.image.media_type == becomes
    assert fitted.size == SIZE


@pytest.mark.parametrize("size", [SIZE, (3000, 2000)])
async def test_a_camera_that_was_held_sideways_is_put_upright(size):
    sideways = Image.Exif()
    sideways[0x0112] = 6
    fitted = await fit_image(picture("JPEG", size, exif=sideways.tobytes()))
    shown = decode(fitted.image.data)
    assert fitted.size == shown.size
    assert shown.size[0] < shown.size[1]
    assert ImageOps.exif_transpose(shown).size == shown.size
    right = pixel(shown.convert("RGB"), shown.size[0] - 5, 5)
    assert right[0] > 200
    assert right[1] < 60


async def test_what_shows_through_still_does():
    clear = Image.new("RGBA", (2500, 100), (255, 0, 0, 0))
    fitted = await fit_image(encode(clear, "PNG"))
    assert pixel(decode(fitted.image.data), 9, 9)[3] == 0


MODES = (("1", "PNG"), ("L", "PNG"), ("P", "PNG"), ("LA", "PNG"), ("CMYK", "JPEG"), ("L", "JPEG"))


@each(("mode", "kind"), [*MODES, ("RGBA", "WEBP")])
async def test_pictures_of_every_kind_can_be_made_smaller(mode, kind):
    shown = decode((await fit_image(picture(kind, (2400, 1200), mode))).image.data).convert("RGB")
    assert min(pixel(shown, 1500, 100)) > 230
    assert max(pixel(shown, 1500, 900)) < 150


async def test_sixteen_bits_of_grey_are_not_cut_to_white():
    grey = Image.new("I;16", (2500, 40), 0x8000)
    shown = decode((await fit_image(encode(grey, "PNG"))).image.data)
    assert shown.convert("L").getpixel((9, 9)) == 0x80


async def test_a_picture_of_several_as_cameras_make_is_a_jpeg():
    parts = [Image.new("RGB", SIZE, colour) for colour in ("red", "green")]
    data = encode(parts[0], "MPO", save_all=True, append_images=parts[1:])
    assert (await fit_image(data)).image.media_type == "image/jpeg"


OTHERS = (b"", b"\x89PNG", b"hello", b"<svg/>", b"BM" + bytes(60), b"%PDF-1.7")


@each("data", OTHERS)
async def test_other_bytes_are_no_image_whatever_they_are_called(data):
    assert not is_image(data)
    with pytest.raises(ImageProblem, match="It is not a PNG, JPEG, GIF or WebP: it starts with"):
        await fit_image(data)


@each("kind", ["PNG", "JPEG", "GIF", "WEBP"])
async def test_a_broken_image_is_said_to_be_broken(kind):
    whole = noise(kind, (200, 200)) if kind != "GIF" else picture(kind, (300, 300))
    assert is_image(whole)
    for data in (whole[: len(whole) * 2 // 3], whole[:20]):
        with pytest.raises(ImageProblem, match="It is broken"):
            await fit_image(data)


def chunk(kind: bytes, data: bytes, checksum_off_by: int = 0) -> bytes:
    checksum = (zlib.crc32(kind + data) ^ checksum_off_by).to_bytes(4, "big")
    return len(data).to_bytes(4, "big") + kind + data + checksum


BROKEN_EXTRAS = {
    "a profile with a wrong checksum": chunk(b"iCCP", b"x\0\0" + zlib.compress(b"p" * 500), 1),
    "a profile cut off": chunk(b"iCCP", b""),
    "a huge profile": chunk(b"iCCP", b"x\0\0" + zlib.compress(bytes(5_000_000))),
    "a text with a wrong checksum": chunk(b"tEXt", b"a\0b", 1),
    "a text that blows up": chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(5_000_000))),
    "half a gamma": chunk(b"gAMA", b"a"),
    "no frames": chunk(b"acTL", b"a"),
    "no camera": chunk(b"eXIf", b"garbage garbage"),
    "transparency with a wrong checksum": chunk(b"tRNS", b"\0\0\0\0\0\0", 1),
    "what nobody knows with a wrong checksum": chunk(b"quUx", b"aa", 1),
}


@each("extra", BROKEN_EXTRAS.values())
@each("size", [SIZE, (3000, 60)])
async def test_a_picture_with_broken_extras_is_shown_without_them(extra, size):
    whole = picture("PNG", size)
    first = len(SIGNATURE) + len(chunk(b"IHDR", bytes(13)))
    fitted = await fit_image(whole[:first] + extra + whole[first:])
    assert fitted.before == size
    assert is_whole(fitted.image.data)
    assert extra not in fitted.image.data
    shown = decode(fitted.image.data).convert("RGB")
    assert shown.getpixel((5, 5)) == (255, 0, 0)


async def test_a_picture_with_a_broken_end_is_written_anew():
    whole = picture("PNG")
    for data in (whole[:-12], whole + b"junk", whole[:-16] + b"abcd" + whole[-12:]):
        assert not is_whole(data)
        fitted = await fit_image(data)
        assert is_whole(fitted.image.data)
        assert decode(fitted.image.data).tobytes() == decode(whole).tobytes()


async def test_a_picture_whose_pixels_are_broken_is_refused_with_broken_extras_too():
    whole = noise("PNG", (200, 200))
    extra = BROKEN_EXTRAS["a profile with a wrong checksum"]
    for data in (whole[:33] + extra + whole[33 : len(whole) // 2], whole[:20] + extra + whole[33:]):
        with pytest.raises(ImageProblem, match="It is broken"):
            await fit_image(data)


async def test_a_picture_of_which_nobody_can_say_how_it_was_held_is_shown_as_it_lies():
    data = picture("WEBP", exif=Image.Exif().tobytes())
    place = data.index(b"EXIF") + 8
    fitted = await fit_image(data[:place] + b"garbage!" + data[place + 8 :])
    assert fitted.size == SIZE


@each("kind", ["PNG", "JPEG", "GIF", "WEBP"])
async def test_no_changed_byte_is_more_than_a_problem(kind):
    """Whatever a decoder makes of hostile bytes: a picture, or a sentence."""
    whole = bytearray(picture(kind))
    problems: list[str] = []
    for place in range(0, len(whole), max(1, len(whole) // 150)):
        changed = bytes(whole[:place]) + bytes([whole[place] ^ 0x5A]) + bytes(whole[place + 1 :])
        try:
            await fit_image(changed)
        except ImageProblem as problem:
            problems.append(str(problem))
    assert problems
    assert not any("\n" in problem for problem in problems)


@pytest.mark.parametrize("side", [8_000, 15_000])
async def test_a_decompression_bomb_is_refused_undecoded(side):
    assert side**2 > PIXELS_MAX
    bomb = encode(Image.new("1", (side, side)), "PNG")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ImageProblem, match="It has more than 50,000,000 pixels"):
            await fit_image(bomb)


async def test_the_loop_goes_on_while_an_image_is_decoded(nursery):
    """The work is in a thread, and only one image is decoded at a time."""
    data = picture("PNG", (4000, 3000))
    ended: list[int] = []

    async def fit(number: int) -> None:
        await fit_image(data)
        ended.append(number)

    for number in range(2):
        nursery.start_soon(fit, number)
    turns = 0
    while len(ended) < 2:
        await trio.lowlevel.checkpoint()
        turns += 1
    assert turns > 100


async def test_cancelling_does_not_wait_for_the_decoder(nursery):
    data = picture("PNG", (5000, 5000))
    with trio.move_on_after(0.01) as scope:
        await fit_image(data)
    assert scope.cancelled_caught
    assert trio.current_time() - scope.deadline < 1
