"""Pages, help and messages are in plain English (`make words` prints each sentence that is not)."""

from __future__ import annotations

import pytest

from tests.plain_english import faults, messages, pages, sentences


def test_pages_have_no_sentence_that_must_be_read_twice() -> None:
    assert [(name, *each) for name, text in pages().items() for each in faults(text)] == []


def test_messages_have_no_sentence_that_must_be_read_twice() -> None:
    found = messages()
    assert sum(text.count("\n\n") for text in found.values()) > 1_000
    assert [(name, *each) for name, text in found.items() for each in faults(text)] == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("word " * 26 + "end.", "27 words"),
        ("A job that dies leaves files.", '"dies"'),
        ("What cannot be read is a dead letter.", "a clause as a noun"),
        ("| a | Whoever deploys must know it |", '"Whoever"'),
    ],
)
def test_faults_are_found(text: str, fault: str) -> None:
    assert [what for what, _ in faults(text)] == [fault]


@pytest.mark.parametrize(
    "text",
    [
        "word " * 22 + "`code of many words` [a link](https://a.b/c-d-e).",
        "```\n" + "word " * 40 + "\n```",
        "| " + "word " * 20 + "; " + "word " * 20 + " |",
        "- " + "word " * 20 + "\n- " + "word " * 20,
        "What is a snapshot?",
        "calve works with " + ", ".join(f"Name {n}.1" for n in range(12)) + ".",
    ],
)
def test_what_is_no_fault(text: str) -> None:
    assert [*faults(text)] == []


def test_sentences_end_before_a_name_in_code() -> None:
    assert [*sentences("One ends. `two` begins. calve is **three**: Four")] == [
        "One ends.",
        "`code` begins.",
        "calve is three:",
        "Four",
    ]
