"""What a round asks for, by what it did; the figures of each action are compared with a proxy's in the integration tests."""

from __future__ import annotations

from calve.rounds.commit_cost import (
    COMMIT,
    DEAD_LETTERS,
    DEAD_LETTERS_LOOK,
    KEPT,
    LOOK,
    MANIFEST,
    MIB,
    Held,
    Requests,
    requests,
)

EMPTY = Held()


def asked(
    sizes: list[int],
    held: Held = EMPTY,
    *,
    plans: int = 0,
    read: int = 0,
    kept: bool = False,
    deletes: bool = False,
    dead_letters: bool = False,
    had_dead_letters: bool = False,
) -> Requests:
    return requests(
        sizes,
        held,
        plans=plans,
        read=read,
        merge_at=20,
        kept=kept,
        deletes=deletes,
        dead_letters=dead_letters,
        had_dead_letters=had_dead_letters,
    )


def test_a_round_looks_commits_and_writes_a_file_each() -> None:
    assert asked([]) == LOOK + COMMIT
    assert asked([1, 2]) == LOOK + COMMIT + MANIFEST + Requests(puts=2)
    assert asked([1, 2], kept=True) == asked([1, 2]) + KEPT


def test_a_large_file_is_written_in_parts() -> None:
    assert asked([100 * MIB]) == asked([47 * MIB]) + Requests(puts=2 + 4 - 1)


def test_manifests_are_read_and_written_anew_when_there_are_enough() -> None:
    few, many = Held(manifests=18), Held(manifests=19)
    assert asked([1], many) == asked([1], few) + Requests(puts=1, gets=20)


def test_dead_letters_come_on_top() -> None:
    alone = asked([1])
    assert asked([1], dead_letters=True) == alone + DEAD_LETTERS
    assert asked([1], had_dead_letters=True) == alone + DEAD_LETTERS_LOOK
    assert asked([1], deletes=True) == alone + MANIFEST


def test_a_plan_reads_all_manifests_and_the_index_the_keys_that_it_lacks() -> None:
    held = Held(manifests=2, files=5)
    assert asked([1], held, plans=1, read=2) == asked([1], held) + Requests(gets=2 + 3 * 2)
    assert asked([1], held) == asked([1])


def test_a_summary_of_icebergs_says_what_a_table_holds() -> None:
    counts = {"manifests-created": 1, "manifests-kept": 4, "total-data-files": 7, "total-delete-files": 2}
    assert Held.of({name: str(count) for name, count in counts.items()}) == Held(5, 9)
    assert Held.of({}) == Held()
