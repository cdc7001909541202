"""Pathfinder by the book: slow, in floats, with Pillow, and one image at a time.

Checks what `lra.data.pathfinder_generator` made instead of making it: whether every dash was
allowed where it lies, and whether the picture shows the dashes.
"""

import functools
import math

import numpy as np
from PIL import Image, ImageDraw

DEGREES = [math.radians(degree) for degree in range(-180, 180)]


class Book:
    """The rules for one margin."""

    def __init__(self, parameters, margin):
        self.parameters = parameters
        self.margin = margin
        self.half = parameters.length + math.ceil(parameters.width) + margin
        self.radius = parameters.length + margin
        steps = range(math.ceil(2 * math.pi * self.radius))
        self.ring = {
            (math.floor(self.radius * math.sin(k / self.radius)),
             math.floor(self.radius * math.cos(k / self.radius)))
            for k in steps
        }  # fmt: skip
        self.ends = sorted(
            {self._fine_end(math.sin(t), math.cos(t)) for t in DEGREES}
            | {self._backwards(cell) for cell in self.ring}
        )

    def _fine_end(self, sine, cosine):
        fine = self.parameters.oversampling
        centre, length = self.half * fine, self.parameters.length * fine
        return tuple(math.ceil(centre + length * value) - centre for value in (sine, cosine))

    def _backwards(self, cell):
        return self._fine_end(-cell[0] / math.hypot(*cell), -cell[1] / math.hypot(*cell))

    @functools.cache  # noqa: B019
    def stamp(self, number):
        """Ink and mask, float64 [side, side]."""
        fine = self.parameters.oversampling
        centre, side = self.half * fine, 2 * self.half + 1
        dy, dx = self.ends[number]
        image = Image.new("L", (2 * centre + 1,) * 2)
        ImageDraw.Draw(image).line(
            [(centre, centre), (centre + dx, centre + dy)],
            fill=255,
            width=round(self.parameters.width * fine),
        )
        dilated = Image.fromarray(max_filter(np.asarray(image), self.margin * fine))
        mask = np.asarray(dilated.resize((side, side), Image.Resampling.LANCZOS)) / 255
        ink = image.convert("F").resize((side, side), Image.Resampling.LANCZOS)
        return np.maximum(np.asarray(ink, np.float64) / 255, 0), mask

    def on_canvas(self, stamp, y, x):
        """A stamp around (y, x) and nothing else, cut at the edges; float64 [size, size]."""
        canvas = np.pad(np.zeros((self.parameters.size,) * 2), self.half)
        canvas[y : y + len(stamp), x : x + len(stamp)] = stamp
        return canvas[self.half : -self.half, self.half : -self.half]

    def starts(self, stamp):
        """(direction, from start to pivot) of all directions whose first dash looks like this."""
        for t in DEGREES:
            if self._fine_end(math.sin(t), math.cos(t)) == self.ends[stamp]:
                head = move((0, 0), t, self.parameters.length)
                yield t, move(head, t + math.pi, self.radius)

    def probe_is_free(self, occupied, stamp, y, x):
        """Whether the dash's full cells, one down and to the right, are free."""
        cells = np.argwhere(self.stamp(stamp)[1] == 1) - self.half + 1
        cells = cells[(np.abs(cells) <= self.radius).all(axis=1)]
        covers = all(((cells * signs) >= 0).all(axis=1).any() for signs in SIGNS)
        cells += np.array([y, x])
        inside = ((cells >= 0) & (cells < len(occupied))).all(axis=1)
        return covers and (occupied[tuple(cells[inside].T)] <= 0.3).all()

    def grow(self, states, tip):
        """The (direction, pivot) a snake may have after its next dash starts at `tip`."""
        for direction, pivot in states:
            y, x = move(pivot, direction, self.parameters.length + 2 * self.margin, slips=True)
            cell = (tip[0] - y, tip[1] - x)
            turn = abs(math.remainder(math.atan2(*cell) - direction, 2 * math.pi))
            if cell in self.ring and self.parameters.continuity * turn < math.pi / 2:
                yield math.atan2(*cell), (y, x)


SIGNS = np.array([(1, 1), (1, -1), (-1, 1), (-1, -1)])


def move(point, direction, distance, slips=False):
    """Rounded upwards; `slips` leaves in what the sine of pi is more than 0."""
    shift = (distance * math.sin(direction), distance * math.cos(direction))
    if slips:
        return tuple(math.ceil(p + s) for p, s in zip(point, shift, strict=True))
    return tuple(math.ceil(p + s - 1e-9) for p, s in zip(point, shift, strict=True))


def max_filter(image, radius):
    """The largest value within `radius` of each cell."""
    padded = np.pad(image, radius)
    reach = range(-radius, radius + 1)
    return np.max(
        [
            padded[radius + y : radius + y + len(image), radius + x : radius + x + len(image)]
            for y in reach
            for x in reach
            if y * y + x * x <= radius * radius
        ],
        axis=0,
    )


def check_placement(book, dashes, distractors):
    """Assert that the dashes of one image follow the rules in the order they were drawn."""
    parameters = book.parameters
    size, pad = parameters.size, parameters.pad
    occupied = np.pad(np.zeros((size - 2 * pad,) * 2), pad, constant_values=1)
    targets = dashes[: 2 * parameters.dashes]
    occupied = _check_snakes(book, occupied, [targets[0::2], targets[1::2]], merge=1)
    rest = dashes[2 * parameters.dashes :][: distractors * parameters.distractor_dashes]
    for snake in rest.reshape(distractors, parameters.distractor_dashes, 4):
        y, x, stamp, _ = snake[0]
        assert book.probe_is_free(occupied, stamp, y, x)
        occupied = _check_snakes(book, occupied, [snake], merge=0)
    assert (dashes[len(targets) + len(rest) :, 3] == 0).all()


def _check_snakes(book, occupied, snakes, merge):
    """Follow snakes that grow in turn; `merge` names the one whose last dash counts at once."""
    states = [
        [(t, (snake[0][0] + dy, snake[0][1] + dx)) for t, (dy, dx) in book.starts(snake[0][2])]
        for snake in snakes
    ]
    last = [book.on_canvas(book.stamp(snake[0][2])[1], *snake[0][:2]) for snake in snakes]
    for number in range(1, len(snakes[0])):
        for which, snake in enumerate(snakes):
            y, x, stamp, _ = snake[number]
            states[which] = [
                (t, pivot)
                for t, pivot in book.grow(states[which], (y, x))
                if book.ends[stamp] == book._backwards((y - pivot[0], x - pivot[1]))
            ]
            assert states[which], (which, number)
            assert max_filter(occupied, book.margin)[y, x] < 1
            mask = book.on_canvas(book.stamp(stamp)[1], y, x)
            assert (occupied + mask).max() < 1.8
            occupied, last[which] = np.maximum(occupied, last[which]), mask
    return np.maximum(occupied, last[merge])


def render(book, dashes, discs):
    """The picture, float64 [size, size] in grey levels, not rounded."""
    ink = np.zeros((book.parameters.size,) * 2)
    for y, x, stamp, gain in dashes:
        ink = np.maximum(ink, gain * book.on_canvas(book.stamp(stamp)[0], y, x))
    ink = ink / ink.max()
    for y, x in discs:
        ink = np.maximum(ink, disc(book.parameters, y, x))
    return 255 * ink / ink.max()


def disc(parameters, y, x):
    """One disc on a whole canvas."""
    fine, size = parameters.oversampling, parameters.size
    rows, columns = np.ogrid[: size * fine, : size * fine]
    inside = (rows - fine * y) ** 2 + (columns - fine * x) ** 2
    inside = (inside <= (parameters.disc_radius * fine) ** 2).astype(np.float32)
    return np.asarray(Image.fromarray(inside).resize((size, size), Image.Resampling.LANCZOS))
