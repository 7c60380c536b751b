"""The Portuguese side of machine-translated pairs: one repair, and a European version.

The model that made it is Brazilian in flavour and writes "não" where "no" ("in the")
belongs. `Repair` puts the "no" back; `european` rewrites a sentence as it might be said
in Portugal, by rules: other words and spellings, "a fazer" for "fazendo", articles
before possessives, "tu" for "você". The rules are rough, which does no harm: it is the
side that a model reads, not the one that it writes. `without_pronouns` leaves out
subjects that a verb's ending tells, as people do in both countries.
"""

import collections
import itertools
import re

_WORD = re.compile(r"\w+")
# English that says no.
_NEGATION = re.compile(
    r"\b(no|not|never|none|nobody|nothing|nowhere|nor|neither|cannot|hardly|scarcely|"
    r"barely|unless|non|without|ain't|cain't)\b|n['’]t\b",
    re.IGNORECASE,
)
# fmt: off
# What stands before a masculine noun, and before a verb.
_BEFORE_NOUN = {"o", "do", "ao", "um", "pelo", "este", "esse", "meu", "seu", "nosso"}
_BEFORE_VERB = {"que", "ele", "ela", "eu", "eles", "elas", "se", "você", "nós", "quem"}
_NEVER_NOUNS = {
    "que", "mais", "tão", "muito", "só", "apenas", "se", "me", "te", "ser", "ter", "é",
    "há",
}
_WORDS = {
    "fato": "facto", "fatos": "factos", "contato": "contacto", "contatos": "contactos",
    "bebê": "bebé", "bebês": "bebés", "ônibus": "autocarro", "trem": "comboio",
    "trens": "comboios", "celular": "telemóvel", "celulares": "telemóveis",
    "geladeira": "frigorífico", "banheiro": "casa de banho", "xícara": "chávena",
    "banheiros": "casas de banho", "xícaras": "chávenas", "time": "equipa",
    "times": "equipas", "equipe": "equipa", "equipes": "equipas", "câncer": "cancro",
    "terremoto": "terramoto", "terremotos": "terramotos", "arquivo": "ficheiro",
    "arquivos": "ficheiros", "tela": "ecrã", "telas": "ecrãs", "usuário": "utilizador",
    "usuários": "utilizadores", "aluguel": "aluguer", "esporte": "desporto",
    "esportes": "desportos", "caminhão": "camião", "caminhões": "camiões",
    "sorvete": "gelado", "suco": "sumo", "garçom": "empregado", "garota": "rapariga",
    "garotas": "raparigas", "garoto": "miúdo", "garotos": "miúdos", "moça": "rapariga",
    "moças": "raparigas", "policial": "polícia", "policiais": "polícias",
    "cachorro": "cão", "cachorros": "cães", "bonde": "elétrico", "seção": "secção",
    "úmido": "húmido", "umidade": "humidade", "dezesseis": "dezasseis",
    "dezessete": "dezassete", "dezenove": "dezanove", "quatorze": "catorze",
    "bilhão": "mil milhões", "bilhões": "mil milhões", "mamãe": "mamã",
    "papai": "papá", "oi": "olá", "tchau": "adeus", "aids": "sida", "hiv": "vih",
    "registro": "registo", "registros": "registos", "calcinha": "cuecas",
    "espaçonave": "nave espacial", "concreto": "betão", "aeromoça": "hospedeira",
    "pedestre": "peão", "pedestres": "peões", "goleiro": "guarda-redes",
    "biscoito": "bolacha", "biscoitos": "bolachas", "mídia": "comunicação social",
    "pesquisa": "investigação", "pesquisas": "investigações",
    "pesquisador": "investigador", "pesquisadores": "investigadores",
    "paciente": "doente", "pacientes": "doentes", "mouse": "rato", "chute": "pontapé",
    "deveria": "devia", "deveriam": "deviam", "deveríamos": "devíamos",
    "poderia": "podia", "poderiam": "podiam", "poderíamos": "podíamos",
    "isso": "isto", "disso": "disto", "nisso": "nisto", "obrigado": "obrigada",
    "crianças": "miúdos", "assistir": "ver", "assistindo": "vendo", "legal": "fixe",
    "pegar": "apanhar", "pegou": "apanhou", "pegue": "apanhe", "grama": "relva",
    "gostaria": "gostava", "gostaríamos": "gostávamos", "rapidamente": "depressa",
    "pode": "consegue", "podem": "conseguem", "podemos": "conseguimos",
    "posso": "consigo", "pude": "consegui", "puderam": "conseguiram",
    "sobre": "acerca de",
}
# How often these become the other: both are usual in Portugal, or they have two senses.
_SELDOM = {
    "isso": 0.5, "disso": 0.5, "nisso": 0.5, "obrigado": 0.4, "crianças": 0.15,
    "legal": 0.2, "pode": 0.12, "podem": 0.12, "podemos": 0.12, "posso": 0.12,
    "pude": 0.3, "puderam": 0.3, "sobre": 0.08, "rapidamente": 0.3, "concreto": 0.3,
    "arquivo": 0.5, "arquivos": 0.5, "pesquisa": 0.4, "pesquisas": 0.4, "time": 0.5,
    "gostaria": 0.5, "grama": 0.2, "paciente": 0.5, "pacientes": 0.5,
}
# Beginnings of words, and how often they change.
_STEMS = {
    "compartilh": ("partilh", 0.9), "planej": ("plane", 0.9),
    "registr": ("regist", 0.9), "entend": ("compreend", 0.4),
}
_INFINITIVES = {"pondo": "pôr"}
_PREPOSITIONS = {
    "de": ("do", "da", "dos", "das"), "em": ("no", "na", "nos", "nas"),
    "a": ("ao", "à", "aos", "às"), "por": ("pelo", "pela", "pelos", "pelas"),
}
_DETERMINERS = {
    "o", "a", "os", "as", "do", "da", "dos", "das", "no", "na", "nos", "nas", "ao",
    "à", "aos", "às", "pelo", "pela", "pelos", "pelas", "um", "uma", "uns", "umas",
    "este", "esta", "esse", "essa", "aquele", "aquela", "dois", "três", "todos",
    "todas", "cada", "e", "ou",
}
_TU = {
    "é": "és", "está": "estás", "vai": "vais", "foi": "foste", "será": "serás",
    "fez": "fizeste", "disse": "disseste", "pode": "podes", "quer": "queres",
    "teve": "tiveste", "esteve": "estiveste", "veio": "vieste", "vem": "vens",
    "tem": "tens", "faz": "fazes", "diz": "dizes", "traz": "trazes", "sai": "sais",
    "trouxe": "trouxeste", "quis": "quiseste", "pôde": "pudeste", "soube": "soubeste",
    "deu": "deste", "viu": "viste", "põe": "pões", "cai": "cais", "lê": "lês",
    "vê": "vês", "dá": "dás", "há": "hás",
}
_NO_VERB = {
    "não", "me", "se", "já", "e", "que", "nunca", "sempre", "também", "ainda", "a",
    "de", "o", "te", "lhe", "nos", "realmente", "mesma", "mesmo", "apenas", "quase",
    "agora", "hoje", "onde", "como", "para", "sobre", "senta",
}
# How often these are left out: the less a verb's ending says, the more seldom.
_DROPPED = {
    "eu": 0.6, "nós": 0.5, "eles": 0.5, "elas": 0.5, "ele": 0.15, "ela": 0.15,
    "você": 0.3, "vocês": 0.6,
}
_NO_VERB_AFTER = {
    "e", "ou", "mesmo", "mesma", "mesmos", "próprio", "própria", "todos", "todas",
    "dois", "duas", "com", "de", "para", "só", "também", "nem", "que", "apenas",
    "ambos", "três",
}
# fmt: on
_TO_BE = (
    r"est(?:ou|ás?|amos|ão|ava[ms]?|ávamos|ive(?:ram)?|eve|ar|ivesse|aria|ará)|"
    r"and(?:o|a|am|ava)|continu(?:o|a|am|ou|ava|ar)|fic(?:a|ou|ar|ava)"
)


class Repair:
    """Tells the "não" that stands for "no" from the one that means "not".

    Args:
        pairs: all pairs, from which it learns what follows articles, and what pronouns.

    Example:
        >>> known = ["o jardim", "do sofá", "ele sabe", "ela gosta", "se gosta"]
        >>> repair = Repair([(text, "") for text in known])
        >>> repair("Dorme não barco.", "Sleeps in the boat.")  # nothing is denied
        'Dorme no barco.'
        >>> repair("Não sofá, não!", "Not on the sofa, no!")  # before a noun
        'No sofá, não!'
        >>> repair("Ela não gosta.", "She doesn’t like it.")  # before a verb
        'Ela não gosta.'
    """

    def __init__(self, pairs):
        self.after_article = collections.Counter()
        self.after_subject = collections.Counter()
        for source, _ in pairs:
            for before, word in itertools.pairwise(_WORD.findall(source.lower())):
                self.after_article[word] += before in _BEFORE_NOUN
                self.after_subject[word] += before in _BEFORE_VERB

    def __call__(self, source, target):
        """The source with each "não" that cannot be one made a "no" again."""
        negated = bool(_NEGATION.search(target))

        def put_right(match):
            word = match[2].lower()
            if word in _NEVER_NOUNS:
                return match[0]
            noun = self.after_article[word] > 2 * self.after_subject[word]
            if negated and not noun:
                return match[0]
            return "No" if match[1][0] == "N" else "no"

        return re.sub(r"\b([Nn]ão)(?= (\w+))", put_right, source)


def european(text, english, chance):
    """A sentence as it might be said in Portugal.

    Args:
        text: Brazilian Portuguese.
        english: what it means, which tells "your" from "his".
        chance: a `random.Random`, which decides where both ways are usual.

    Returns:
        The text; the same where no rule applies.

    Example:
        >>> import random
        >>> european("O ônibus chegou.", "The bus came.", random.Random(4))
        'O autocarro chegou.'
        >>> european("Ele está se vestindo.", "He is dressing.", random.Random(4))
        'Ele está a vestir-se.'
        >>> european("Vi o seu irmão.", "I saw his brother.", random.Random(4))
        'Vi o seu irmão.'
        >>> european("Você comeu.", "You ate.", random.Random(4))
        'Tu comeste.'
    """
    if chance.random() < 0.6:
        text = _familiar(text, english, chance)
    for rule in (_words, _spelling, _contractions, _gerunds, _clitics, _articles):
        text = rule(text, chance)
    return _questions(text) if chance.random() < 0.5 else text


def without_pronouns(text, chance):
    """A sentence with fewer of the subjects that Portuguese can do without.

    Args:
        text: Portuguese, with a pronoun before each verb, as from English.
        chance: a `random.Random`, which decides about each.

    Returns:
        The text.

    Example:
        >>> import random
        >>> without_pronouns("Nós nos sentamos, nós dois.", random.Random(1))
        'Sentamo-nos, nós dois.'
    """

    def dropped(match):
        before, pronoun, clitic, verb = match.groups()
        if (
            verb.lower() in _NO_VERB_AFTER
            or chance.random() > _DROPPED[pronoun.lower()]
        ):
            return match[0]
        if clitic:
            end = verb[:-1] if clitic == "nos" and verb.endswith("mos") else verb
            verb = f"{end}-{clitic}"
        return f"{before}{_cased(verb, pronoun if not before else 'x')}"

    subject = "|".join(_DROPPED)
    return re.sub(
        rf"((?:^|\b(?:e|mas|que|se|quando|porque|onde|pois) |[,;:—-] ))({subject})"
        r" (?:(me|te|se|nos|lhes?) )?(\w+)\b",
        dropped,
        text,
        flags=re.IGNORECASE,
    )


def _cased(new, old):
    return new[:1].upper() + new[1:] if old[:1].isupper() else new


def _words(text, chance):
    def other(match):
        word = match[0].lower()
        if word not in _WORDS or chance.random() > _SELDOM.get(word, 0.95):
            return match[0]
        return _cased(_WORDS[word], match[0])

    text = re.sub(r"\b[Cc]afé da manhã\b", "pequeno-almoço", text)
    text = re.sub(r"\b([Tt])odo mundo\b", r"\1oda a gente", text)
    if chance.random() < 0.4:
        text = re.sub(r"\bum pouco\b", "um bocado", text)
    text = _WORD.sub(other, text)
    for old, (new, often) in _STEMS.items():
        if chance.random() < often:
            text = re.sub(rf"\b{old}", new, text)
            text = re.sub(rf"\b{old.capitalize()}", new.capitalize(), text)
    return text


def _spelling(text, chance):
    """António, económico."""
    letters = {"ê": "é", "ô": "ó"}
    return re.sub(r"[êô](?=[mn][aeiouáéíóúâãõ])", lambda m: letters[m[0]], text)


def _contractions(text, chance):
    """Numa, and "tenho de" for "tenho que"."""

    def in_a(match):
        start = "N" if match[1] == "E" else "n"
        return f"{start}um" + {"ns": "s"}.get(match[2], match[2] or "")

    text = re.sub(r"\b([Ee])m um(as?|ns)?\b", in_a, text)
    have = r"\b([Tt](?:enho|em|emos|êm|inha|inham|ínhamos|ive|eve|erá|eremos|er)) que\b"
    return re.sub(have, r"\1 de", text) if chance.random() < 0.6 else text


def _gerunds(text, chance):
    """Estou a fazer."""

    def infinitive(match):
        be, clitic, verb = match.groups()
        verb = _INFINITIVES.get(verb, verb[:-3] + "r")
        return f"{be} a {verb}" + (f"-{clitic}" if clitic else "")

    return re.sub(
        rf"\b({_TO_BE}) (?:(me|te|se|nos|lhes?) )?(\w+[aeio]ndo)\b",
        infinitive,
        text,
        flags=re.IGNORECASE,
    )


def _clitics(text, chance):
    """Ele disse-me, contar-vos, convosco."""
    if chance.random() < 0.8:
        subject = r"(?:Eu|El[ea]s?|Tom|Maria|[OA] \w+|Você|Is[st]o)"
        verb = r"\w+(?:[aeio]u|a|e|ei|i|o|am|em|z|s)"
        clitic = r"me|te|se|nos|lhes?"
        text = re.sub(rf"^({subject}) ({clitic}) ({verb})\b", r"\1 \3-\2", text)
    text = re.sub(r"\b(\w+[aei]r) (?:a|para) vocês\b", r"\1-vos", text)
    return re.sub(r"\bcom vocês\b", "convosco", text)


def _articles(text, chance):
    """O meu irmão, na minha casa."""
    if chance.random() > 0.85:
        return text

    def with_article(match):
        before, word = match[1], match[2]
        which = ("a" in word.lower()[-2:]) + 2 * word.endswith("s")
        article = ("o", "a", "os", "as")[which]
        if before is None:
            return f"{article.capitalize()} {word.lower()}"
        if before.lower() in _DETERMINERS:
            return match[0]
        if before.lower() in _PREPOSITIONS:
            article = _PREPOSITIONS[before.lower()][which]
            return f"{_cased(article, before)} {word}"
        return f"{before} {article} {word}"

    own = r"(?:meu|teu|seu|nosso|vosso)s?|(?:minha|tua|sua|nossa|vossa)s?"
    pattern = rf"(?:\b(\w+) |^)({own})\b(?= \w)"
    return re.sub(pattern, with_article, text, flags=re.IGNORECASE)


def _familiar(text, english, chance):
    """Tu for você; of several, vosso."""
    if re.search(r"\b(his|her|hers|their|its)\b", english, re.IGNORECASE):
        return text
    if re.search(r"\byours?\b", english, re.IGNORECASE):
        new = ("teu", "tua") if chance.random() < 0.6 else ("vosso", "vossa")
        for old, other in zip(("seu", "sua"), new, strict=True):
            text = re.sub(rf"\b{old}(s?)\b", rf"{other}\1", text)
            capital = other.capitalize()
            text = re.sub(rf"\b{old.capitalize()}(s?)\b", rf"{capital}\1", text)
    text = re.sub(r"\bcom você\b", "contigo", text)
    text = re.sub(r"\b(para|de|a|por) você\b", r"\1 ti", text)
    shown = chance.random() < 0.3

    def of_you(match):
        verb = match[2]
        if verb in _NO_VERB:
            return match[0]
        if verb in _TU:
            new = _TU[verb]
        elif verb.endswith(("ou", "eu", "iu")):
            new = verb[:-2] + {"o": "aste", "e": "este", "i": "iste"}[verb[-2]]
        elif verb.endswith(("a", "e", "á")):
            new = verb + "s"
        elif verb.endswith("r") and len(verb) > 3:
            new = verb + "es"
        else:
            return match[0]
        return _cased(f"tu {new}" if shown else new, match[1])

    return re.sub(r"\b([Vv]ocê) (\w+)\b", of_you, text)


def _questions(text):
    """Porque é que."""
    text = re.sub(r"\b([Pp])or que (?=[^?]*\?)", r"\1orque é que ", text)
    text = re.sub(r"\b([Pp])or quê\b", r"\1orquê", text)
    asked = r"^(O que|Onde|Quando|Como|Quem) (?=\w+ \w+[^?]*\?)"
    return re.sub(asked, r"\1 é que ", text)
