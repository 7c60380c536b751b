"""Text to sentences, and long sentences to parts that fit the model.

The rules are for Portuguese and English; text in other languages may get fewer cuts. In
doubt, two sentences stay together: the model translates them well, and half a sentence
badly.
"""

import re
from itertools import pairwise

# The ends of sentences. The wide ones need no white space after them.
_WIDE = "。！？｡"
_STOPS = ".!?…‽؟۔।" + _WIDE
_CLOSERS = "\"'”’»›)]}」』）】》"
_OPENERS = "\"'`“‘„«‹([{¿¡*_—–-"
_DASHES = "—–-"
# Characters that never begin a sentence.
_GOING_ON = _STOPS + _CLOSERS + ",;:%"

# Abbreviations before a name, or before more of the same sentence.
_BEFORE_NAMES = re.compile(
    r"sra?s?|srta|dra?s?|profa?s?|eng|arq|ex[mc]?[oa]?|ilm[oa]|st[oa]?|gen|cel|sgt|maj|"
    r"alm|av|pe|fr|mrs?|ms|messrs|mt|rev|hon|gov|sen|rep|capt|lt|col|vs|cf|p\.ex|e\.g|i\.e",
    re.IGNORECASE,
)
# Abbreviations before a number; before a word, they may end a sentence ("no.").
_BEFORE_NUMBERS = re.compile(
    r"n|nos?|nr|núm|pp?|pg|págs?|fls?|figs?|caps?|arts?|vols?|ed|séc|al|inc|tab|eq|sec|"
    r"ch|tel|ext|ca?|jan|fe[vb]|mar|a[bp]r|mai|ju[nl]|ago|aug|set|sept?|out|oct|nov|"
    r"de[zc]",
    re.IGNORECASE,
)
_NUMBERING = re.compile(r"[(\[]?(?:\d+(?:\.\d+)*|[a-zA-Z]|[IVXLC]+)")
_INITIALS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]")

# Words end at white space, or after a wide stop.
_WORD = re.compile(rf"[^\s{_WIDE}]*[{_WIDE}]+[{re.escape(_CLOSERS)}]*|[^\s{_WIDE}]+")
_OPENING = re.compile(rf"([\s{re.escape(_OPENERS)}]*)(\S?)")

# Where to cut a long sentence, the best places first; a match begins at the cut.
_CUTS = [
    re.compile(r"(?<=[;:—–…])\s|(?<=[；：])"),
    re.compile(r"(?<=,)\s|(?<=[，、])"),
    re.compile(
        r"\s(?=(?:e|ou|mas|nem|que|porque|pois|quando|enquanto|embora|onde|como|se|"
        r"and|or|but|nor|that|which|who|because|when|while|although|where|as|if|so)\s)",
        re.IGNORECASE,
    ),
    re.compile(r"\s"),
]


def split_sentences(text):
    r"""Cuts a text into sentences and the white space around them.

    A line break always ends a sentence. A stop ends one before white space and then a
    capital, a number or a script without case. Before lower case, only a separate stop
    (tokenised text) ends one, or "?" and "!" in a line without capitals; otherwise it
    is speech: "Vens?" disse ela.

    Args:
        text: a string.

    Returns:
        A list of strings that joined are the text: white space, maybe empty, at even
        places, first and last included; sentences at odd places.

    Example:
        >>> split_sentences("O Sr. Silva saiu. Porquê?\n\nNão sei…")
        ['', 'O Sr. Silva saiu.', ' ', 'Porquê?', '\n\n', 'Não sei…', '']
    """
    return _pieces(text, _sentence_starts)


def split_lines(text):
    r"""Cuts a text at line breaks only; otherwise as `split_sentences`.

    Example:
        >>> split_lines("Olá! Bom dia.\nAdeus.\n")
        ['', 'Olá! Bom dia.', '\n', 'Adeus.', '\n']
    """
    return _pieces(text, lambda line: [0])


def split_to_fit(text, count, limit):
    """Cuts a text with too many tokens at the best places.

    The text is halved until its parts fit. Each cut is in the middle half: at the end
    of a sentence, else at a semicolon, colon or dash, else at a comma, else before a
    conjunction, else at white space, else between two characters.

    Args:
        text: a string without white space at its ends.
        count: a function that counts the tokens in a string.
        limit: the most tokens in a part; a single character may have more.

    Returns:
        A list of strings that joined are the text: parts at even places, first and last
        included; the white space between them at odd places.

    Example:
        >>> split_to_fit("um dois, três quatro", count=len, limit=12)
        ['um dois,', ' ', 'três quatro']
    """
    if len(text) < 2 or count(text) <= limit:
        return [text]
    left, space, right = _halve(text)
    left, right = (split_to_fit(half, count, limit) for half in (left, right))
    return [*left, space, *right]


def _pieces(text, starts):
    pieces, end = [], 0
    for line in text.splitlines(keepends=True):
        for start, stop in pairwise([*starts(line), len(line)]):
            if sentence := line[start:stop].strip():
                begin = text.index(sentence, end)
                pieces += [text[end:begin], sentence]
                end = begin + len(sentence)
    return [*pieces, text[end:]]


def _sentence_starts(line):
    """Where the sentences of a line start; the first at 0."""
    starts, quotes = [0], 0
    is_fresh = True  # the sentence has no word yet
    stem = stop = closers = ""  # of the last word, such as "stem" "?!" ")"
    lower_cased = line == line.lower()
    for match in _WORD.finditer(line):
        word, begin = match.group(), match.start()
        # A separate quote closes if one is open.
        open_quote = quotes % 2 == 1
        quotes += word.count('"')
        if stop and not word.strip(_CLOSERS) and (open_quote or word.strip('"')):
            closers += word
            continue
        if stop and not word.strip(_STOPS):  # ". . ."
            stop += word
            continue
        if stop:
            following = _OPENING.match(line, begin)
            if _ends(stem, stop, closers, following=following, lower_cased=lower_cased):
                starts.append(begin)
                is_fresh = True
        core = word.rstrip(_CLOSERS)
        stem = core.rstrip(_STOPS)
        stop, closers = core[len(stem) :], word[len(core) :]
        if is_fresh and stop == "." and _NUMBERING.fullmatch(stem):
            stop = ""  # "1. Introduction"
        is_fresh = False
    return starts


def _ends(stem, stop, closers, *, following, lower_cased):
    """Whether a stop ends a sentence; ``following`` matches what comes after it."""
    opening, first = following.groups()  # such as " — " and "F"
    if not first or first in _GOING_ON:
        return False
    if stop == "." and stem and not closers:
        word = stem.lstrip(_OPENERS)
        if _BEFORE_NAMES.fullmatch(word):
            return False
        if _BEFORE_NUMBERS.fullmatch(word) and first.isdigit():
            return False
        if word.isupper() and _INITIALS.fullmatch(word):  # J. K., U.S.
            return False
    if first.islower():
        plain = stop == "." or stop.strip(".…")  # not "..."
        # '"Vens?" perguntou ela.', "— Vens? — perguntou ela."
        spoken = closers or any(dash in opening for dash in _DASHES)
        alone = not stem or (lower_cased and stop != ".")
        return bool(plain and alone and not spoken)
    return True


def _halve(text):
    """The left half, the white space after it, and the right half."""
    middle = len(text) // 2
    begin, end = max(len(text) // 4, 1), len(text) - len(text) // 4
    places = [start for start in _sentence_starts(text) if begin <= start < end]
    for cut in _CUTS:
        places = places or [match.start() for match in cut.finditer(text, begin, end)]
    cut = min(places or [middle], key=lambda place: abs(place - middle))
    left, right = text[:cut].rstrip(), text[cut:].lstrip()
    return left, text[len(left) : len(text) - len(right)], right
