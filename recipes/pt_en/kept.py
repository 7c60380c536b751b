"""Makes pairs that hold something a translation must keep as it is.

Clean corpora have few links, e-mail addresses, placeholders, markup and emoji, and only
a few hundred names. A model that has never seen such text invents something for it.
`kept_pairs` puts them into ordinary pairs, at the same place of both languages.
"""

import itertools
import random
import re
import unicodedata
from pathlib import Path

PEOPLE = Path(__file__).parent / "people"
# The share of pairs with a known name that get a copy with another.
RENAMED = 0.6
MARKS = [
    *[(f"<{tag}>", f"</{tag}>") for tag in ("b", "i", "em", "u", "strong", "p")],
    *[(mark, mark) for mark in ("*", "**", "_", "__", "~~", "`")],
    ("[", "]"),
]
BREAKS = ["<br>", "<br/>", " <br /> ", " | ", " • ", " — ", " / ", " -> ", " ~ ", "; "]
EMOJI = [
    *"😀😃😄😁😆😅😂🤣😊😇🙂🙃😉😌😍🥰😘😋😜🤪🤗🤔🤨😐😑🙄😏😴😷🤒🤧🥵🥶🤯🥳😎🤓😕",
    *"😟😮😲😳🥺😢😭😱😤😡🤬👻🎃🙈🧡💛💚💙💜🖤💔💕💪👍👎👌🤞👋👏🙌🙏🤝👀👶👩👨👵👴",
    *"🐶🐱🐭🐰🐻🐷🐔🐟🐝🦋🌹🌻🌳🌴🍀🍎🍌🍓🍇🍋🥑🥕🍞🧀🍕🍔🍟🍰🎂🍫🍬🍷🍺☕🍵⚽🏀🏆",
    *"🎾🏊🚴🎮🎵🎸🎬📷📱💻📞📧📅📌📚🔑🔒🔔💡💰💶🎁🎉🎈✨⭐🔥🌈⛄🌊🏠🏡🏥🚗🚌🚂🚢⏰",
    *"✅❌❓❗💯👉👇",
]
EMOJI += ["❤️", "✌️", "✏️", "☀️", "🌧️", "❄️", "🏖️", "✈️", "⚠️"]
EMOJI += ["🇵🇹", "🇧🇷", ":)", ":-)", ";)", ":D", ":(", "<3", ":P"]
DOMAINS = ["com", "pt", "br", "org", "net", "io", "dev", "eu", "com.br", "gov.br"]
SUFFIXES = ["pdf", "docx", "txt", "jpg", "png", "zip", "csv", "xlsx", "mp3", "py"]
COMMANDS = ["git", "npm", "pip", "ls", "cd", "cp", "rm", "cat", "ssh", "docker", "make"]

_WORD = re.compile(r"\w+")
_NUMBER = re.compile(r"(?<![\d.,:/-])\d{1,4}(?![\d.,:/-]*\d)")
_QUOTED = re.compile(r"[\"“«]([^\"“”«»]+)[\"”»]")
_END = re.compile(r"[.!?…]$")


def kept_pairs(pairs):
    """Returns changed copies of most pairs. The same pairs give the same copies.

    A pair that lacks what its change needs, such as a number, gives no copy.

    Args:
        pairs: a list of (source, target).

    Example:
        >>> copies = kept_pairs([("São 7 horas.", "It is 7.")] * 50)
        >>> ("São 2 horas.", "It is 2.") in copies
        True
    """
    chance = random.Random(1)
    people = People(chance)
    things = Things(chance, pairs)
    changes = {
        things.renumber: 2,
        things.replace: 3,
        things.append: 4,
        things.mark: 3,
        things.join: 2,
        things.decorate: 3,
    }
    copies = []
    for pair, following in itertools.pairwise([*pairs, pairs[0]]):
        (change,) = chance.choices([*changes], [*changes.values()])
        renamed = people.rename(pair) if chance.random() < RENAMED else None
        copy = renamed or change(pair, following)
        if copy:
            copies.append(copy)
    return copies


class People:
    """Gives the people of a pair other names, from lists of all origins."""

    def __init__(self, chance):
        self.chance = chance
        self.women = _lines(PEOPLE / "women.txt")
        self.men = _lines(PEOPLE / "men.txt")
        self.families = _lines(PEOPLE / "families.txt")
        both = {*self.women} & {*self.men}
        self.sex = {name: self.women for name in self.women if name not in both}
        self.sex |= {name: self.men for name in self.men if name not in both}

    def rename(self, pair):
        """Returns the pair with other names, of the same sex; None without a name."""
        source, target = pair
        names = [name for name in shared(_WORD, source, target) if name in self.sex]
        for name in names:
            other = self.chance.choice(self.sex[name])
            if self.chance.random() < 0.1:
                other += f" {self.chance.choice('ABCDEFGHIJLMNOPRSTV')}."
            if self.chance.random() < 0.4:
                other += f" {self.chance.choice(self.families)}"
            source, target = swap(name, other, source, target)
        return (source, target) if names else None


class Things:
    """Puts numbers, links, placeholders, markup and emoji into both sides of a pair."""

    def __init__(self, chance, pairs):
        self.chance = chance
        words = {word for source, _ in pairs for word in _WORD.findall(source)}
        self.words = sorted(word for word in words if word.isalpha() and len(word) > 2)

    def renumber(self, pair, _):
        """Returns the pair with other numbers of as many digits."""
        source, target = pair
        numbers = shared(_NUMBER, source, target)
        for number in numbers:
            first = self.chance.choice("123456789")
            other = first + self.digits(len(number) - 1)
            source, target = swap(number, other, source, target)
        return (source, target) if numbers else None

    def replace(self, pair, _):
        """Returns the pair with a thing in the place of a name or a number."""
        kept = shared(_NUMBER, *pair)
        kept += [name for name in shared(_WORD, *pair) if name[0].isupper()]
        if not kept:
            return None
        thing = self.chance.choice([self.placeholder, self.link, self.user, self.file])
        return swap(self.chance.choice(kept), thing(), *pair)

    def append(self, pair, _):
        """Returns the pair with a thing before or after the sentence."""
        thing = self.chance.choice(
            [self.link, self.user, self.file, self.code, self.placeholder, self.command]
        )()
        form = self.chance.choice(["{}: {}", "{} ({})", "{} {}", "{}: {}.", "{1} {0}"])
        return tuple(form.format(_END.sub("", side), thing) for side in pair)

    def mark(self, pair, _):
        """Returns the pair with markup around a quotation, a name or the sentence."""
        before, after = self.chance.choice(MARKS)
        if self.chance.random() < 0.1:
            before, after = f'<a href="{self.link()}">', "</a>"
        quoted = [_QUOTED.findall(side) for side in pair]
        if len(quoted[0]) == len(quoted[1]) == 1:
            return tuple(_QUOTED.sub(rf"{before}\1{after}", side) for side in pair)
        kept = [word for word in shared(_WORD, *pair) if word[0].isupper()]
        if kept:
            word = self.chance.choice(kept)
            return swap(word, f"{before}{word}{after}", *pair)
        return tuple(f"{before}{side}{after}" for side in pair)

    def join(self, pair, following):
        """Returns the pair and the one after it with a separator between them."""
        between = self.chance.choice(BREAKS)
        return tuple(f"{a}{between}{b}" for a, b in zip(pair, following, strict=True))

    def decorate(self, pair, following):
        """Returns the pair with emoji after it, before it, or before the next pair."""
        emoji = " ".join(
            self.chance.choices(EMOJI, k=self.chance.choice([1, 1, 1, 2, 3]))
        )
        emoji = emoji.replace(" ", self.chance.choice(["", " "]))
        form = self.chance.choice(["{0} {2}", "{0}{2}", "{2} {0}", "{0} {2} {1}"])
        return tuple(
            form.format(a, b, emoji) for a, b in zip(pair, following, strict=True)
        )

    def digits(self, count):
        return "".join(self.chance.choices("0123456789", k=count))

    def word(self):
        """Returns a Portuguese word as links and file names have it."""
        parts = unicodedata.normalize("NFD", self.chance.choice(self.words).lower())
        return "".join(letter for letter in parts if not unicodedata.combining(letter))

    def joined(self, most):
        """Returns one or more words, at times with digits, with a mark between them."""
        parts = [self.word() for _ in range(self.chance.randint(1, most))]
        if self.chance.random() < 0.3:
            parts.append(self.digits(self.chance.randint(1, 4)))
        return self.chance.choice("-_.").join(parts)

    def host(self):
        return f"{self.joined(2).replace('_', '-')}.{self.chance.choice(DOMAINS)}"

    def link(self):
        """Returns the address of a page, or of a person's mailbox."""
        kind = self.chance.randrange(5)
        if kind == 0:
            return f"{self.joined(2)}@{self.host()}"
        if kind == 1:
            return f"www.{self.host()}"
        path = "".join(f"/{self.joined(2)}" for _ in range(self.chance.randrange(4)))
        query = self.chance.choice(["", "", f"?{self.word()}={self.digits(3)}", "/"])
        start = self.chance.choice(["https://", "https://", "http://"])
        return f"{start}{self.host()}{path}{query}"

    def user(self):
        """Returns a user's name or a hashtag."""
        word = self.joined(2).replace("-", "_").replace(".", "")
        return self.chance.choice(["@", "#"]) + self.chance.choice([word, word.title()])

    def file(self):
        """Returns the name of a file, or its path."""
        name = f"{self.joined(3)}.{self.chance.choice(SUFFIXES)}"
        folder = self.chance.choice(
            ["", "", f"/home/{self.word()}/", f"{self.word()}/"]
        )
        return folder + name

    def code(self):
        """Returns a code, such as those of orders, phones and bank accounts."""
        groups = [self.digits(self.chance.randint(2, 4)) for _ in range(4)]
        letters = "".join(self.chance.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=2))
        return self.chance.choice(
            [
                f"+351 {' '.join(groups[:3])}",
                f"{letters}{self.digits(2)} {' '.join(groups)}",
                f"{letters}-{groups[0]}-{groups[1]}",
                f"{letters}{groups[0]}/{groups[1]}",
                f"{self.chance.randint(0, 23)}:{self.chance.randint(10, 59)}",
                f"{self.chance.randint(1, 255)}.{'.'.join(groups[:3])}",
                f"v{'.'.join(group[0] for group in groups[:3])}",
                f"{self.digits(2)}%",
            ]
        )

    def placeholder(self):
        """Returns a gap that a program fills in."""
        word = self.joined(2).replace("-", "_")
        forms = ["{%s}", "{{%s}}", "{{ %s }}", "%%(%s)s", "${%s}", "$%s", "[%s]"]
        number = self.chance.randrange(4)
        return self.chance.choice(
            [
                *[form % self.chance.choice([word, word.upper()]) for form in forms],
                *["%s", "%d", f"%{number}$s", f"{{{number}}}"],
            ]
        )

    def command(self):
        """Returns a command as documentation prints it."""
        start = self.chance.choice(COMMANDS)
        letter = self.chance.choice("abcfhlrvx")
        option = self.chance.choice(["", f" --{self.word()}", f" -{letter}"])
        return f"`{start}{option} {self.joined(2)}`"


def shared(pattern, source, target):
    r"""Returns what matches the pattern once in each side.

    Example:
        >>> shared(re.compile(r"\d+"), "Das 7 às 9, 9.", "From 7 to 9, 9.")
        ['7']
    """
    found = pattern.findall(target)
    matches = pattern.findall(source)
    return [x for x in matches if matches.count(x) == found.count(x) == 1]


def swap(old, new, source, target):
    """Returns both sides with a word replaced.

    Example:
        >>> swap("Ana", "Zoé", "A Ana, Anabela.", "Ana, Anabela.")
        ('A Zoé, Anabela.', 'Zoé, Anabela.')
    """
    word = re.compile(rf"(?<!\w){re.escape(old)}(?!\w)")
    return tuple(word.sub(lambda _: new, side, count=1) for side in (source, target))


def _lines(path):
    return path.read_text("utf-8").split("\n")[:-1]
