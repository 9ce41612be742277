"""A secret that may be changed while it is in use: looked at again every few minutes, and when it is refused."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from calve.errors import CalveError
from calve.log import event
from calve.secrets import Redacted, read_secret

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_AGE_S = 300.0
"""A key that a rotation replaces must stay valid for longer."""
LEAST_AGE_S = 10.0
SPREADING_S = 900.0
"""A new key may be refused for so long before all servers know it: MSK fetches it from Secrets Manager, Confluent Cloud hands it
from one to the next.
"""


@dataclass(frozen=True, slots=True)
class Held:
    """What a secret holds. `number`: how many times it has changed since it was first read."""

    texts: Redacted
    number: int = 0


class HeldSecret:
    """A reference and what it stands for now; safe to share between threads."""

    def __init__(
        self,
        reference: str,
        *,
        read: Callable[[str], Redacted] = read_secret,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.reference = reference
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        self._held: Held | None = None
        self._read_at = 0.0
        self._changed_at: float | None = None

    def current(self) -> Held:
        """What it holds, at most some minutes old; where it cannot be read again, what it held before.

        Raises:
            ConfigError, Retryable: as `read_secret`, the first time.
        """
        with self._lock:
            return self._not_older_than(MAX_AGE_S)

    def doubted(self) -> None:
        """Something failed, for which a key that is no longer valid may be the reason: look at it again, but not all the time."""
        with self._lock:
            self._not_older_than(LEAST_AGE_S)

    def refused(self) -> bool:
        """Whether a refusal may pass: the secret has changed, now or a short while ago.

        Raises:
            ConfigError, Retryable: as `read_secret`.
        """
        with self._lock:
            self._look()
            return self._changed_at is not None and self._clock() - self._changed_at < SPREADING_S

    def _not_older_than(self, age_s: float) -> Held:
        held = self._held
        if held is None:
            return self._look()
        if self._clock() - self._read_at < age_s:
            return held
        try:
            return self._look()
        except CalveError as error:
            self._read_at = self._clock()
            event("secret.not_read", secret=self.reference, why=error.message)
            return held

    def _look(self) -> Held:
        texts, now, held = self._read(self.reference), self._clock(), self._held
        self._read_at = now
        if held is None:
            held = Held(texts)
        elif texts != held.texts:
            held = Held(texts, held.number + 1)
            self._changed_at = now
            event("secret.changed", secret=self.reference)
        self._held = held
        return held
