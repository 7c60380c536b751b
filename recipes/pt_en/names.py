"""Keeps people's names in the English of a pair.

Tatoeba and machine translation write "Mary" for "Maria". A model that learns from such
pairs renames people, so the recipe puts the name back.
"""

import re

# Portuguese names, and what translators make of them in English.
RENAMED = {
    "Alexandre": "Alexander",
    "Ana": "Anne|Ann|Anna",
    "André": "Andrew",
    "Antônio": "Anthony|Antony",
    "António": "Anthony|Antony",
    "Beatriz": "Beatrice",
    "Bernardo": "Bernard",
    "Carlos": "Charles|Carl",
    "Catarina": "Catherine|Katherine",
    "Cristina": "Christine|Christina",
    "Davi": "David",
    "Eduardo": "Edward",
    "Emília": "Emily",
    "Estêvão": "Stephen|Steven",
    "Felipe": "Philip|Phillip",
    "Filipe": "Philip|Phillip",
    "Francisco": "Francis",
    "Guilherme": "William",
    "Helena": "Helen",
    "Henrique": "Henry",
    "Inês": "Agnes|Ines",
    "Isabel": "Elizabeth|Elisabeth",
    "Joana": "Joan|Jane|Joanna",
    "Joaquim": "Joachim",
    "Jorge": "George",
    "José": "Joseph|Joe",
    "João": "John",
    "Joãozinho": "Johnny",
    "Júlia": "Julia",
    "Júlio": "Julius|Julio",
    "Lourenço": "Lawrence",
    "Lucas": "Luke",
    "Lúcia": "Lucy|Lucia",
    "Luís": "Louis|Lewis|Luis",
    "Luísa": "Louise|Louisa",
    "Marcos": "Mark",
    "Margarida": "Margaret",
    "Maria": "Mary",
    "Mariana": "Marianne",
    "Marta": "Martha",
    "Mateus": "Matthew",
    "Miguel": "Michael",
    "Nicolau": "Nicholas",
    "Paula": "Pauline",
    "Paulo": "Paul",
    "Pedro": "Peter",
    "Raquel": "Rachel",
    "Ricardo": "Richard",
    "Roberto": "Robert",
    "Sofia": "Sophia|Sophie",
    "Susana": "Susan|Susanna",
    "Teresa": "Theresa|Therese",
    "Tiago": "James",
    "Tomás": "Thomas|Tom",
    "Vicente": "Vincent",
    "Zé": "Joe",
}
# English renames saints, popes and kings, such as "João Paulo II" and "Santa Maria".
_HOLY = r"(?:São|Santo|Santa|Virgem|Papa|Rei|Rainha|Dom|D\.|Apóstolo|Evangelho)\s+"
_NUMBERED = r"(?:\s+\w+)?\s+[IVX]+\b"


def keep_names(source, target):
    """Returns the target with each person's name as the source has it.

    Example:
        >>> keep_names("A Maria viu o Pedro.", "Mary saw Peter.")
        'Maria saw Pedro.'
        >>> keep_names("O papa João Paulo II morreu.", "Pope John Paul II died.")
        'Pope John Paul II died.'
    """
    for name in _NAME.findall(source):
        if name in target or _EXEMPT[name].search(source):
            continue
        target = _ENGLISH[name].sub(name, target)
    return target


_NAME = re.compile(rf"\b({'|'.join(RENAMED)})\b")
_ENGLISH = {name: re.compile(rf"\b(?:{RENAMED[name]})\b") for name in RENAMED}
_EXEMPT = {
    name: re.compile(rf"{_HOLY}(?:\w+\s+)?{name}\b|\b{name}{_NUMBERED}", re.IGNORECASE)
    for name in RENAMED
}
