"""Draws digits, as the four files of MNIST, for where no data set is. usage: draw_digits.py FOLDER

Each image has one digit of a small font, somewhere, in some shade, under noise. The same each time.
"""

import gzip
import sys
from pathlib import Path

import numpy as np

SIZE, SCALE = 28, 3  # pixels of an image's side, of a dot of the font
FONT = """
.###. ..#.. .###. .###. ...#. ##### .###. ##### .###. .###.
#...# .##.. #...# #...# ..##. #.... #.... ....# #...# #...#
#..## ..#.. ....# ....# .#.#. ####. ####. ...#. #...# #...#
#.#.# ..#.. ...#. ..##. #..#. ....# #...# ..#.. .###. .####
##..# ..#.. ..#.. ....# ##### ....# #...# ..#.. #...# ....#
#...# ..#.. .#... #...# ...#. #...# #...# ..#.. #...# ....#
.###. .###. ##### .###. ...#. .###. .###. ..#.. .###. .###.
"""


def glyphs():
    """Ten arrays of 0 and 1, in the size that is drawn."""
    rows = [line.split() for line in FONT.split("\n") if line]
    dots = [[[c == "#" for c in row[digit]] for row in rows] for digit in range(10)]
    return [np.kron(np.array(dot, np.uint8), np.ones((SCALE, SCALE), np.uint8)) for dot in dots]


def draw(count, rng):
    """Images (count, 28, 28), and which digit each has."""
    shapes = glyphs()
    height, width = shapes[0].shape
    images = rng.integers(0, 100, (count, SIZE, SIZE)).astype(np.uint8)
    labels = rng.integers(0, len(shapes), count).astype(np.uint8)
    shades = rng.integers(60, 155, count)
    for image, label, shade in zip(images, labels, shades, strict=True):
        y, x = rng.integers(0, SIZE - height + 1), rng.integers(0, SIZE - width + 1)
        image[y : y + height, x : x + width] += shapes[label] * np.uint8(shade)
    return images, labels


def save(path, array):
    """An IDX file of unsigned bytes."""
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(header + array.tobytes())


folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
rng = np.random.default_rng(0)
for part, count in (("train", 24000), ("t10k", 1000)):
    images, labels = draw(count, rng)
    save(folder / f"{part}-images-idx3-ubyte.gz", images)
    save(folder / f"{part}-labels-idx1-ubyte.gz", labels)
