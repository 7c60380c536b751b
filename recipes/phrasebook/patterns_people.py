# ruff: noqa: D103
"""Patterns about people: who they are, what they do, ask, feel and think."""

from grammar import (
    LEXICON,
    Adjective,
    Phrase,
    adjectives,
    agree,
    bare,
    clause,
    command,
    comparative,
    conjugate,
    count,
    de,
    em,
    indefinite,
    ing,
    join,
    nouns,
    number,
    of,
    own,
    phrases,
    possessive,
    pt_comparative,
    say,
    sentence,
    superlative,
    the,
    this,
)
from patterns import (
    CITIES,
    COUNTRIES,
    FREQUENCIES,
    FRIENDS,
    FUTURE,
    GENDERED_PEOPLE,
    GRAND,
    GROWN_UP,
    HABIT,
    HE,
    KIN,
    MODES,
    NAMED,
    NAMES,
    ONE_KIN,
    OWNERS,
    PAST,
    PEOPLE,
    PUPILS,
    SHE,
    STATE_OR_DENY,
    THEY,
    THEY_F,
    THIRD_PERSONS,
    WE,
    YOU,
    YOU_ALL,
    YOUNG,
    I,
    apart,
    asked_about,
    is_one_of,
    pattern,
)

# --- People -----------------------------------------------------------------------

MEN = [name for name in NAMES if name.gender == "m"]
WOMEN = [name for name in NAMES if name.gender == "f"]


PROFESSIONS = [
    {"m": (man, en), "f": (woman, (*en_woman, en)[0])}
    for man, (woman, en, *en_woman) in LEXICON["professions"].items()
]


@pattern(who=GENDERED_PEOPLE, job=PROFESSIONS, mode=MODES)
def has_a_profession(who, job, mode):
    if who.plural:
        return None
    pt, en = job[who.gender]
    return say(who, f"ser {pt}", f"be {indefinite(en)}", mode=mode)


@pattern(who=[HE, SHE, *NAMES, *ONE_KIN], job=PROFESSIONS)
def wants_to_be(who, job):
    if is_one_of(who, GRAND | GROWN_UP):
        return None
    pt, en = job[who.gender]
    return say(who, f"querer ser {pt}", f"want to be {indefinite(en)}")


def _can_be(who: Phrase, trait: Adjective) -> bool:
    return trait.en != "young" or not is_one_of(who, GRAND)


@pattern(who=GENDERED_PEOPLE, trait=adjectives("character", "looks"), mode=MODES)
def is_like_that(who, trait, mode):
    if not _can_be(who, trait):
        return None
    return say(who, f"ser {agree(trait, who)}", f"be {trait.en}", mode=mode)


@pattern(who=GENDERED_PEOPLE, trait=adjectives("character", "looks"))
def is_very_much_like_that(who, trait):
    if not _can_be(who, trait):
        return None
    return say(who, f"ser muito {agree(trait, who)}", f"be very {trait.en}")


@pattern(who=GENDERED_PEOPLE, one=adjectives("looks"), other=adjectives("character"))
def is_two_things(who, one, other):
    if not _can_be(who, one):
        return None
    return say(
        who,
        f"ser {agree(one, who)} e {agree(other, who)}",
        f"be {one.en} and {other.en}",
    )


@pattern(who=GENDERED_PEOPLE, nation=adjectives("nationality"), mode=MODES)
def has_a_nationality(who, nation, mode):
    return say(who, f"ser {agree(nation, who)}", f"be {nation.en}", mode=mode)


@pattern(who=GENDERED_PEOPLE, state=adjectives("state"), mode=MODES)
def is_in_a_state(who, state, mode):
    return say(who, f"estar {agree(state, who)}", f"be {state.en}", mode=mode)


DEGREES = [
    Phrase("muito", "very"),
    Phrase("um pouco", "a little"),
    Phrase("sempre", "always"),
]


@pattern(who=GENDERED_PEOPLE, state=adjectives("state"), degree=DEGREES)
def is_somewhat_in_a_state(who, state, degree):
    if state.en in ("alone", "ready") and degree.en != "always":
        return None
    if state.en in ("happy", "pleased") and degree.en == "a little":
        return None
    pt, en = f"{degree.pt} {agree(state, who)}", f"{degree.en} {state.en}"
    return say(who, f"estar {pt}", f"be {en}")


@pattern(
    who=GENDERED_PEOPLE,
    state=adjectives("state"),
    when=[Phrase("ontem", "yesterday"), Phrase("esta manhã", "this morning")],
    mode=STATE_OR_DENY,
)
def was_in_a_state(who, state, when, mode):
    return say(
        who,
        f"estar {agree(state, who)} {when.pt}",
        f"be {state.en} {when.en}",
        "imperfect",
        mode,
    )


@pattern(who=PEOPLE, feeling=phrases("feelings"), mode=MODES)
def feels(who, feeling, mode):
    return say(who, f"ter {feeling.pt}", f"be {feeling.en}", mode=mode)


@pattern(who=PEOPLE, feeling=phrases("feelings"))
def feels_very_much(who, feeling):
    if feeling.en in ("in a hurry", "right", "lucky"):
        return None
    gender = "a" if feeling.pt in ("fome", "sede") else "o"
    return say(who, f"ter muit{gender} {feeling.pt}", f"be very {feeling.en}")


@pattern(who=PEOPLE, age=range(3, 96))
def has_an_age(who, age):
    if is_one_of(who, {"children", "parents", "grandparents", "students", "teacher"}):
        return None
    if (age < 60 and is_one_of(who, GRAND)) or (age < 25 and is_one_of(who, GROWN_UP)):
        return None
    if (age > 30 and is_one_of(who, YOUNG)) or (age > 14 and is_one_of(who, PUPILS)):
        return None
    years = number(age)
    return say(who, f"ter {years.pt} anos", f"be {years.en} years old")


@pattern(who=PEOPLE, what=nouns("kin"), value=range(1, 6))
def has_relatives(who, what, value):
    if what.en in {"father", "mother", "husband", "wife"} | GRAND or who in KIN:
        return None
    if what.en in YOUNG and is_one_of(who, YOUNG | PUPILS):
        return None
    many = count(value, what)
    en = indefinite(what.en) if value == 1 else many.en
    return say(who, f"ter {many.pt}", f"have {en}")


@pattern(owner=NAMES, kin=nouns("kin"), trait=adjectives("character", "looks"))
def relative_is_like_that(owner, kin, trait):
    if (kin.en, owner.gender) in (("wife", "f"), ("husband", "m")):
        return None
    who = of(owner, the(kin))
    if not _can_be(who, trait):
        return None
    return say(who, f"ser {agree(trait, who)}", f"be {trait.en}")


@pattern(owner=OWNERS, kin=nouns("kin"), trait=adjectives("character", "looks"))
def our_relative_is_like_that(owner, kin, trait):
    if (kin.en, owner.en) in (("wife", "she"), ("husband", "he")):
        return None
    if owner.plural and kin.en in ("wife", "husband"):
        return None
    who = own(owner, kin)
    if not _can_be(who, trait):
        return None
    return say(who, f"ser {agree(trait, who)}", f"be {trait.en}")


@pattern(owner=OWNERS, kin=nouns("kin|friend"), job=PROFESSIONS)
def relative_has_a_profession(owner, kin, job):
    if kin.en in ("wife", "husband") and owner.en not in ("I", "you"):
        return None
    who = own(owner, kin)
    pt, en = job[kin.gender]
    return say(who, f"ser {pt}", f"be {indefinite(en)}")


@pattern(owner=OWNERS, kin=nouns("kin|friend"), far=(False, True))
def introduces(owner, kin, far):
    if kin.en in ("wife", "husband") and owner.en != "I":
        return None
    whom = own(owner, kin)
    pt = {"m": "este aquele", "f": "esta aquela"}[kin.gender].split()[far]
    en = "that's" if far else "this is"
    return sentence(f"{pt} é {whom.pt}", f"{en} {whom.en}")


@pattern(owner=OWNERS, kin=nouns("kin|friend"), name=NAMES)
def is_called(owner, kin, name):
    if kin.gender != name.gender or kin.en in ("father", "mother", "wife", "husband"):
        return None
    whom = own(owner, kin)
    return sentence(f"{whom.pt} chama-se {name.en}", f"{whom.en}'s name is {name.en}")


@pattern(owner=NAMES, kin=nouns("kin"), name=NAMES)
def is_the_relative_of(owner, kin, name):
    if kin.gender != name.gender or owner == name:
        return None
    if (kin.en, owner.gender) in (("wife", "f"), ("husband", "m")):
        return None
    en = of(owner, the(kin)).en
    return sentence(f"{name.pt} é {kin.pt} {de(owner.pt)}", f"{name.en} is {en}")


@pattern(one=NAMED, other=NAMES, trait=adjectives("looks", "character"))
def is_more_than(one, other, trait):
    if one == other or one.plural:
        return None
    return say(
        one,
        f"ser {pt_comparative(trait, one)} do que {other.pt}",
        f"be {comparative(trait.en)} than {other.en}",
    )


@pattern(one=NAMED, other=NAMES, trait=adjectives("looks", "character"))
def is_as_much_as(one, other, trait):
    if one == other or one.plural:
        return None
    return say(
        one,
        f"ser tão {agree(trait, one)} como {other.pt}",
        f"be as {trait.en} as {other.en}",
    )


GROUPS = [
    Phrase("da turma", "in the class"),
    Phrase("da família", "in the family"),
    Phrase("do grupo", "in the group"),
]


@pattern(who=[HE, SHE, *NAMES], trait=adjectives("looks", "character"), group=GROUPS)
def is_the_most(who, trait, group):
    pt, en = f"{agree(trait, who)} {group.pt}", f"{superlative(trait.en)} {group.en}"
    article = {"m": "o", "f": "a"}[who.gender]
    return say(who, f"ser {article} mais {pt}", f"be the {en}")


@pattern(who=[I, YOU, HE, SHE, *NAMES, *ONE_KIN], eyes=adjectives("eyes"))
def has_eyes(who, eyes):
    return say(who, f"ter olhos {eyes.masculine_plural}", f"have {eyes.en} eyes")


@pattern(
    who=[I, YOU, HE, SHE, *NAMES, *ONE_KIN], hair=adjectives("hair"), mode=STATE_OR_DENY
)
def has_hair(who, hair, mode):
    return say(who, f"ter cabelo {hair.pt}", f"have {hair.en} hair", mode=mode)


@pattern(
    what=nouns("person"), trait=adjectives("looks"), who=[*NAMES, *ONE_KIN, *FRIENDS]
)
def the_tall_one_is(what, trait, who):
    if what.gender != who.gender or who.plural:
        return None
    young = YOUNG | {"brother", "sister", "cousin"}
    if what.en in PUPILS and who not in NAMES and not is_one_of(who, young):
        return None
    tall = the(what, trait)
    return sentence(f"{tall.pt} é {who.pt}", f"{tall.en} is {who.en}")


@pattern(what=nouns("person"), trait=adjectives("looks"), plural=(False, True))
def who_is_that(what, trait, plural):
    those = this(what, plural, far=True)
    pointed, noun = those.en.split()
    verb, be = ("são", "are") if plural else ("é", "is")
    return sentence(
        f"quem {verb} {those.pt} {agree(trait, those)}",
        f"who {be} {pointed} {trait.en} {noun}",
        "?",
    )


# --- Where people are from, live and work -----------------------------------------

WORKPLACES = [
    Phrase(f"{'um' if gender == 'm' else 'uma'} {pt}", indefinite(en), gender)
    for pt, (gender, en) in LEXICON["workplaces"].items()
]


@pattern(who=PEOPLE, where=COUNTRIES + CITIES, mode=MODES)
def comes_from(who, where, mode):
    return say(who, f"ser {de(where.pt)}", f"be from {where.en}", mode=mode)


@pattern(who=PEOPLE, where=COUNTRIES + CITIES, mode=MODES)
def lives_in(who, where, mode):
    return say(who, f"viver {em(where.pt)}", f"live in {where.en}", mode=mode)


@pattern(who=PEOPLE, where=COUNTRIES + CITIES, years=range(2, 21))
def has_lived_in(who, where, years):
    if is_one_of(who, YOUNG | PUPILS):
        return None
    long = number(years)
    return say(
        who,
        f"viver {em(where.pt)} há {long.pt} anos",
        f"live in {where.en} for {long.en} years",
        "perfect",
    )


@pattern(who=PEOPLE, where=WORKPLACES, mode=MODES)
def works_in(who, where, mode):
    if is_one_of(who, PUPILS | {"children"}):
        return None
    return say(who, f"trabalhar {em(where.pt)}", f"work in {where.en}", mode=mode)


@pattern(who=PEOPLE, what=phrases("subjects"), where=CITIES)
def studies_there(who, what, where):
    if is_one_of(who, GRAND | PUPILS | {"parents", "children"}):
        return None
    return say(
        who,
        f"estudar {what.pt} {em(where.pt)}",
        f"study {what.en} in {where.en}",
    )


@pattern(who=PEOPLE, what=phrases("subjects"), mode=MODES)
def studies(who, what, mode):
    return say(who, f"estudar {what.pt}", f"study {what.en}", mode=mode)


@pattern(who=PEOPLE, what=phrases("languages"), mode=MODES)
def speaks(who, what, mode):
    return say(who, f"falar {what.pt}", f"speak {what.en}", mode=mode)


@pattern(who=PEOPLE, one=phrases("languages"), other=phrases("languages"))
def speaks_two(who, one, other):
    if one == other:
        return None
    both = join((one, other))
    return say(who, f"falar {both.pt}", f"speak {both.en}")


@pattern(
    who=PEOPLE, what=phrases("languages"), tense=("progressive", "going"), mode=MODES
)
def learns(who, what, tense, mode):
    return say(who, f"aprender {what.pt}", f"learn {what.en}", tense, mode)


# --- What people do ---------------------------------------------------------------

ACTIVITIES = phrases("activities")
CHORES = phrases("chores")
ACTIONS = ACTIVITIES + CHORES


def _suits(who: Phrase, action: Phrase) -> bool:
    """Say whether someone may sensibly do this."""
    unsuited = set()
    if "grandparents" in action.en:
        unsuited = GRAND
    elif "mother" in action.en:
        unsuited = {"mother", "parents"}
    elif "homework" in action.en:
        unsuited = GRAND | GROWN_UP | {"teacher", "neighbour", "colleague"}
    elif "teacher" in action.en:
        unsuited = GRAND | {"teacher"}
    elif "office" in action.en or "bills" in action.en or "grass" in action.en:
        unsuited = PUPILS | {"children"}
    return not is_one_of(who, unsuited)


def _is_one_thing(action: Phrase) -> bool:
    """Say whether this is about one film or book, not about films in general."""
    return " um " in action.pt or " uma " in action.pt


@pattern(who=PEOPLE, what=ACTIVITIES, when=HABIT, mode=MODES)
def does_habitually(who, what, when, mode):
    if not _suits(who, what):
        return None
    return say(who, f"{what.pt} {when.pt}", f"{what.en} {when.en}", mode=mode)


@pattern(who=PEOPLE, what=ACTIVITIES, often=FREQUENCIES)
def does_often(who, what, often):
    if not _suits(who, what) or _is_one_thing(what):
        return None
    return say(who, what.pt, what.en, adverb=often)


@pattern(who=PEOPLE, what=ACTIONS, mode=MODES)
def is_doing(who, what, mode):
    if not _suits(who, what):
        return None
    return say(who, what.pt, what.en, "progressive", mode)


@pattern(who=PEOPLE, what=ACTIONS, when=PAST, mode=MODES)
def did(who, what, when, mode):
    if not _suits(who, what):
        return None
    return say(who, f"{what.pt} {when.pt}", f"{what.en} {when.en}", "past", mode)


@pattern(who=PEOPLE, what=ACTIONS, when=FUTURE, mode=MODES)
def is_going_to_do(who, what, when, mode):
    if not _suits(who, what):
        return None
    return say(who, f"{what.pt} {when.pt}", f"{what.en} {when.en}", "going", mode)


@pattern(who=PEOPLE, what=CHORES, mode=MODES)
def has_already_done(who, what, mode):
    if not _suits(who, what):
        return None
    return say(who, what.pt, what.en, "already", mode)


@pattern(who=PEOPLE, what=ACTIONS, mode=MODES)
def wants_to_do(who, what, mode):
    if not _suits(who, what):
        return None
    return say(who, f"querer {what.pt}", f"want to {what.en}", mode=mode)


@pattern(who=PEOPLE, what=CHORES, when=[Phrase("", ""), *FUTURE])
def has_to_do(who, what, when):
    if not _suits(who, what):
        return None
    return say(who, f"ter de {what.pt} {when.pt}", f"have to {what.en} {when.en}")


@pattern(who=PEOPLE, what=CHORES, mode=MODES)
def needs_to_do(who, what, mode):
    if not _suits(who, what):
        return None
    return say(who, f"precisar de {what.pt}", f"need to {what.en}", mode=mode)


@pattern(who=PEOPLE, what=ACTIONS, when=FUTURE, mode=STATE_OR_DENY)
def can_do(who, what, when, mode):
    if not _suits(who, what):
        return None
    return say(who, f"poder {what.pt} {when.pt}", f"can {what.en} {when.en}", mode=mode)


@pattern(who=PEOPLE, what=CHORES)
def should_do(who, what):
    if not _suits(who, what):
        return None
    return say(who, f"dever {what.pt}", f"should {what.en}")


@pattern(who=PEOPLE, what=ACTIVITIES, mode=MODES)
def likes_doing(who, what, mode):
    if not _suits(who, what) or _is_one_thing(what):
        return None
    return say(who, f"gostar de {what.pt}", f"like {ing(what.en)}", mode=mode)


@pattern(who=PEOPLE, what=ACTIVITIES, verb=[("adorar", "love"), ("detestar", "hate")])
def loves_doing(who, what, verb):
    if not _suits(who, what) or _is_one_thing(what):
        return None
    return say(who, f"{verb[0]} {what.pt}", f"{verb[1]} {ing(what.en)}")


SKILLS = phrases("skills")


@pattern(who=PEOPLE, what=SKILLS, mode=MODES)
def knows_how_to(who, what, mode):
    return say(who, f"saber {what.pt}", f"know how to {what.en}", mode=mode)


@pattern(who=PEOPLE, what=SKILLS, mode=MODES)
def is_learning_to(who, what, mode):
    return say(who, f"aprender a {what.pt}", f"learn to {what.en}", "progressive", mode)


@pattern(who=THIRD_PERSONS, other=NAMES, what=ACTIONS, whats=ACTIONS)
def does_while(who, other, what, whats):
    if who.plural or who == other or what.pt.split()[0] == whats.pt.split()[0]:
        return None
    if not (_suits(who, what) and _suits(other, whats)):
        return None
    one = clause(who, what.pt, what.en, "progressive")
    two = clause(other, whats.pt, whats.en, "progressive")
    return sentence(f"{one.pt} e {two.pt}", f"{one.en} and {two.en}")


@pattern(who=NAMES + ONE_KIN + [I, HE, SHE], what=ACTIVITIES)
def used_to_do(who, what):
    if not _suits(who, what) or "office" in what.en or _is_one_thing(what):
        return None
    past = clause(who, what.pt, what.en, "imperfect")
    return sentence(f"antigamente, {past.pt}", f"in the past, {past.en}")


@pattern(who=[*NAMES, I, HE, SHE], girl=(False, True), what=ACTIVITIES)
def used_to_do_as_a_child(who, girl, what):
    if who.en != "I" and girl != (who.gender == "f"):
        return None
    if "office" in what.en or _is_one_thing(what):
        return None
    past = clause(who, what.pt, what.en, "imperfect")
    little = "pequena" if girl else "pequeno"
    child = {"I": "I was"}.get(who.en, "she was" if girl else "he was")
    return sentence(
        f"quando era {little}, {past.pt}", f"when {child} little, {past.en}"
    )


@pattern(who=PEOPLE, what=ACTIVITIES, whom=NAMED)
def does_with(who, what, whom):
    if not (_suits(who, what) and _suits(whom, what) and apart(who, whom)):
        return None
    if "one's" in what.en:
        return None
    return say(who, f"{what.pt} com {whom.pt}", f"{what.en} with {whom.en}", "going")


@pattern(who=PEOPLE, whom=NAMED, what=phrases("meals"), when=PAST)
def did_together(who, whom, what, when):
    if not apart(who, whom):
        return None
    return say(
        who,
        f"{what.pt} com {whom.pt} {when.pt}",
        f"{what.en} with {whom.en} {when.en}",
        "past",
    )


# --- Requests ---------------------------------------------------------------------

REQUESTS = phrases("requests")
PLEASE = [Phrase("", ""), Phrase(", por favor", ", please")]


@pattern(what=REQUESTS, polite=(False, True), please=PLEASE)
def asks_to_do(what, polite, please):
    verb, _, rest = what.pt.partition(" ")
    return sentence(f"{command(verb, polite)} {rest}{please.pt}", what.en + please.en)


@pattern(what=REQUESTS, please=PLEASE, who=[YOU, YOU_ALL, *NAMES])
def asks_whether_one_can(what, please, who):
    pt, en = f"poder {what.pt}{please.pt}", f"can {what.en}{please.en}"
    if who not in (YOU, YOU_ALL) and please.pt:
        return None
    return say(who, pt, en, mode="?")


@pattern(what=REQUESTS)
def asks_not_to_do(what):
    verb, _, rest = what.pt.partition(" ")
    return sentence(f"não {command(verb, True)}s {rest}", f"don't {what.en}")


# --- Health -----------------------------------------------------------------------

ONE_BODY, MANY_BODY = nouns("body", "one"), nouns("body", "many")
HURT = [the(noun) for noun in ONE_BODY] + [the(noun, plural=True) for noun in MANY_BODY]


@pattern(
    what=HURT,
    who=(I, YOU),
    mode=MODES,
    much=[Phrase("", ""), Phrase("muito", "a lot")],
)
def hurts(what, who, mode, much):
    if (mode == "-" and much.pt) or (who == YOU) != (mode == "?"):
        return None
    me = "me" if who == I else "te"
    verb = "doem" if what.plural else "dói"
    pt = f"não {me} {verb}" if mode == "-" else f"{verb}-{me}"
    part = what._replace(en=f"{possessive(who)} {what.en.removeprefix('the ')}")
    said = clause(part, "doer", f"hurt {much.en}", mode=mode)
    return sentence(f"{pt} {much.pt} {what.pt}", said.en, "?" if mode == "?" else ".")


ACHES = [
    Phrase("dores de cabeça", "a headache"),
    Phrase("dores de garganta", "a sore throat"),
    Phrase("dores de barriga", "a stomach ache"),
    Phrase("dores de dentes", "toothache"),
    Phrase("dores de costas", "a backache"),
    Phrase("febre", "a fever"),
    Phrase("tosse", "a cough"),
    Phrase("gripe", "the flu"),
]


@pattern(who=PEOPLE, what=ACHES, mode=MODES)
def has_an_ache(who, what, mode):
    return say(who, f"ter {what.pt}", f"have {what.en}", mode=mode)


@pattern(who=PEOPLE, what=ACHES, when=PAST)
def had_an_ache(who, what, when):
    if what.en == "the flu" and when.en != "last week":
        return None
    return say(who, f"ter {what.pt} {when.pt}", f"have {what.en} {when.en}", "past")


# --- Opinions and feelings --------------------------------------------------------


@pattern(who=PEOPLE, what=nouns("art"), look=adjectives("art"))
def thinks_that(who, what, look):
    if look.en in ("famous", "modern") and what.en in ("film", "song", "novel"):
        return None
    thing = the(what)
    opinion = clause(thing, f"ser {agree(look, thing)}", f"be {look.en}")
    return say(who, f"achar que {opinion.pt}", f"think {opinion.en}")


@pattern(what=nouns("art"), other=(False, True), look=adjectives("art"))
def this_one_is_better(what, other, look):
    if look.en in ("excellent", "horrible"):
        return None
    thing = this(what, far=other)
    against = {"m": "aquele este", "f": "aquela esta"}[what.gender].split()[other]
    return say(
        thing,
        f"ser {pt_comparative(look, thing)} do que {against}",
        f"be {comparative(look.en)} than {'this one' if other else 'that one'}",
    )


@pattern(
    what=nouns("clothes|vehicle|thing|furniture"),
    far=(False, True),
    look=adjectives("quality"),
)
def this_thing_is_more(what, far, look):
    thing = this(what, far=far)
    pt = ("este aquele", "estes aqueles")[thing.plural].split()[not far]
    if what.gender == "f":
        pt = pt.replace("este", "esta").replace("aquele", "aquela")
    one = ("this one" if far else "that one", "these" if far else "those")[thing.plural]
    return say(
        thing,
        f"ser {pt_comparative(look, thing)} {'do que'} {pt}",
        f"be {comparative(look.en)} than {one}",
    )


@pattern(who=PEOPLE, what=nouns("animal"), mode=MODES)
def likes_animals(who, what, mode):
    many = bare(what, plural=True)
    return say(who, f"gostar de {many.pt}", f"like {many.en}", mode=mode)


@pattern(who=PEOPLE, what=nouns("animal", "scary|pet|farm"), mode=MODES)
def is_afraid_of(who, what, mode):
    if what.en in ("turtle", "rabbit", "duck", "sheep"):
        return None
    many = bare(what, plural=True)
    return say(who, f"ter medo de {many.pt}", f"be afraid of {many.en}", mode=mode)


@pattern(who=PEOPLE, what=nouns("art|clothes|vehicle"), far=(False, True), mode=MODES)
def likes_this(who, what, far, mode):
    thing = this(what, far=far)
    return say(who, f"gostar {de(thing.pt)}", f"like {thing.en}", mode=mode)


@pattern(
    who=[I, WE, HE, SHE, THEY, *NAMED],
    owner=[YOU, YOU_ALL],
    what=nouns("clothes|vehicle|building|pet"),
)
def likes_yours(who, owner, what):
    thing = own(owner, what)
    return say(who, f"gostar muito {de(thing.pt)}", f"like {thing.en} a lot")


@pattern(who=PEOPLE, whom=NAMED, mode=MODES)
def knows(who, whom, mode):
    if not apart(who, whom) or (who in KIN and whom in KIN):
        return None
    return say(who, f"conhecer {whom.pt}", f"know {whom.en}", mode=mode)


OBJECTS = {"me": "me", "te": "you", "nos": "us"}
DEEDS = [
    ("ajudar", "help"),
    ("ouvir", "hear"),
    ("ver", "see"),
    ("chamar", "call"),
    ("visitar", "visit"),
    ("convidar", "invite"),
]


@pattern(
    who=THIRD_PERSONS + [HE, SHE, THEY, THEY_F] * 3,
    whom=list(OBJECTS),
    verb=DEEDS,
    mode=STATE_OR_DENY,
)
def does_to_someone(who, whom, verb, mode):
    said = clause(who, verb[0], f"{verb[1]} {OBJECTS[whom]}", "past", mode)
    form = conjugate(verb[0], who, "past")
    pt = f"não {whom} {form}" if mode == "-" else f"{form}-{whom}"
    return sentence(f"{who.pt} {pt}", said.en)


WHY = [("porque é que", "why"), ("quando é que", "when")]


@pattern(who=GENDERED_PEOPLE, state=adjectives("state"))
def why_in_that_state(who, state):
    who = asked_about(who)
    asked = clause(who, f"estar {agree(state, who)}", f"be {state.en}", mode="?")
    return sentence(f"porque é que {asked.pt}", f"why {asked.en}", "?")


@pattern(who=PEOPLE, what=ACTIONS, ask=WHY, tense=("past", "progressive", "going"))
def why_or_when(who, what, ask, tense):
    who = asked_about(who)
    if (ask[1] == "when" and tense == "progressive") or not _suits(who, what):
        return None
    asked = clause(who, what.pt, what.en, tense, "?")
    return sentence(f"{ask[0]} {asked.pt}", f"{ask[1]} {asked.en}", "?")


@pattern(
    what=ACTIVITIES,
    tense=("past", "progressive", "going"),
    when=[Phrase("", ""), *PAST, *FUTURE],
)
def who_does(what, tense, when):
    if when.pt and ((when in PAST) != (tense == "past") or tense == "progressive"):
        return None
    if "one's" in what.en:
        return None
    done = clause(
        Phrase("quem", "who"), f"{what.pt} {when.pt}", f"{what.en} {when.en}", tense
    )
    return sentence(done.pt, done.en, "?")
