"""Which names look like personal data, and which must not."""

from __future__ import annotations

from typing import Any

import pytest

from calve.schema.columns import field, list_of, map_of, struct
from cli.project.plan.fields_to_review import findings

PERSONAL = {
    "e-mail": "email, customer_email, customerEmail, emails, e_mail, eMail, emailAddress, EMAIL_ADDRESS, email2, email_raw,"
    " contact.mail, work_email, correo, courriel, email.value",
    "name of a person": "first_name, firstName, firstname, lastName, full_name, surname, customer_name, customer.name,"
    " cardholderName, name.first, user_name, Vorname, apellidos, patient.names",
    "telephone number": "phone, phone_number, phoneNumbers, mobile, msisdn, home_phone, phone_home, tel, Telefonnummer",
    "postal address": "address, shipping_address, addresses, address_line_1, address.line1, street, streetName, zip, zip_code,"
    " postcode, postalCode, billing.address.city, strasse, PLZ",
    "date of birth": "birth, birth_date, dateOfBirth, DOB, birthday, birthYear, place_of_birth, Geburtsdatum",
    "identity document": "ssn, customerSSN, passport, passport_no, passportNumber, tax_id, national_id, DNI",
    "payment card": "card, card_number, card.number, credit_card, pan, cvv, cvv2",
    "bank account": "iban, account_number, bankAccount",
    "IP address": "ip, ip_address, clientIp, IPAddress, ipv4, ipv6_address",
    "location": "gps, gps_coordinates, lat, latitude, geo.lon, home_lng",
    "salary": "salary, monthlySalaries",
    "sex": "gender, sex",
}
NOT_PERSONAL = (
    "product_name, name, company_name, file_name, hostname, email_count, email_verified, emailDomain, num_emails, mail_template,"
    " address_book_id, address_type, wallet_address, server_address, ip_version, tcpip_port, card_type, card_id, score_card,"
    " ship, discard, company, pan_european, birth_rate_index, street_count, zipped, zip_file, phone_model, mobile_os, iban_valid,"
    " latency, lateral, longevity, platform, plate, salary_band_id, sexagesimal, gender_neutral, passport_type, user_id,"
    " customer.id, order.number, id, price, quantity, created_at, sku, state, country, currency, status, no, number, value,"
    " has_email, num_phones, telemetry, cancelled, email.domain, address_id, city, store.city"
)


def found(path: str, kind: Any = "string") -> str | None:
    """What a field of this path seems to be."""
    for name in reversed(path.split(".")):
        kind = struct(field(name, kind))
    reasons = findings(kind, {})
    assert reasons.keys() <= {path}
    return reasons.get(path)


def names(text: str) -> list[str]:
    return [each.strip() for each in text.split(",")]


@pytest.mark.parametrize(("why", "name"), [(why, n) for why, text in PERSONAL.items() for n in names(text)])
def test_what_looks_personal_is_found_and_named(why: str, name: str) -> None:
    assert found(name) == why


@pytest.mark.parametrize("name", names(NOT_PERSONAL))
def test_what_only_has_such_a_word_in_it_is_not(name: str) -> None:
    assert found(name) is None


@pytest.mark.parametrize("name", ["name", "email_hash", "age", "client.profile.name", "notes", "p1", "city"])
def test_these_are_missed(name: str) -> None:
    assert found(name) is None


@pytest.mark.parametrize("name", ["store_address", "warehouse.zip", "sim_card", "camera_pan", "loyalty_card"])
def test_these_are_taken_for_personal_though_they_need_not_be(name: str) -> None:
    assert found(name) is not None


def test_a_type_that_cannot_hold_it_says_that_it_is_something_else() -> None:
    assert found("email", "boolean") is found("mobile", "boolean") is None
    assert found("address", "long") is found("emails", "int") is None
    assert found("phone", "long") == "telephone number"
    assert found("birth", "date") == "date of birth"


def test_fields_are_found_in_lists_and_maps_by_their_path() -> None:
    item = struct(field("sku", "string"), field("email", list_of("string")))
    columns = struct(
        field("items", list_of(item)), field("phones", map_of("string")), field("by", map_of(item))
    )
    assert findings(columns, {}) == {
        "items.email": "e-mail",
        "phones": "telephone number",
        "by.email": "e-mail",
    }


def test_any_tag_is_a_sign_also_on_a_field_that_has_fields() -> None:
    columns = struct(field("a", struct(field("b", "int"))), field("c", "boolean"))
    tags = {"a": ("PII",), "c": ("GDPR", "Internal")}
    assert findings(columns, tags) == {"a": "tagged PII", "c": "tagged GDPR, Internal"}
