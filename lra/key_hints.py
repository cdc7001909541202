"""Which key of a configuration may be meant by an unknown one."""

import difflib
from collections.abc import Iterable

from configs import default
from lra.near_names import near_match

_LEAST_SIMILARITY = 0.6  # of the last words of two keys, as `difflib` counts it


def near_key(key: str, known: Iterable[str]) -> str:
    """Hint for an unknown key: attentions that have it, a similar key, or those that there are.

    The hint is ` (an option of x)`, ` (did you mean 'x'?)` or ` (known: x, y)`. The last has the
    keys of the same section, or the sections if there is none.
    """
    option = key.removeprefix("model.attention.")
    attentions = [name for name, options in default.ATTENTIONS.items() if option in options]
    if attentions and option != key:
        return f" (an option of {', '.join(attentions)})"
    known = list(known)
    if similar := _similar(key, known):
        return near_match(similar[0], known)
    section = f"{key.rpartition('.')[0]}."
    sections = {f"{each.partition('.')[0]}.*" if "." in each else each for each in known}
    return near_match("", [each for each in known if each.startswith(section)] or sections)


def _similar(key: str, known: list[str]) -> list[str]:
    """Keys with these initials (`train.lr`), similar ones (`train.stepz`), the same word elsewhere.

    Keys are not similar only because they are in the same section, which is most of their text.
    """
    section, _, name = key.rpartition(".")
    names = {each: each.rpartition(".")[2] for each in known}
    by_initials = [each for each in known if name and name == _initials(names[each])]
    by_initials.sort(key=lambda each: each.rpartition(".")[0] != section)
    by_text = [
        each
        for each in difflib.get_close_matches(key, known, n=len(known))
        if difflib.SequenceMatcher(None, name, names[each]).ratio() >= _LEAST_SIMILARITY
    ]
    elsewhere = [each for each in known if names[each] == name]
    # `model.num_landmarks` is another section's; `seed` is rather `seeds` than `mesh.seed`.
    return by_initials + (elsewhere + by_text if section else by_text + elsewhere)


def _initials(name: str) -> str:
    """Initials of a name of several words: `lr` for `learning_rate`, none for `steps`."""
    words = name.split("_")
    return "".join(word[0] for word in words) if len(words) > 1 else ""
