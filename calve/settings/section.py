"""What every mapping of calve.yaml has in common."""

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


class Section(BaseModel):
    """A mapping of calve.yaml; an empty one (`lake:`) counts as `{}`, and a key without a value as absent."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, raw: Any) -> Any:
        if not isinstance(raw, dict):
            return {} if raw is None else raw
        return {key: value for key, value in raw.items() if value is not None or key not in cls.model_fields}

    @classmethod
    def known_keys(cls) -> list[str]:
        """The known keys, with those of this section before shared ones."""
        names = sorted(cls.model_fields, key=lambda key: key not in cls.__annotations__)
        return [cls.model_fields[name].alias or name for name in names]
