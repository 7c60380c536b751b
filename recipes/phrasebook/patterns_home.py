# ruff: noqa: D103
"""Patterns about home: rooms, belongings, food and drink."""

from grammar import (
    Noun,
    Phrase,
    a,
    adjectives,
    agree,
    ao,
    bare,
    clause,
    count,
    de,
    em,
    generic,
    indefinite,
    join,
    nouns,
    number,
    own,
    possessive,
    say,
    sentence,
    the,
    this,
)
from patterns import (
    COLOURS,
    FREQUENCIES,
    FURNITURE,
    FUTURE,
    HE,
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
    THIRD_PERSONS,
    YOU,
    YOU_ALL,
    apart,
    beside,
    fits,
    is_one_of,
    of_whom,
    pattern,
    pronoun,
)

from tfxformer.corpora import Pair

# --- At home ----------------------------------------------------------------------

ROOMS = nouns("room")
INDOORS = FURNITURE + nouns("decoration|machine")
MACHINES = nouns("machine")
THINGS = nouns("thing")
LYING = THINGS + nouns("paper|clothes")
HIDING = [
    Phrase("em cima de", "on"),
    Phrase("debaixo de", "under"),
    Phrase("ao lado de", "next to"),
    Phrase("atrás de", "behind"),
    Phrase("em frente de", "in front of"),
]


@pattern(what=LYING, place=HIDING, where=FURNITURE, owner=[None, *OWNERS], mode="++-?")
def thing_is_there(what, place, where, owner, mode):
    if place.en == "under" and where.en in ("wardrobe", "bookcase", "sofa"):
        return None
    if mode == "?" and owner and owner.person == 2:
        return None
    thing = of_whom(what, owner)
    spot = beside(place, the(where))
    return say(thing, f"estar {spot.pt}", f"be {spot.en}", mode=mode)


@pattern(what=nouns("pet"), place=HIDING, where=FURNITURE, owner=[None, *NAMES])
def pet_is_there(what, place, where, owner):
    if what.en == "horse" or where.en == "wardrobe":
        return None
    spot = beside(place, the(where))
    return say(of_whom(what, owner), f"estar {spot.pt}", f"be {spot.en}")


@pattern(what=LYING, owner=[None, *OWNERS, *NAMED])
def where_is_it(what, owner):
    if owner and owner.plural:
        return None
    if (owner and not fits(owner, what)) or owner == YOU:
        return None
    thing = of_whom(what, owner)
    verb, be = ("estão", "are") if thing.plural else ("está", "is")
    return sentence(f"onde {verb} {thing.pt}", f"where {be} {thing.en}", "?")


@pattern(who=PEOPLE, where=ROOMS, mode=MODES)
def is_in_the_room(who, where, mode):
    room = the(where)
    return say(who, f"estar {em(room.pt)}", f"be in {room.en}", mode=mode)


@pattern(what=LYING, where=ROOMS, owner=[None, *OWNERS, *NAMES], mode="++-?")
def thing_is_in_the_room(what, where, owner, mode):
    if (owner and not fits(owner, what)) or (owner == YOU and mode == "?"):
        return None
    thing, room = of_whom(what, owner), the(where)
    return say(thing, f"estar {em(room.pt)}", f"be in {room.en}", mode=mode)


@pattern(what=INDOORS, where=ROOMS, value=range(1, 9))
def there_is_in_the_room(what, where, value):
    kitchen = ("table", "chair", "lamp", "fridge", "cooker", "washing machine")
    if where.en in ("garden", "garage"):
        return None
    if (where.en == "kitchen") != (what.en in kitchen[3:]) and what.en not in kitchen[
        :3
    ]:
        return None
    if what.en in ("bed", "wardrobe") and where.en != "bedroom":
        return None
    if value > 2 and what.en not in ("chair", "painting", "lamp"):
        return None
    if value > 1 and what in MACHINES:
        return None
    return _there_is(count(value, what), what, the(where))


def _there_is(many: Phrase, what: Noun, room: Phrase) -> Pair:
    en = f"are {many.en}" if many.plural else f"is {indefinite(what.en)}"
    there = f"there {en}".replace("there is", "there's")
    return sentence(f"há {many.pt} {em(room.pt)}", f"{there} in {room.en}")


SCARY = nouns("scary")
OUTDOORS = [
    (Phrase("o jardim", "the garden"), "cat dog rabbit bird turtle hen duck snake bee"),
    (Phrase("o parque", "the park"), "cat dog bird duck horse bee mouse"),
    (Phrase("a rua", "the street"), "cat dog bird mouse donkey"),
    (Phrase("a quinta", "the farm"), "cow sheep hen duck pig donkey horse dog"),
]


@pattern(what=nouns("animal"), value=range(1, 11), where=OUTDOORS)
def there_is_an_animal(what, value, where):
    if what.en not in where[1].split() or (value > 3 and what in SCARY):
        return None
    return _there_is(count(value, what), what, where[0])


@pattern(what=[*nouns("tableware"), *nouns("furniture")[:2]], where=ROOMS[:2])
def how_many_are_there(what, where):
    many, room = bare(what, plural=True), the(where)
    how = "quantas" if what.gender == "f" else "quantos"
    return sentence(
        f"{how} {many.pt} há {em(room.pt)}",
        f"how many {many.en} are there in {room.en}",
        "?",
    )


@pattern(
    what=nouns("building|room"), look=adjectives("home"), owner=[*OWNERS, *NAMES, None]
)
def home_is_like_that(what, look, owner):
    if look.en in ("modern", "old", "beautiful") and what.en == "garage":
        return None
    if what.en == "garden" and look.en not in ("big", "small", "beautiful", "empty"):
        return None
    place = of_whom(what, owner)
    verb = "estar" if look.en in ("clean", "dirty", "empty") else "ser"
    return say(place, f"{verb} {agree(look, place)}", f"be {look.en}")


@pattern(what=nouns("building"), owner=OWNERS + NAMES, room=ROOMS[1:5], value=(1, 2, 3))
def home_has_rooms(what, owner, room, value):
    if room.en in ("garden", "garage") and what.en == "flat":
        return None
    if value > 1 and room.en != "bedroom":
        return None
    home, many = of_whom(what, owner), count(value, room)
    en = indefinite(room.en) if value == 1 else many.en
    return say(home, f"ter {many.pt}", f"have {en}")


@pattern(what=nouns("machine"), owner=[None, *OWNERS, *NAMES], mode="+-")
def machine_works(what, owner, mode):
    machine = of_whom(what, owner)
    if mode == "+":
        broken = "avariada" if machine.gender == "f" else "avariado"
        return say(machine, f"estar {broken}", "be broken")
    return say(machine, "funcionar", "work", mode="-")


@pattern(who=PEOPLE, what=nouns("furniture|machine|vehicle|clothes"), when=PAST)
def bought_something(who, what, when):
    new = a(what, adjectives("quality")[0])
    if is_one_of(who, PUPILS | {"children"}) or not fits(who, what):
        return None
    return say(who, f"comprar {new.pt} {when.pt}", f"buy {new.en} {when.en}", "past")


@pattern(who=PEOPLE, what=nouns("building|vehicle"), look=adjectives("quality"))
def wants_to_buy(who, what, look):
    if is_one_of(who, PUPILS | {"children"}) or look.en == "ugly":
        return None
    thing = a(what, look)
    return say(who, f"querer comprar {thing.pt}", f"want to buy {thing.en}")


# --- What people have -------------------------------------------------------------

VEHICLES = nouns("vehicle")
PETS = nouns("pet")
PET_COLOURS = [c for c in COLOURS if c.en in ("white", "black", "brown", "grey")]


@pattern(who=PEOPLE, what=nouns("clothes|bag|vehicle"), colour=COLOURS)
def has_a_coloured_thing(who, what, colour):
    if not fits(who, what) or (who.plural and what not in VEHICLES):
        return None
    if what in VEHICLES and what.en != "bike" and is_one_of(who, PUPILS | {"children"}):
        return None
    thing = a(what, colour)
    return say(who, f"ter {thing.pt}", f"have {thing.en}")


@pattern(who=PEOPLE, pet=nouns("pet"), colour=PET_COLOURS)
def has_a_coloured_pet(who, pet, colour):
    if pet.en in ("turtle", "parrot") or who.plural:
        return None
    one = a(pet, colour)
    return say(who, f"ter {one.pt}", f"have {one.en}")


@pattern(who=PEOPLE, pet=nouns("pet"), value=range(1, 5), mode=MODES)
def has_pets(who, pet, value, mode):
    many = count(value, pet) if mode == "+" else bare(pet, plural=True)
    en = indefinite(pet.en) if mode == "+" and value == 1 else many.en
    return say(who, f"ter {many.pt}", f"have {en}", mode=mode)


@pattern(owner=OWNERS + NAMED, what=nouns("clothes|bag|vehicle|pet"), colour=COLOURS)
def is_of_that_colour(owner, what, colour):
    if (what in PETS and colour not in PET_COLOURS) or not fits(owner, what):
        return None
    thing = of_whom(what, owner)
    return say(thing, f"ser {agree(colour, thing)}", f"be {colour.en}")


@pattern(owner=OWNERS + NAMED, pet=nouns("pet"), look=adjectives("pet"))
def pet_is_like_that(owner, pet, look):
    one = of_whom(pet, owner)
    return say(one, f"ser {agree(look, one)}", f"be {look.en}")


@pattern(
    what=nouns("clothes|furniture|vehicle|thing|machine"),
    look=adjectives("quality"),
    plural=(False, True),
    far=(False, True),
    very=(False, True),
)
def this_is_like_that(what, look, plural, far, very):
    thing = this(what, plural, far)
    pt, en = agree(look, thing), look.en
    if very:
        pt, en = f"muito {pt}", f"very {en}"
    return say(thing, f"ser {pt}", f"be {en}")


@pattern(what=nouns("clothes|furniture|vehicle|thing"), owner=OWNERS + NAMED)
def this_belongs_to(what, owner):
    if not fits(owner, what):
        return None
    thing = this(what)
    if owner in OWNERS:
        mine = {"my": "mine", "his": "his"}.get(
            possessive(owner), f"{possessive(owner)}s"
        )
        pt = own(owner, what).pt.split()
        whose = pt[-1] if owner.person == 3 else pt[1]
        return say(thing, f"ser {whose}", f"be {mine}")
    genitive = "'" if owner.plural and owner.en.endswith("s") else "'s"
    return say(thing, f"ser {de(owner.pt)}", f"be {owner.en}{genitive}")


@pattern(what=nouns("clothes|furniture|vehicle|thing"), plural=(False, True))
def whose_is_this(what, plural):
    thing = this(what, plural)
    verb, be = ("são", "are") if thing.plural else ("é", "is")
    pointed, noun = thing.en.split(maxsplit=1)
    return sentence(f"de quem {verb} {thing.pt}", f"whose {noun} {be} {pointed}", "?")


@pattern(
    what=nouns("clothes"),
    far=(False, True),
    plural=(False, True),
    fit=adjectives("fit"),
)
def does_not_fit(what, far, plural, fit):
    if fit.en in ("long", "short") and what.en not in (
        "coat",
        "dress",
        "skirt",
        "tie",
        "scarf",
        "trousers",
        "jumper",
        "shirt",
    ):
        return None
    if what.en in ("tie", "scarf") and fit.en in ("tight", "loose", "big", "small"):
        return None
    thing = this(what, plural, far)
    return say(thing, f"ser demasiado {agree(fit, thing)}", f"be too {fit.en}")


LOSABLE = nouns("pocket") + [
    noun
    for noun in nouns("clothes")
    if noun.en in ("coat", "hat", "scarf", "gloves", "jumper")
]


@pattern(who=PEOPLE, what=LOSABLE, when=PAST)
def lost(who, what, when):
    # They lost their coats, one each.
    thing = the(what, plural=who.plural)
    en = f"{possessive(who)} {bare(what, plural=who.plural).en}"
    return say(who, f"perder {thing.pt} {when.pt}", f"lose {en} {when.en}", "past")


@pattern(who=PEOPLE, what=nouns("pocket|bag"), where=ROOMS)
def found(who, what, where):
    thing, room = own(who, what, plural=who.plural), the(where)
    return say(
        who,
        f"encontrar {thing.pt} {em(room.pt)}",
        f"find {thing.en} in {room.en}",
        "past",
    )


@pattern(who=PEOPLE, what=nouns("thing|clothes"), mode=STATE_OR_DENY)
def left_at_home(who, what, mode):
    if what.en in ("trousers", "skirt", "dress", "shirt", "shoes", "boots", "socks"):
        return None
    if not fits(who, what) or what.en in ("box", "blouse"):
        return None
    thing = the(what, plural=who.plural)
    en = f"{possessive(who)} {bare(what, plural=who.plural).en}"
    return say(who, f"deixar {thing.pt} em casa", f"leave {en} at home", "past", mode)


@pattern(what=nouns("pocket|vehicle"), who=[YOU, YOU_ALL, *NAMES])
def asks_to_borrow(what, who):
    if what.en in ("wallet", "passport", "glasses"):
        return None
    owner = YOU if who in (YOU, YOU_ALL) else who
    if who == YOU_ALL:
        owner = YOU_ALL
    thing = own(owner, what)
    return say(
        who, f"poder emprestar-me {thing.pt}", f"can lend me {thing.en}", mode="?"
    )


@pattern(who=PEOPLE, whom=NAMES + ONE_KIN, what=nouns("clothes|pocket"), when=PAST)
def gave(who, whom, what, when):
    if what.en in ("wallet", "passport", "key", "glasses") or not fits(whom, what):
        return None
    if not apart(who, whom):
        return None
    thing = a(what)
    return say(
        who,
        f"dar {thing.pt} {ao(whom.pt)} {when.pt}",
        f"give {whom.en} {thing.en} {when.en}",
        "past",
    )


@pattern(who=PEOPLE, whom=NAMES + ONE_KIN, when=PAST, mode=MODES)
def phoned(who, whom, when, mode):
    if not apart(who, whom):
        return None
    return say(
        who,
        f"telefonar {ao(whom.pt)} {when.pt}",
        f"phone {whom.en} {when.en}",
        "past",
        mode,
    )


WORN = [
    noun
    for noun in nouns("clothes")
    if noun.only_plural or noun.en in ("hat", "tie", "scarf", "skirt", "shirt")
]


@pattern(who=PEOPLE, what=WORN, often=FREQUENCIES)
def wears(who, what, often):
    if not fits(who, what) or who.plural or (who.pt == "" and what.en == "skirt"):
        return None
    en = bare(what).en if what.only_plural else indefinite(what.en)
    return say(who, f"usar {what.pt}", f"wear {en}", adverb=often)


# --- Food and drink ---------------------------------------------------------------

FOODS = nouns("food")
DRINKS = nouns("drink")
CONSUMED = [("comer", "eat", food) for food in FOODS if food.en != "butter"]
CONSUMED += [("beber", "drink", drink) for drink in DRINKS]
# Two of a kind, to choose between: fruit and fruit, drink and drink.
CHOICES = [
    (generic(one), generic(other))
    for kind in ("main", "fruit", "vegetable", "sweet", "drink")
    for one in nouns(kind)
    for other in nouns(kind)
    if one != other and {one.en, other.en} not in ({"milk", "beer"}, {"milk", "wine"})
]
MEALS = [
    Phrase("ao pequeno-almoço", "for breakfast"),
    Phrase("ao almoço", "for lunch"),
    Phrase("ao jantar", "for dinner"),
]


@pattern(who=PEOPLE, what=CONSUMED, mode=MODES)
def eats(who, what, mode):
    verb, verb_en, food = what
    said = generic(food)
    return say(who, f"{verb} {said.pt}", f"{verb_en} {said.en}", mode=mode)


@pattern(who=PEOPLE, what=CONSUMED, often=FREQUENCIES)
def eats_often(who, what, often):
    verb, verb_en, food = what
    said = generic(food)
    return say(who, f"{verb} {said.pt}", f"{verb_en} {said.en}", adverb=often)


@pattern(who=PEOPLE, what=CONSUMED, meal=MEALS, tense=("present", "past", "going"))
def eats_for_a_meal(who, what, meal, tense):
    verb, verb_en, food = what
    morning = (
        "bread",
        "fruit",
        "cheese",
        "ham",
        "milk",
        "coffee",
        "tea",
        "orange juice",
    )
    late = ("bread", "cheese", "fruit", "rice", "meat", "fish", "chicken", "pasta")
    drinks = ("water", "wine", "beer", "lemonade", "orange juice")
    if food.en not in (morning if "breakfast" in meal.en else late + drinks):
        return None
    day = {"past": PAST[0], "going": FUTURE[0]}.get(tense, Phrase("", ""))
    return say(
        who,
        f"{verb} {generic(food).pt} {meal.pt} {day.pt}",
        f"{verb_en} {generic(food).en} {meal.en} {day.en}",
        tense,
    )


@pattern(who=PEOPLE, what=FOODS + DRINKS, mode=MODES)
def likes_food(who, what, mode):
    food = generic(what)
    return say(who, f"gostar {de(food.pt)}", f"like {food.en}", mode=mode)


@pattern(who=PEOPLE, choice=CHOICES)
def likes_one_not_the_other(who, choice):
    food, not_that = choice
    likes = clause(who, f"gostar {de(food.pt)}", f"like {food.en}")
    again = pronoun(who)._replace(pt="")
    dislikes = clause(
        again, f"gostar {de(not_that.pt)}", f"like {not_that.en}", mode="-"
    )
    return sentence(f"{likes.pt}, mas {dislikes.pt}", f"{likes.en}, but {dislikes.en}")


@pattern(who=PEOPLE, choice=CHOICES)
def prefers(who, choice):
    one, other = choice
    return say(who, f"preferir {one.pt} a {other.pt}", f"prefer {one.en} to {other.en}")


@pattern(choice=CHOICES, who=[YOU, YOU_ALL, HE, SHE, *NAMES, *THIRD_PERSONS], mode="?")
def offers_a_choice(choice, who, mode):
    one, other = choice
    return say(
        who, f"querer {one.pt} ou {other.pt}", f"want {one.en} or {other.en}", mode=mode
    )


@pattern(who=PEOPLE, one=FOODS, other=FOODS + DRINKS, verb=("precisar", "comprar"))
def needs_or_bought(who, one, other, verb):
    if one == other or {one.en, other.en} == {"orange", "orange juice"}:
        return None
    both = join((generic(one), generic(other)))
    if verb == "precisar":
        second = de(generic(other).pt)
        return say(who, f"precisar {de(generic(one).pt)} e {second}", f"need {both.en}")
    return say(
        who,
        f"comprar {both.pt} no supermercado",
        f"buy {both.en} at the supermarket",
        "past",
    )


DISHES = nouns("dish")
DISH_ORDERS = [a(noun) for noun in DISHES]
DRINK_ORDERS = [a(noun) for noun in DRINKS if noun.en not in ("milk", "wine", "water")]
DRINK_ORDERS += [
    Phrase(f"{pt} {de(drink.pt)}", f"{en} of {drink.en}")
    for drink in DRINKS
    for pt, en in (("um copo", "a glass"), ("uma garrafa", "a bottle"))
    if drink.en in ("milk", "wine", "water", "lemonade")
]
ORDERED = DISH_ORDERS + DRINK_ORDERS


@pattern(what=ORDERED, other=[None, *DRINK_ORDERS])
def orders(what, other):
    if what in DRINK_ORDERS and other:
        return None
    both = join((what, other)) if other else what
    return sentence(f"queria {both.pt}, por favor", f"I'd like {both.en}, please")


@pattern(what=ORDERED, who=[YOU, YOU_ALL, HE, SHE, THEY, *NAMED], mode="?")
def wants_food(what, who, mode):
    return say(who, f"querer {what.pt}", f"want {what.en}", mode=mode)


@pattern(what=ORDERED, who=NAMED)
def someone_ordered(what, who):
    return say(who, f"pedir {what.pt}", f"order {what.en}", "past")


SWEET = ("ice cream", "cake", "custard tart", "honey", "butter", "chocolate", "fruit")


@pattern(
    what=DISHES + nouns("food", "mass"),
    taste=adjectives("taste"),
    far=(False, True, None),
)
def food_tastes(what, taste, far):
    never_hot = (*SWEET, "cheese", "ham", "salad", "sandwich")
    if taste.en in ("hot", "cold") and what.en in never_hot:
        return None
    if taste.en == "salty" and what.en in SWEET:
        return None
    food = the(what) if far is None else this(what, far=far)
    return say(food, f"estar {agree(taste, food)}", f"be {taste.en}")


WEIGHED = nouns("fruit") + nouns("vegetable")
WEIGHED += [food for food in FOODS if food.en in ("rice", "meat", "fish", "cheese")]


@pattern(what=WEIGHED, value=(1, 2, 3, 4, 5), asked=(False, True))
def buys_kilos(what, value, asked):
    kilos = number(value)
    food = generic(what)
    pt = f"{kilos.pt} quilo{'s' * (value > 1)} {de(food.pt)}"
    en = f"{'a' if value == 1 else kilos.en} kilo{'s' * (value > 1)} of {food.en}"
    if asked:
        return sentence(f"queria {pt}, por favor", f"I'd like {en}, please")
    return sentence(f"comprei {pt}", f"I bought {en}")


@pattern(what=FOODS + DRINKS, where=("frigorífico", "cozinha"), mode="+-?")
def there_is_food(what, where, mode):
    food = generic(what)
    room = {"frigorífico": ("no frigorífico", "in the fridge")}.get(
        where, ("na cozinha", "in the kitchen")
    )
    plural = food.plural
    pt = f"{'não ' if mode == '-' else ''}há {food.pt} {room[0]}"
    if mode == "?":
        be = "are" if plural else "is"
        return sentence(pt, f"{be} there any {food.en} {room[1]}", "?")
    there = "there are" if plural else "there's"
    amount = "no" if mode == "-" else "some"
    return sentence(pt, f"{there} {amount} {food.en} {room[1]}")


@pattern(owner=OWNERS + NAMED, what=DISHES + nouns("main"))
def favourite_dish(owner, what):
    dish = Noun("prato preferido", "favourite dish", "m", "", "")
    if what.en in ("ice cream", "cake"):
        dish = Noun("sobremesa preferida", "favourite dessert", "f", "", "")
    elif what.en in ("custard tart", "sandwich", "omelette", "hamburger"):
        return None
    return say(of_whom(dish, owner), f"ser {the(what).pt}", f"be {what.en}")


@pattern(owner=OWNERS + NAMED, colour=COLOURS)
def favourite_colour(owner, colour):
    noun = Noun("cor preferida", "favourite colour", "f", "", "")
    return say(of_whom(noun, owner), f"ser o {colour.pt}", f"be {colour.en}")
