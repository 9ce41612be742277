"""Fields of records that a person should review: unmasked fields that look like personal data, and fields in quarantine.

A name is read as a noun phrase: its last word is the thing, the words before say whose or which. `customer_email` is an e-mail
address, `email_count` a count. A struct gives its fields their first words: `card.number` is read like `card_number`. A name
proves nothing: `docs/masking.md` lists false positives and false negatives.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from calve.config.job import Table
from calve.config.steps import is_masked, names_behind, ways_to
from calve.decoding.field_quarantine import admitted, leaves
from calve.errors import Suspended
from calve.schema.columns import Json, join
from calve.schema.evolution import data_columns
from cli.project.plan.deployed import DeployedTable
from cli.project.plan.survey import Read, Records

PERSONAL = "looks like personal data"
DECIDE = (
    "A field that looks like personal data: mask it with `mask: {NAME: hash}`, or keep it as it is with"
    " `mask: {fields: {NAME: keep}, key: keep, headers: keep}`"
)
"""The fix for fields that look like personal data, in the table's steps."""
Tags = dict[str, tuple[str, ...]]
Undecided = dict[str, tuple[str, ...]]
"""By table, a sentence for each field."""


def undecided(records: Records, deployed: Mapping[str, DeployedTable]) -> Undecided:
    """Fields that the records' schemas have and the tables do not."""
    return {
        name: tuple(_of_table(each, deployed.get(name)))
        for name, each in records.items()
        if isinstance(each, Read)
    }


def looking_personal(table: Table, columns: Json, tags: Tags, is_new: Callable[[str], bool]) -> Iterator[str]:
    """A sentence for each new field that looks like personal data and that no rule decides on."""
    for each in findings(columns, tags):
        if is_new(each.path) and _may_get_in(table, each.path) and not _is_decided(table, each.path, tags):
            yield f"{each.path} {PERSONAL} ({each.why})"


def _of_table(read: Read, deployed: DeployedTable | None) -> Iterator[str]:
    table, parts, versions = read.table, read.parts, read.versions
    try:
        columns = parts.first_columns(versions)
    except Suspended:  # the job will say it of the table
        return
    tags, fields = parts.tags(columns, versions), parts.leaves(columns, versions)
    known = deployed.fields if deployed and table.quarantine_new_fields else None
    let_in = admitted(fields, known, table.steps, parts.own_columns)
    looks = {each.path: f", and {PERSONAL} ({each.why})" for each in findings(columns, tags)}
    for path in sorted(fields.keys() - let_in):
        yield f"{path} is in quarantine{looks.get(path, '')}: name it in the step mask, with a rule or keep"
    held = leaves(data_columns(deployed.columns)).keys() if deployed else set()
    there = {path for path in fields if path not in let_in or names_behind(table.steps, path) & held}
    begun = {way for path in there for way in ways_to(path)}
    yield from looking_personal(table, columns, tags, lambda path: path not in begun)


def _is_decided(table: Table, path: str, tags: Tags) -> bool:
    """Whether a rule names the field, a tag of it, or a tag of a field around it."""
    return is_masked(table.steps, path, (tag for way in ways_to(path) for tag in tags.get(way, ())))


def _may_get_in(table: Table, path: str) -> bool:
    """Whether the field can reach the table: of aggregated records, only group keys are kept as they are."""
    return table.aggregate is None or not set(table.aggregate.key).isdisjoint(ways_to(path))


_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
LONGEST = 4
"""Last words of a name that belong together."""

TEXTS: Mapping[str, str] = {
    "e-mail": "email mail emailaddress mailaddress emailaddr correo correoelectronico courriel",
    "name of a person": "firstname lastname fullname surname givenname familyname middlename maidenname forename nickname"
    " namefirst namelast username vorname nachname prenom nomdefamille apellido nombrecompleto",
    "postal address": "address addr addressline street streetname streetaddress zip zipcode postcode postalcode addresscity"
    " homecity anschrift adresse strasse plz postleitzahl rue codepostal direccion calle codigopostal",
    "sex": "gender sex geschlecht sexe sexo",
    "trait under special protection": "religion ethnicity nationality maritalstatus diagnosis",
    "password": "password passwd passwort",
    "bank account": "iban bankaccount bankaccountnumber accountnumber accountno kontonummer",
    "device": "macaddress imei imsi advertisingid idfa",
}
"""What a text may be -> the words that say so, plural forms left out."""
VALUES: Mapping[str, str] = {
    "telephone number": "phone telephone tel mobile cellphone cell fax msisdn telefon telefonnummer handy handynummer telefono",
    "date of birth": "birth birthdate birthday birthyear birthplace dateofbirth yearofbirth placeofbirth dob geburtsdatum"
    " geburtstag datedenaissance fechadenacimiento fechanacimiento",
    "identity document": "ssn socialsecurity nationalid taxid passport driverslicense driverlicense drivinglicence"
    " identitycard idcard personalcode nino dni nif steuernummer",
    "payment card": "card cardpan pan creditcard debitcard cvv cvc",
    "IP address": "ip ips ipv ipaddress ipaddr ipvaddress clientip remoteip",
    "location": "lat latitude lon lng longitude geolocation geopoint gps gpslocation gpsposition gpscoordinate",
    "salary": "salary wage gehalt salaire salario",
}
"""The same for texts, numbers and all other types except booleans."""
PERSONS = (
    "customer client person user contact employee patient passenger guest recipient member subscriber student visitor buyer"
    " cardholder holder accountholder beneficiary debtor creditor"
)
"""Words before `name` that make it a person's name."""
OTHERS = (
    "walletaddress contractaddress tokenaddress memoryaddress serveraddress hostaddress bindaddress webaddress urladdress"
    " nodeaddress peeraddress brokeraddress busaddress listenaddress companyname webmail voicemail"
    " graphicscard scorecard soundcard networkcard reportcard"
)
"""Names that end like personal data, but are not."""
BESIDE = "value text raw string number num no nr line home work private primary secondary main old new"
"""Words that may follow the noun: `phone_home`, `passport_no`."""
COUNTED = "is has num count total nr of"
"""First words of names about a thing, not the thing itself: `num_phones`, `has_email`."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A field that looks like personal data. path: as those of `calve.config.steps`. why: its apparent kind."""

    path: str
    why: str


def findings(columns: Json, tags: Mapping[str, tuple[str, ...]]) -> list[Finding]:
    """The fields that look like personal data, in their order; tags: of fields by path, each of which is a sign."""
    found = []
    for path, kind in _fields(columns, ""):
        why = f"tagged {', '.join(tags[path])}" if path in tags else _looks_like(path, kind)
        if why is not None:
            found.append(Finding(path, why))
    return found


def _looks_like(path: str, kind: Json) -> str | None:
    if not isinstance(kind, str) or kind == "boolean":
        return None
    own, words = words_of(path.rpartition(".")[2]), words_of(path)
    if own and own[0] in _COUNTED:
        return None
    while words:
        for length in range(min(LONGEST, len(words)), 0, -1):
            name = "".join(words[-length:])
            if name in _OTHERS:
                return None
            if why := _VALUES.get(name) or (_TEXTS.get(name) if kind in ("string", "binary") else None):
                return why
        if words.pop() not in _BESIDE:
            return None
    return None


def words_of(path: str) -> list[str]:
    """The words of snake_case and camelCase names, in lower case and singular, without digits."""
    return [_singular(each.lower()) for each in _WORD.findall(path)]


def _singular(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith("ies"):
        return word[:-3] + "y"
    plural = len(word) > len("gps") and word.endswith("s") and not word.endswith("ss")
    return word[:-1] if plural else word


def _fields(kind: Json, path: str) -> Iterator[tuple[str, Json]]:
    """Every field with the type of its values; lists and maps count as their values."""
    while isinstance(kind, dict) and kind["type"] != "struct":
        kind = kind["element" if kind["type"] == "list" else "value"]
    if path:
        yield path, kind
    if isinstance(kind, dict):
        for each in kind["fields"]:
            yield from _fields(each["type"], join(path, each["name"]))


def _by_word(kinds: Mapping[str, str]) -> dict[str, str]:
    return {word: why for why, words in kinds.items() for word in words.split()}


_TEXTS = _by_word(TEXTS) | {f"{each}name": "name of a person" for each in PERSONS.split()}
_VALUES = _by_word(VALUES)
_OTHERS, _BESIDE, _COUNTED = (frozenset(words.split()) for words in (OTHERS, BESIDE, COUNTED))
