#!/usr/bin/env python3
"""Makes the images in this folder, and what Pillow makes of them.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install pillow==12.1.1
    /tmp/venv/bin/python tests/images/make.py

pictures.txt: file, width, height, then a hash of the pixels as RGB and as grey.
scaled.txt:   file, divisor, the same of a JPEG image decoded at 1/divisor of its size.
resize.txt:   height, width, channels, new height, new width, filter, box, hash of the pixels.
change.txt:   height, width, channels, noise or dim, change, filter or -, numbers, hash of the pixels.

The hash is FNV-1a of 64 bits. Hashes will do because the pixels must be equal to the bit.
"""

import io
import pathlib
import random
import struct
import zlib

from PIL import Image, ImageEnhance, ImageOps

FOLDER = pathlib.Path(__file__).parent
WIDTH, HEIGHT = 21, 18  # no multiples of 8 or 16


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def noise(count):
    """The bytes that noise() in resize_test.cc makes."""
    state, out = 1, bytearray()
    for _ in range(count):
        state = (state * 1664525 + 1013904223) % 2**32
        out.append(state >> 24)
    return bytes(out)


def make_image(width=WIDTH, height=HEIGHT):
    """Gradients, an edge and a little noise; no symmetry."""
    rng = random.Random(7)
    out = bytearray()
    for y in range(height):
        for x in range(width):
            edge = 90 if x * 3 > width + y else 0
            grain = rng.randrange(24)
            out += bytes(
                (x * 160 // width + edge, y * 200 // height + grain, 230 - edge - grain * 2)
            )
    return Image.frombytes("RGB", (width, height), bytes(out))


# ---- JPEG ----


def jpeg(image, **options):
    out = io.BytesIO()
    image.save(out, "JPEG", quality=85, **options)
    return out.getvalue()


def exif(orientation, big_endian):
    order = ">" if big_endian else "<"
    entries = struct.pack(order + "HHIHH", 0x0100, 3, 1, 5, 0)
    entries += struct.pack(order + "HHIHH", 0x0112, 3, 1, orientation, 0)
    head = b"MM\0*" if big_endian else b"II*\0"
    return head + struct.pack(order + "IH", 8, 2) + entries + struct.pack(order + "I", 0)


def without_adobe_marker(data):
    start = data.index(b"\xff\xee")
    (size,) = struct.unpack(">H", data[start + 2 : start + 4])
    return data[:start] + data[start + 2 + size :]


def with_adobe_transform(data, transform):
    at = data.index(b"Adobe") + 11
    return data[:at] + bytes([transform]) + data[at + 1 :]


def jpeg_files():
    rgb = make_image()
    cmyk = Image.frombytes(
        "CMYK",
        rgb.size,
        bytes(
            v
            for i, p in enumerate(rgb.get_flattened_data())
            for v in (*p, i * 255 // (WIDTH * HEIGHT))
        ),
    )
    files = {
        "420.jpg": jpeg(rgb, subsampling="4:2:0"),
        "422.jpg": jpeg(rgb, subsampling="4:2:2"),
        "444.jpg": jpeg(rgb, subsampling="4:4:4"),
        "rgb.jpg": jpeg(rgb, keep_rgb=True),
        "progressive.jpg": jpeg(rgb, progressive=True),
        "restart.jpg": jpeg(rgb, restart_marker_blocks=1),
        "grey.jpg": jpeg(rgb.convert("L")),
        "grey_progressive.jpg": jpeg(rgb.convert("L"), progressive=True),
        "cmyk.jpg": jpeg(cmyk),
        "cmyk_progressive.jpg": jpeg(cmyk, progressive=True),
        "cmyk_no_adobe.jpg": without_adobe_marker(jpeg(cmyk)),
        # The same numbers read as luma, chroma, black: odd colours, but a valid YCCK file.
        "ycck.jpg": with_adobe_transform(jpeg(cmyk), 2),
    }
    for orientation in range(1, 9):
        data = b"Exif\0\0" + exif(orientation, orientation % 2 == 0)
        files[f"orientation_{orientation}.jpg"] = jpeg(rgb, exif=data)
    files["orientation_6_grey.jpg"] = jpeg(rgb.convert("L"), exif=b"Exif\0\0" + exif(6, True))
    return files


# ---- PNG: by hand, because Pillow does not write most kinds ----

GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6
CHANNELS = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGBA: 4}
ADAM7 = [
    (0, 0, 8, 8),
    (4, 0, 8, 8),
    (0, 4, 4, 8),
    (2, 0, 4, 4),
    (0, 2, 2, 4),
    (1, 0, 2, 2),
    (0, 1, 1, 2),
]


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_rows(samples, depth):
    """Rows of sample values, packed, each behind its filter byte 0."""
    out = bytearray()
    for row in samples:
        bits = "".join(format(v, f"0{depth}b") for v in row)
        bits += "0" * (-len(bits) % 8)
        out += b"\0" + int(bits, 2).to_bytes(len(bits) // 8, "big")
    return bytes(out)


def png(kind, depth, interlaced=False, extra=(), late=()):
    rng = random.Random(depth * 10 + kind)
    channels = CHANNELS[kind]
    top = min(2**depth, 200) if kind == PALETTE else 2**depth
    grid = [
        [
            [
                (x * 7 + y * 13 + c * 29 + rng.randrange(9)) * 2**depth // 400 % top
                for c in range(channels)
            ]
            for x in range(WIDTH)
        ]
        for y in range(HEIGHT)
    ]
    passes = ADAM7 if interlaced else [(0, 0, 1, 1)]
    data = b""
    for x0, y0, dx, dy in passes:
        rows = [[v for pixel in row[x0::dx] for v in pixel] for row in grid[y0::dy]]
        data += png_rows([row for row in rows if row], depth)
    out = b"\x89PNG\r\n\x1a\n"
    out += chunk(b"IHDR", struct.pack(">IIBBBBB", WIDTH, HEIGHT, depth, kind, 0, 0, interlaced))
    if kind == PALETTE:
        out += chunk(b"PLTE", bytes((i * 37 + c * 101) % 256 for i in range(top) for c in range(3)))
    out += b"".join(chunk(*pair) for pair in extra)
    packed = zlib.compress(data, 9)
    out += chunk(b"IDAT", packed[: len(packed) // 2]) + chunk(b"IDAT", packed[len(packed) // 2 :])
    return out + b"".join(chunk(*pair) for pair in late) + chunk(b"IEND", b"")


def png_files():
    files = {}
    for name, kind, depths in (
        ("grey", GREY, (1, 2, 4, 8, 16)),
        ("rgb", RGB, (8, 16)),
        ("palette", PALETTE, (1, 2, 4, 8)),
        ("grey_alpha", GREY_ALPHA, (8, 16)),
        ("rgba", RGBA, (8, 16)),
    ):
        for depth in depths:
            files[f"{name}{depth}.png"] = png(kind, depth)
            files[f"{name}{depth}_interlaced.png"] = png(kind, depth, interlaced=True)
    files["grey2_transparent.png"] = png(GREY, 2, extra=[(b"tRNS", b"\0\1")])
    files["grey8_transparent.png"] = png(GREY, 8, extra=[(b"tRNS", b"\0\x40")])
    files["rgb8_transparent.png"] = png(RGB, 8, extra=[(b"tRNS", b"\0\x10\0\x20\0\x30")])
    files["palette4_transparent.png"] = png(PALETTE, 4, extra=[(b"tRNS", bytes(range(0, 160, 10)))])
    files["palette8_transparent.png"] = png(PALETTE, 8, extra=[(b"tRNS", b"\0\x80\xff")])
    files["rgb8_exif.png"] = png(RGB, 8, extra=[(b"eXIf", exif(6, True))])
    files["rgb8_late_exif.png"] = png(RGB, 8, late=[(b"eXIf", exif(3, False))])
    return files


def as_pillow_reads(data):
    image = Image.open(io.BytesIO(data))
    if image.mode == "I;16":
        # Pillow cuts 16-bit grey off at 255, which makes most of it white. Its colours keep the
        # high byte; so do we for both.
        image = Image.frombytes("L", image.size, bytes(v >> 8 for v in image.get_flattened_data()))
    return ImageOps.exif_transpose(image)


def hashes(image):
    rgb, grey = (fnv(image.convert(mode).tobytes()) for mode in ("RGB", "L"))
    return f"{image.width} {image.height} {rgb} {grey}"


def write_images():
    lines = []
    for name, data in sorted({**jpeg_files(), **png_files()}.items()):
        (FOLDER / name).write_bytes(data)
        lines.append(f"{name} {hashes(as_pillow_reads(data))}\n")
    (FOLDER / "pictures.txt").write_text("".join(lines))


def write_scaled():
    lines = []
    for name, image in (
        ("large.jpg", make_image(64, 48)),
        ("large_grey.jpg", make_image(64, 48).convert("L")),
    ):
        data = jpeg(image, subsampling="4:2:0") if image.mode == "RGB" else jpeg(image)
        (FOLDER / name).write_bytes(data)
        for divisor in (1, 2, 4, 8):
            scaled = Image.open(io.BytesIO(data))
            scaled.draft(scaled.mode, (64 // divisor, 48 // divisor))
            assert scaled.size == (64 // divisor, 48 // divisor)
            lines.append(f"{name} {divisor} {hashes(scaled)}\n")
    (FOLDER / "scaled.txt").write_text("".join(lines))


# ---- resize ----


def resize_cases():
    rng = random.Random(3)
    sizes = [
        (1, 1),
        (1, 7),
        (7, 1),
        (2, 2),
        (3, 5),
        (16, 16),
        (17, 33),
        (40, 31),
        (64, 64),
        (31, 100),
    ]
    for height, width in sizes:
        for new_height, new_width in sizes + [(1, 90), (90, 1)]:
            yield height, width, rng.choice((1, 3)), new_height, new_width, None
    for _ in range(60):  # any tail of any vector
        yield (
            *(rng.randint(1, 80) for _ in range(2)),
            rng.choice((1, 3)),
            *(rng.randint(1, 80) for _ in range(2)),
            None,
        )
    for height, width, new_height, new_width in (
        (1, 3000, 1, 1),
        (3000, 1, 1, 1),
        (1, 1, 300, 200),
        (2, 1500, 40, 3),
        (1500, 2, 3, 40),
        (300, 200, 2, 2),
    ):
        yield height, width, 3, new_height, new_width, None
    for _ in range(80):
        height, width = rng.randint(1, 60), rng.randint(1, 60)
        digits = rng.choice((0, 2, 6))
        left, right = sorted(round(rng.uniform(0, width), digits) for _ in range(2))
        top, bottom = sorted(round(rng.uniform(0, height), digits) for _ in range(2))
        if left < right and top < bottom:
            yield height, width, rng.choice((1, 3)), rng.randint(1, 50), rng.randint(1, 50), (
                left,
                top,
                right,
                bottom,
            )
    yield 40, 50, 3, 40, 50, (0, 0, 49.5, 40)  # the same size, of a part
    yield 40, 50, 3, 40, 25, (0, 0, 50, 40)  # only one pass
    yield 40, 50, 3, 20, 50, (0, 0, 50, 40)
    yield 30, 30, 3, 30, 30, (0, 0, 30, 30)
    yield 30, 30, 3, 8, 8, (7.25, 7.5, 7.5, 7.75)  # a part of a pixel


def write_resize():
    lines = []
    for height, width, channels, new_height, new_width, box in resize_cases():
        mode = "L" if channels == 1 else "RGB"
        image = Image.frombytes(mode, (width, height), noise(height * width * channels))
        box = box or (0, 0, width, height)
        for name, filter in (
            ("bilinear", Image.Resampling.BILINEAR),
            ("bicubic", Image.Resampling.BICUBIC),
        ):
            resized = image.resize((new_width, new_height), filter, box=box)
            numbers = " ".join(f"{v:g}" if v == int(v) else repr(v) for v in box)
            lines.append(
                f"{height} {width} {channels} {new_height} {new_width} {name} {numbers} "
                f"{fnv(resized.tobytes())}\n"
            )
    (FOLDER / "resize.txt").write_text("".join(lines))


# ---- changes of colour and place ----

FILL = (124, 116, 104)  # red, green, blue; grey takes the first
FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def solarize_add(image, amount):
    table = [min(255, v + amount) if v < 128 else v for v in range(256)]
    return image.point(table * len(image.getbands()))


def affine(image, numbers, filter):
    fill = FILL if image.mode == "RGB" else FILL[0]
    return image.transform(
        image.size, Image.Transform.AFFINE, numbers, FILTERS[filter], fillcolor=fill
    )


def rotate(image, degrees, filter):
    fill = FILL if image.mode == "RGB" else FILL[0]
    return image.rotate(degrees, FILTERS[filter], fillcolor=fill)


TONES = {
    "autocontrast": (lambda image: ImageOps.autocontrast(image), [()]),
    "equalize": (lambda image: ImageOps.equalize(image), [()]),
    "invert": (lambda image: ImageOps.invert(image), [()]),
    "posterize": (ImageOps.posterize, [(0,), (1,), (2,), (4,), (7,), (8,)]),
    "solarize": (ImageOps.solarize, [(0,), (1,), (26,), (128,), (255,), (256,)]),
    "solarize_add": (solarize_add, [(0,), (1,), (99,), (110,), (128,), (255,)]),
}
FACTORS = [(v,) for v in (-1.0, 0.0, 0.1, 0.19, 0.5, 0.7234567, 1.0, 1.3, 1.81, 1.9, 10.0)]
ENHANCES = {
    "brightness": ImageEnhance.Brightness,
    "contrast": ImageEnhance.Contrast,
    "saturation": ImageEnhance.Color,
    "sharpness": ImageEnhance.Sharpness,
}
PLACES = {
    "rotate": (
        rotate,
        [(v,) for v in (0.0, 0.01, 13.37, 27.0, -27.0, 45.0, 90.0, -90.0, 180.0, 333.3, 725.5)],
    ),
    "shear_x": (
        lambda image, v, filter: affine(image, (1, v, 0, 0, 1, 0), filter),
        [(v,) for v in (0.0, 0.27, -0.27, 0.3)],
    ),
    "shear_y": (
        lambda image, v, filter: affine(image, (1, 0, 0, v, 1, 0), filter),
        [(v,) for v in (0.0, 0.27, -0.27, 0.3)],
    ),
    "translate_x": (
        lambda image, v, filter: affine(image, (1, 0, v * image.width, 0, 1, 0), filter),
        [(v,) for v in (0.0, 0.405, -0.405, 1.0, 0.5)],
    ),
    "translate_y": (
        lambda image, v, filter: affine(image, (1, 0, 0, 0, 1, v * image.height), filter),
        [(v,) for v in (0.0, 0.405, -0.405, 1.0, 0.5)],
    ),
    "affine": (
        lambda image, *rest: affine(image, rest[:-1], rest[-1]),
        [
            (0.31, 0.02, 1.25, -0.07, 0.4, 0.125),
            (3.5, 0.5, -2.25, 0.25, 2.75, -3.5),
            (0.0, 1.0, 0.0, 1.0, 0.0, 0.0),
            (1e300, 0.0, -1e300, 0.0, 1.0, 0.0),
        ],
    ),
}


def change_cases():
    for name, (change, arguments) in TONES.items():
        for numbers in arguments:
            yield name, "-", numbers, lambda image: change(image, *numbers)
    for name, enhance in ENHANCES.items():
        for numbers in FACTORS:
            yield name, "-", numbers, lambda image: enhance(image).enhance(*numbers)
    for name, (change, arguments) in PLACES.items():
        for numbers in arguments:
            for filter in FILTERS:
                yield name, filter, numbers, lambda image: change(image, *numbers, filter)


def write_change():
    lines = []
    sizes = [(1, 1), (1, 7), (7, 1), (2, 2), (2, 9), (3, 3), (5, 4), (17, 33), (40, 31), (64, 70)]
    for height, width in sizes:
        for channels in (1, 3):
            for kind in ("noise", "dim"):
                data = noise(height * width * channels)
                if kind == "dim":
                    data = bytes(v // 3 + 40 for v in data)
                mode = "L" if channels == 1 else "RGB"
                image = Image.frombytes(mode, (width, height), data)
                for name, filter, numbers, change in change_cases():
                    if kind == "dim" and name not in TONES:
                        continue
                    words = [height, width, channels, kind, name, filter, len(numbers), *numbers]
                    words.append(fnv(change(image).tobytes()))
                    lines.append(" ".join(map(str, words)) + "\n")
    (FOLDER / "change.txt").write_text("".join(lines))


if __name__ == "__main__":
    write_images()
    write_scaled()
    write_resize()
    write_change()
