"""Fields that a person should review, and `calve plan --table --schema`: what a schema changes before it is registered.

To review are unmasked fields that look like personal data, and fields in quarantine. A name is read as a noun phrase: its last
word is the thing, the words before say whose or which. `customer_email` is an e-mail address, `email_count` a count. A struct
gives its fields their first words: `card.number` is read like `card_number`. A name proves nothing: `docs/masking.md` lists false
positives and false negatives.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from calve.config.job import Job, PartName, Table
from calve.config.steps import is_masked, names_behind, ways_to
from calve.decoding.field_quarantine import admitted, leaves
from calve.decoding.formats import columns
from calve.decoding.record_schemas import record_schemas_of
from calve.errors import ConfigError, Suspended
from calve.registry.registry import open_registry
from calve.schema.columns import Json, innermost, places, tags_of
from calve.schema.evolution import Change, data_columns
from calve.schema.lineage import Proposal
from calve.schema.wire import Schema
from cli.config import table_named
from cli.console import Branch
from cli.kafka import cluster_database
from cli.lake import load, open_catalog
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
    # Of aggregated records, only group keys are kept as they are.
    kept = set(table.aggregate.key) if table.aggregate else None
    for path, why in findings(columns, tags).items():
        ways = ways_to(path)
        # A rule may name the field, a tag of it, or a tag of a field around it.
        decided = is_masked(table.steps, path, (tag for way in ways for tag in tags.get(way, ())))
        if is_new(path) and not decided and (kept is None or not kept.isdisjoint(ways)):
            yield f"{path} {PERSONAL} ({why})"


def _of_table(read: Read, deployed: DeployedTable | None) -> Iterator[str]:
    table, parts, versions = read.table, read.parts, read.versions
    try:
        columns = parts.first_columns(versions)
    except Suspended:  # the job will say it of the table
        return
    tags, fields = parts.tags(columns, versions), parts.leaves(columns, versions)
    known = deployed.fields if deployed and table.quarantine_new_fields else None
    let_in = admitted(fields, known, table.steps, parts.own_columns)
    looks = {path: f", and {PERSONAL} ({why})" for path, why in findings(columns, tags).items()}
    for path in sorted(fields.keys() - let_in):
        yield f"{path} is in quarantine{looks.get(path, '')}: name it in the step mask, with a rule or keep"
    held = leaves(data_columns(deployed.columns)).keys() if deployed else set()
    there = {path for path in fields if path not in let_in or names_behind(table.steps, path) & held}
    begun = {way for path in there for way in ways_to(path)}
    yield from looking_personal(table, columns, tags, lambda path: path not in begun)


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


def findings(columns: Json, tags: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """The fields that look like personal data, by path, with their apparent kind. tags: of fields by path; each is a sign."""
    found = {
        each.name: f"tagged {', '.join(tags[each.name])}"
        if each.name in tags
        else _looks_like(each.name, innermost(each.field["type"]))
        for each in places(columns)
    }
    return {path: why for path, why in found.items() if why is not None}


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


_TEXTS, _VALUES = (
    {word: why for why, words in kinds.items() for word in words.split()} for kinds in (TEXTS, VALUES)
)
_TEXTS |= {f"{each}name": "name of a person" for each in PERSONS.split()}
_OTHERS, _BESIDE, _COUNTED = (frozenset(words.split()) for words in (OTHERS, BESIDE, COUNTED))


TYPES = {".avsc": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}
MARKS = {"add": "+", "widen": "~", "rename": "~", "comment": "~"}


def read_candidate(file: Path) -> Schema:
    """A schema without an id."""
    kind = TYPES.get(file.suffix)
    if kind is None:
        raise ConfigError(f"{file} has none of the endings {', '.join(TYPES)}")
    try:
        return Schema(0, file.read_text(encoding="utf-8"), kind)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from None


def proposed(
    jobs: Sequence[Job], name: str, candidate: Schema, part: PartName = "value"
) -> tuple[Proposal, list[str]]:
    """The effect of the schema on the table as it is now, after all versions of its subject or file.

    For a table with steps or an aggregate: the effect on the columns of its records. Also a sentence for each added field that
    looks like personal data.
    """
    job, table = table_named(jobs, name)
    source = table.key if part == "key" else table.value
    if source is None or source.infer is not None or source.format in ("string", "bytes"):
        raise ConfigError(f"the {part}s of table {name} have no schema, as calve.yaml says")
    registry = open_registry(job.registry) if table.registered else None
    parts = record_schemas_of(table, registry)
    mine = parts.key if part == "key" and parts.key else parts.value
    reshaped = table.aggregate or table.steps
    held = parts.first_columns(parts.versions()) if reshaped else _columns(job, table)
    found = parts.proposal(part, held, mine.schemas.listed(), candidate)
    if found.problem:
        return found, []
    made = columns(candidate, mine.top)
    added = {each.where.replace("[]", "").replace("{}", "") for each in found.changes if each.kind == "add"}
    personal = looking_personal(table, made, tags_of(made), lambda path: not added.isdisjoint(ways_to(path)))
    return found, list(personal)


def lines(found: Proposal) -> list[dict[str, str | None]]:
    """The effects of a schema, path by path. `kind`: a kind of change, `unfilled` or `reject`."""
    effects: list[tuple[str, str, str, str | None]]
    if problem := found.problem:
        effects = [("reject", problem.path or "the schema", problem.why, problem.rule)]
    else:
        effects = [(each.kind, each.where, _note(each), None) for each in found.changes]
        unfilled = "stays, and this version does not fill it"
        effects += [("unfilled", path, unfilled, None) for path in found.unfilled]
    return [dict(zip(("kind", "path", "note", "rule"), each, strict=True)) for each in effects]


def tree(name: str, found: Sequence[Mapping[str, str | None]], undecided: Sequence[str] = ()) -> Branch:
    below = [
        Branch(
            str(each["path"]),
            MARKS.get(str(each["kind"]), "-"),
            f"{each['note']} ({each['rule']})" if each["rule"] else str(each["note"]),
        )
        for each in found
    ]
    below += [Branch("", "?", each) for each in undecided]
    return Branch(name, below=below or [Branch("nothing changes", "=")])


def _note(change: Change) -> str:
    shown = change.type if isinstance(change.type, str) else change.type["type"]
    notes = {
        "rename": f"rename of {change.path}",
        "comment": f'comment "{change.doc}"',
        "add": f"add {shown}",
    }
    return notes.get(change.kind, f"widen to {shown}")


def _columns(job: Job, table: Table) -> Any:
    found = load(open_catalog(job.lake), job.table_name(table, cluster_database(job)))
    return None if found is None else data_columns(json.loads(found.schema().model_dump_json()))
