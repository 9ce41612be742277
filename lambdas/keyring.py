"""The signing keys, from Secrets Manager, kept in memory for a few minutes."""

from __future__ import annotations

import time
from collections.abc import Callable

from aws_lambda_powertools.utilities.parameters import SecretsProvider

from lambdas.tokens import Claim, Keys, key_id_of, verify

MAX_AGE_S = 300
REREAD_S = 60.0


class Keyring:
    """Reads the keys when they are needed.

    A token signed with a key that is not known yet (the keys have just been rotated) makes one early read, and no
    more than one a minute: made-up key ids cannot turn into load on Secrets Manager.
    """

    def __init__(
        self, secret: str, provider: SecretsProvider, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._secret = secret
        self._provider = provider
        self._clock = clock
        self._reread_at: float | None = None

    def keys(self, *, fresh: bool = False) -> Keys:
        text = self._provider.get(
            self._secret, max_age=MAX_AGE_S, force_fetch=fresh, VersionStage="AWSCURRENT"
        )
        return Keys.parse(str(text))

    def verify(self, token: str, *, now: float) -> Claim | None:
        """As `tokens.verify`; a token of the wrong form does not even ask for the keys."""
        key_id = key_id_of(token)
        if key_id is None:
            return None
        keys = self.keys()
        if key_id not in keys.keys and self._may_reread():
            keys = self.keys(fresh=True)
        return verify(keys, token, now=now)

    def _may_reread(self) -> bool:
        now = self._clock()
        if self._reread_at is not None and now - self._reread_at < REREAD_S:
            return False
        self._reread_at = now
        return True
