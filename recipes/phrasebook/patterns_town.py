# ruff: noqa: D103
"""Patterns about the clock, the weather, shops, places and journeys."""

from grammar import (
    LEXICON,
    Noun,
    Phrase,
    a,
    adjectives,
    agree,
    ao,
    bare,
    clause,
    conjugate,
    de,
    em,
    indefinite,
    nouns,
    number,
    of,
    phrases,
    say,
    sentence,
    the,
    this,
)
from patterns import (
    CITIES,
    COLOURS,
    COUNTRIES,
    FREQUENCIES,
    FURNITURE,
    FUTURE,
    GENDERED_PEOPLE,
    GRAND,
    GROWN_UP,
    HABIT,
    HE,
    IT,
    MODES,
    NAMED,
    NAMES,
    ONE_KIN,
    PAST,
    PEOPLE,
    PUPILS,
    SHE,
    STATE_OR_DENY,
    YOU,
    YOU_ALL,
    YOUNG,
    I,
    apart,
    beside,
    is_one_of,
    of_whom,
    pattern,
    pronoun,
)

# --- The day ----------------------------------------------------------------------


def _clock(hour: int, minutes: int) -> Phrase:
    """Say a time of day: "três e meia", "half past three"."""
    if minutes == 45:
        pt, en = number(hour % 12 + 1, "f")[:2]
        return Phrase(f"{pt} menos um quarto", f"a quarter to {en}")
    pt, en = number(hour, "f")[:2]
    if minutes == 0:
        return Phrase(pt, en)
    if minutes in (15, 30):
        part = {15: ("um quarto", "a quarter"), 30: ("meia", "half")}[minutes]
        return Phrase(f"{pt} e {part[0]}", f"{part[1]} past {en}")
    part = number(minutes)
    return Phrase(f"{pt} e {part.pt}", f"{part.en} past {en}")


CLOCK = [
    (hour, _clock(hour, minutes))
    for minutes in (0, 5, 10, 15, 20, 30, 45)
    for hour in range(1, 13)
]


def _at(*hours: int) -> list[Phrase]:
    """List the times of day within these hours: "às três e meia"."""
    return [
        Phrase(
            f"{'à' if time.pt.split()[0] == 'uma' else 'às'} {time.pt}", f"at {time.en}"
        )
        for hour, time in CLOCK
        if hour in hours
    ]


AT = _at(*range(1, 13))


def _round(times: list[Phrase]) -> list[Phrase]:
    """Keep the times that one makes an appointment for, not "ten past five"."""
    return [
        time
        for time in times
        if " past " not in time.en or "half" in time.en or "quarter" in time.en
    ]


# What one does at its time of day.
DAILY = [
    (Phrase(pt, en), time)
    for pt, (en, first, last) in LEXICON["daily"].items()
    for time in _at(*range(first, last + 1))
]
DAYS = phrases("days")
MONTHS = phrases("months")


def _on(day: Phrase) -> Phrase:
    article = "a" if day.pt.endswith("feira") else "o"
    return Phrase(em(f"{article} {day.pt}"), f"on {day.en}")


@pattern(time=[time for _, time in CLOCK])
def tells_the_time(time):
    verb = "é" if time.pt.startswith("uma") else "são"
    return sentence(f"{verb} {time.pt}", f"it's {time.en}")


@pattern(time=[time for _, time in CLOCK])
def it_is_already(time):
    verb = "é" if time.pt.startswith("uma") else "são"
    return sentence(f"já {verb} {time.pt}", f"it's already {time.en}")


def _goes_to_work(who: Phrase, what: Phrase) -> bool:
    return "work" not in what.en or not is_one_of(who, PUPILS | {"children"} | GRAND)


@pattern(who=PEOPLE, daily=DAILY)
def does_at(who, daily):
    what, time = daily
    if not _goes_to_work(who, what):
        return None
    return say(who, f"{what.pt} {time.pt}", f"{what.en} {time.en}")


@pattern(who=PEOPLE, daily=DAILY, often=FREQUENCIES)
def does_often_at(who, daily, often):
    what, time = daily
    if often.en == "never" or not _goes_to_work(who, what):
        return None
    return say(who, f"{what.pt} {time.pt}", f"{what.en} {time.en}", adverb=often)


@pattern(who=PEOPLE, daily=DAILY, tense=("past", "going"))
def did_or_will_at(who, daily, tense):
    what, time = daily
    if not _goes_to_work(who, what):
        return None
    day = PAST[0] if tense == "past" else FUTURE[0]
    done = clause(who, f"{what.pt} {time.pt}", f"{what.en} {time.en}", tense)
    return sentence(f"{day.pt} {done.pt}", f"{day.en} {done.en}")


@pattern(event=nouns("event"), day=DAYS, time=_round(AT))
def event_is_at(event, day, time):
    on = _on(day)
    pt, en = f"ser {on.pt} {time.pt}", f"be {on.en} {time.en}"
    return say(the(event), pt, en)


@pattern(
    event=nouns("event"),
    time=_round(AT),
    verb=[("começar", "start"), ("acabar", "end")],
)
def event_starts_at(event, time, verb):
    return say(the(event), f"{verb[0]} {time.pt}", f"{verb[1]} {time.en}")


@pattern(
    event=[
        event for event in nouns("event") if event.en in ("party", "exam", "wedding")
    ],
    owner=NAMES + ONE_KIN,
    day=DAYS,
)
def event_of_someone(event, owner, day):
    if event.en == "wedding" and is_one_of(owner, GRAND | GROWN_UP):
        return None
    on = _on(day)
    return say(of(owner, the(event)), f"ser {on.pt}", f"be {on.en}")


@pattern(event=nouns("event"), when=[*DAYS, Phrase("amanhã", "tomorrow")], mode="-?")
def is_the_event_then(event, when, mode):
    when = when if when.en == "tomorrow" else _on(when)
    return say(the(event), f"ser {when.pt}", f"be {when.en}", mode=mode)


@pattern(event=nouns("event"), ask=[("quando", "when"), ("a que horas", "what time")])
def when_is_the_event(event, ask):
    what = the(event)
    return sentence(f"{ask[0]} é {what.pt}", f"{ask[1]} is {what.en}", "?")


@pattern(day=DAYS, when=[("hoje", "today"), ("amanhã", "tomorrow")])
def is_that_day(day, when):
    return sentence(f"{when[0]} é {day.pt}", f"{when[1]} is {day.en}")


ORDINALS = [
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
    "thirteenth",
    "fourteenth",
    "fifteenth",
    "sixteenth",
    "seventeenth",
    "eighteenth",
    "nineteenth",
    "twentieth",
    "twenty-first",
    "twenty-second",
    "twenty-third",
    "twenty-fourth",
    "twenty-fifth",
    "twenty-sixth",
    "twenty-seventh",
    "twenty-eighth",
    "twenty-ninth",
    "thirtieth",
    "thirty-first",
]


@pattern(day=range(1, 29), month=MONTHS)
def is_that_date(day, month):
    return sentence(
        f"hoje é dia {number(day).pt} de {month.pt}",
        f"today is the {ORDINALS[day - 1]} of {month.en}",
    )


@pattern(owner=[I, YOU, HE, SHE, *NAMES, *ONE_KIN], day=range(1, 29), month=MONTHS)
def has_a_birthday(owner, day, month):
    birthday = Noun("aniversário", "birthday", "m", "", "")
    return say(
        of_whom(birthday, owner),
        f"ser no dia {number(day).pt} de {month.pt}",
        f"be on the {ORDINALS[day - 1]} of {month.en}",
    )


# --- The weather ------------------------------------------------------------------

WEATHER = phrases("weather")
SEASONS = phrases("seasons")


def _can_snow(where: Phrase) -> bool:
    warm = {"Lisbon", "Porto", "Faro", "Coimbra", "Rio de Janeiro", "Brazil", "Angola"}
    return where.en not in warm | {"Mozambique", "India", "Mexico"}


@pattern(weather=WEATHER, where=CITIES + COUNTRIES)
def weather_there(weather, where):
    if "snow" in weather.en and not _can_snow(where):
        return None
    return sentence(f"{weather.pt} {em(where.pt)}", f"{weather.en} in {where.en}")


@pattern(weather=WEATHER, where=CITIES, when=[("hoje", "today"), ("agora", "now")])
def weather_now(weather, where, when):
    if "snow" in weather.en and not _can_snow(where):
        return None
    return sentence(
        f"{when[0]} {weather.pt} {em(where.pt)}",
        f"{weather.en} in {where.en} {when[1]}",
    )


RAIN = [("chover", "rain"), ("nevar", "snow")]


@pattern(what=RAIN, where=CITIES + COUNTRIES, when=SEASONS)
def rains_a_lot(what, where, when):
    if what[1] == "snow" and not (when.en == "in winter" and _can_snow(where)):
        return None
    if when.en == "in summer":
        return None
    return sentence(
        f"{when.pt} {conjugate(what[0], IT)} muito {em(where.pt)}",
        f"{when.en} it {what[1]}s a lot in {where.en}",
    )


@pattern(what=RAIN, where=CITIES, when=PAST, mode=STATE_OR_DENY)
def rained(what, where, when, mode):
    if what[1] == "snow" and not _can_snow(where):
        return None
    pt, en = f"{em(where.pt)} {when.pt}", f"in {where.en} {when.en}"
    return say(IT, f"{what[0]} {pt}", f"{what[1]} {en}", "past", mode)


@pattern(what=RAIN, where=CITIES, when=FUTURE, mode=MODES)
def is_going_to_rain(what, where, when, mode):
    if when.en == "later" or (what[1] == "snow" and not _can_snow(where)):
        return None
    pt, en = f"{em(where.pt)} {when.pt}", f"in {where.en} {when.en}"
    return say(IT, f"{what[0]} {pt}", f"{what[1]} {en}", "going", mode)


# --- Shops and prices -------------------------------------------------------------

SOLD = nouns("clothes|pocket|bag|furniture|tableware")
SOLD = [noun for noun in SOLD if noun.en not in ("passport", "key")]


def _priced(what: Noun, euros: int) -> bool:
    """Say whether something may cost that much."""
    if what in FURNITURE or what.en in ("phone", "watch"):
        return euros >= 40
    if what.en in ("socks", "gloves", "scarf", "tie", "hat"):
        return 5 <= euros <= 40
    if what in CHEAP:
        return euros <= 20
    return euros >= 10


CHEAP = [
    *nouns("tableware"),
    *(noun for noun in SOLD if noun.en in ("pen", "pencil", "notebook", "box", "bag")),
]


@pattern(what=SOLD, plural=(False, True), far=(False, True))
def how_much_is(what, plural, far):
    thing = this(what, plural, far)
    verb, do = ("custam", "do") if thing.plural else ("custa", "does")
    return sentence(f"quanto {verb} {thing.pt}", f"how much {do} {thing.en} cost", "?")


@pattern(what=SOLD, value=range(2, 101), far=(False, True), plural=(False, True))
def costs(what, value, far, plural):
    thing, price = this(what, plural, far), number(value)
    if not _priced(what, value):
        return None
    return say(thing, f"custar {price.pt} euros", f"cost {price.en} euros")


@pattern(who=PEOPLE, what=SOLD, value=range(5, 101))
def paid(who, what, value):
    price, thing = number(value), this(what)
    if not _priced(what, value):
        return None
    return say(
        who,
        f"pagar {price.pt} euros por {thing.pt}",
        f"pay {price.en} euros for {thing.en}",
        "past",
    )


@pattern(what=nouns("clothes"), colour=COLOURS, asked=(True, False))
def looks_for_clothes(what, colour, asked):
    thing = a(what, colour)
    if asked:
        return sentence(
            f"têm {bare(what, colour, True).pt}",
            f"do you have {bare(what, colour, True).en}",
            "?",
        )
    return sentence(f"estou à procura {de(thing.pt)}", f"I'm looking for {thing.en}")


# --- Going places -----------------------------------------------------------------

PLACES = [
    (the(Noun(pt, en, gender, "", "")), preposition)
    for pt, (gender, en, preposition) in LEXICON["places"].items()
]
GOING = [Phrase(ao(place.pt), f"to {place.en}") for place, _ in PLACES]
GOING += [Phrase("ao médico", "to the doctor")]
STAYING = [Phrase(em(place.pt), f"{at} {place.en}") for place, at in PLACES]
STAYING += [Phrase("em casa", "at home")]


def _going(*places: str) -> list[Phrase]:
    return [where for where in GOING if where.en.removeprefix("to the ") in places]


FUN = _going(
    "beach",
    "park",
    "museum",
    "cinema",
    "theatre",
    "restaurant",
    "swimming pool",
    "stadium",
    "zoo",
    "shopping centre",
    "bookshop",
    "library",
)
OFTEN = _going(
    "market",
    "supermarket",
    "beach",
    "park",
    "library",
    "bakery",
    "swimming pool",
    "gym",
    "cinema",
    "restaurant",
)
LIKELY = FUN + _going("market", "supermarket", "bakery", "gym", "bank", "doctor")


@pattern(who=PEOPLE, where=GOING, when=FUTURE, mode=MODES)
def goes_soon(who, where, when, mode):
    said = clause(who, f"ir {where.pt} {when.pt}", "be", mode=mode)
    going = clause(who, "ir", f"go {where.en} {when.en}", "progressive", mode)
    return sentence(said.pt, going.en, "?" if mode == "?" else ".")


@pattern(who=PEOPLE, where=OFTEN, when=HABIT, mode=MODES)
def goes_habitually(who, where, when, mode):
    if "night" in when.en or "dinner" in when.en:
        return None
    return say(who, f"ir {where.pt} {when.pt}", f"go {where.en} {when.en}", mode=mode)


@pattern(who=PEOPLE, where=GOING, when=PAST, mode=MODES)
def went(who, where, when, mode):
    if "night" in when.en and where not in FUN:
        return None
    return say(
        who, f"ir {where.pt} {when.pt}", f"go {where.en} {when.en}", "past", mode
    )


@pattern(who=PEOPLE, where=COUNTRIES + CITIES, when=phrases("times", "past_year"))
def travelled(who, where, when):
    return say(
        who, f"ir {ao(where.pt)} {when.pt}", f"go to {where.en} {when.en}", "past"
    )


@pattern(who=PEOPLE, where=COUNTRIES + CITIES, when=phrases("times", "future_year"))
def will_travel(who, where, when):
    said = clause(who, f"ir {ao(where.pt)} {when.pt}", "be")
    going = clause(who, "ir", f"go to {where.en} {when.en}", "progressive")
    return sentence(said.pt, going.en)


@pattern(who=PEOPLE, where=LIKELY, whom=NAMED, when=PAST)
def went_with(who, where, whom, when):
    if "night" in when.en and where not in FUN:
        return None
    if not apart(who, whom):
        return None
    return say(
        who,
        f"ir {where.pt} com {whom.pt} {when.pt}",
        f"go {where.en} with {whom.en} {when.en}",
        "past",
    )


@pattern(who=PEOPLE, where=STAYING, mode=MODES)
def is_there_now(who, where, mode):
    return say(who, f"estar {where.pt}", f"be {where.en}", mode=mode)


@pattern(who=PEOPLE, whom=NAMED, where=STAYING, when=PAST)
def saw_someone(who, whom, where, when):
    if "night" in when.en and ("bakery" in where.en or "bank" in where.en):
        return None
    if not apart(who, whom) or where.en == "at home":
        return None
    return say(
        who,
        f"ver {whom.pt} {where.pt} {when.pt}",
        f"see {whom.en} {where.en} {when.en}",
        "past",
    )


@pattern(who=GENDERED_PEOPLE, where=FUN, state=adjectives("state"))
def does_not_go_because(who, where, state):
    if state.en not in ("tired", "ill", "busy", "sad", "late"):
        return None
    goes = clause(who, f"ir {where.pt}", "be", mode="-")
    going = clause(who, "ir", f"go {where.en}", "progressive", "-")
    why = clause(
        pronoun(who)._replace(pt=""), f"estar {agree(state, who)}", f"be {state.en}"
    )
    return sentence(f"{goes.pt} porque {why.pt}", f"{going.en} because {why.en}")


@pattern(
    where=FUN, when=[Phrase("", ""), *FUTURE], who=[YOU, YOU_ALL, *NAMES], mode="?"
)
def invites(where, when, who, mode):
    return say(
        who,
        f"querer ir {where.pt} {when.pt}",
        f"want to go {where.en} {when.en}",
        mode=mode,
    )


RIDES = [
    Phrase("de autocarro", "by bus"),
    Phrase("de comboio", "by train"),
    Phrase("de carro", "by car"),
    Phrase("de bicicleta", "by bike"),
    Phrase("de táxi", "by taxi"),
    Phrase("de metro", "by underground"),
    Phrase("a pé", "on foot"),
]
WORK = [Phrase("para o trabalho", "to work"), Phrase("para a escola", "to school")]


@pattern(who=PEOPLE, where=WORK * 4 + LIKELY, how=RIDES, often=[None, *FREQUENCIES])
def goes_by(who, where, how, often):
    grown_up = GRAND | GROWN_UP | {"neighbour", "colleague"}
    if where.en == "to school" and is_one_of(who, grown_up):
        return None
    if where.en == "to work" and is_one_of(who, GRAND | PUPILS | YOUNG):
        return None
    return say(who, f"ir {where.pt} {how.pt}", f"go {where.en} {how.en}", adverb=often)


@pattern(
    place=PLACES,
    other=PLACES,
    where=[
        Phrase("perto de", "near"),
        Phrase("longe de", "far from"),
        Phrase("ao lado de", "next to"),
        Phrase("em frente de", "in front of"),
        Phrase("atrás de", "behind"),
    ],
)
def place_is_near(place, other, where):
    if place == other or place[0].en == "the beach":
        return None
    if where.en != "far from" and "airport" in (place[0].en + other[0].en):
        return None
    spot = beside(where, other[0])
    return say(place[0], f"ficar {spot.pt}", f"be {spot.en}")


@pattern(place=PLACES, ask=("onde", "como", "horas", "perto", "longe"))
def asks_the_way(place, ask):
    there = place[0]
    name, name_en = there.pt.split(maxsplit=1)[1], there.en.removeprefix("the ")
    one = "uma" if there.pt.startswith("a ") else "um"
    pt, en = {
        "onde": (f"onde fica {there.pt}", f"where is {there.en}"),
        "como": (f"como chego {ao(there.pt)}", f"how do I get to {there.en}"),
        "horas": (f"a que horas abre {there.pt}", f"what time does {there.en} open"),
        "perto": (
            f"há {one} {name} perto daqui",
            f"is there {indefinite(name_en)} near here",
        ),
        "longe": (f"{there.pt} fica longe daqui", f"is {there.en} far from here"),
    }[ask]
    return sentence(pt, en, "?")


OPENING = [
    place
    for place, _ in PLACES
    if place.en not in ("the beach", "the airport", "the hospital", "the hotel")
]
OPENING_TIMES = [("abrir", "open", time) for time in _at(8, 9, 10)]
OPENING_TIMES += [("fechar", "close", time) for time in _at(5, 6, 7, 8)]


@pattern(place=OPENING, when=OPENING_TIMES, mode="++-?")
def opens_at(place, when, mode):
    verb, verb_en, time = when
    return say(place, f"{verb} {time.pt}", f"{verb_en} {time.en}", mode=mode)


BY_LAND = [
    city
    for city in CITIES
    if city.en
    in {"Lisbon", "Coimbra", "Braga", "Faro", "Évora", "Porto", "Madrid", "Paris"}
]
BY_AIR = [city for city in CITIES if city.en not in {"Coimbra", "Braga", "Évora"}]
TRANSPORT = [
    (the(what), where)
    for what in nouns("transport")
    for where in (BY_AIR if what.en == "plane" else BY_LAND)
    if what.en != "boat"
]


@pattern(what=TRANSPORT, time=AT)
def leaves_at(what, time):
    ride, where = what
    return sentence(
        f"{ride.pt} para {where.pt} parte {time.pt}",
        f"{ride.en} to {where.en} leaves {time.en}",
    )


@pattern(what=TRANSPORT, time=AT, tense=("present", "past", "going"))
def arrives_at(what, time, tense):
    ride, where = what
    when = {"past": PAST[0], "going": FUTURE[0]}.get(tense, Phrase("", ""))
    return say(
        ride,
        f"chegar {ao(where.pt)} {when.pt} {time.pt}",
        f"arrive in {where.en} {time.en} {when.en}",
        tense,
    )


@pattern(start=BY_LAND[:-1], end=BY_LAND[:-1], hours=range(2, 8), how=RIDES[:3])
def journey_takes(start, end, hours, how):
    if start == end:
        return None
    long = number(hours, "f")
    return sentence(
        f"a viagem {de(start.pt)} {ao(end.pt)} {how.pt} demora {long.pt} horas",
        f"the journey from {start.en} to {end.en} {how.en} takes {long.en} hours",
    )


TICKETS = [
    (pt, en, city)
    for pt, en, cities in (
        ("de comboio", "train", BY_LAND),
        ("de autocarro", "bus", BY_LAND),
        ("de avião", "plane", BY_AIR),
        ("", "", CITIES),
    )
    for city in cities
]


@pattern(value=range(1, 7), what=TICKETS)
def buys_tickets(value, what):
    kind, kind_en, where = what
    many = number(value)
    pt = f"{many.pt} bilhete{'s' * (value > 1)} {kind}"
    en = f"{'a' if value == 1 else many.en} {kind_en} ticket{'s' * (value > 1)}"
    return sentence(
        f"queria {pt} para {where.pt}, por favor",
        f"I'd like {en} to {where.en}, please",
    )


@pattern(value=range(1, 5), nights=range(1, 15))
def books_a_room(value, nights):
    people, long = number(value, "f"), number(nights, "f")
    pt = f"{people.pt} pessoa{'s' * (value > 1)}"
    en = f"{people.en} {'person' if value == 1 else 'people'}"
    pt_long = f"{long.pt} noite{'s' * (nights > 1)}"
    en_long = f"{long.en} night{'s' * (nights > 1)}"
    return sentence(
        f"queria um quarto para {pt} por {pt_long}",
        f"I'd like a room for {en} for {en_long}",
    )


@pattern(value=range(2, 11), time=_round(_at(12, 1, 7, 8, 9)))
def books_a_table(value, time):
    people = number(value, "f")
    return sentence(
        f"queria reservar uma mesa para {people.pt} pessoas {time.pt}",
        f"I'd like to book a table for {people.en} people {time.en}",
    )
