"""Declarations of named stores."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

from rackassign.errors import ConfigError
from rackassign.stateful.stores.keys import LONGEST_NAME, store_prefix
from rackassign.stateful.stores.serdes import BYTES, Serde
from rackassign.util.text import join_first, short_repr

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # Without types a store is one of bytes.
    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{LONGEST_NAME}}}")
_NAMED = 10
_LONGEST_S = 100 * 366 * 86_400


@dataclass(frozen=True, slots=True)
class Store(Generic[K, V]):
    """A named store of a task: `state[counts]` in `process` is its content.

    Args:
        name: Letters, digits, `.`, `_` and `-`.
        key: Serde of keys.
        value: Serde of values.
        ttl_s: Seconds of stream time after which a value that was not set again expires; None for never.

    Raises:
        ConfigError: An option is invalid.
    """

    name: str
    # A store without types is one of bytes.
    key: Serde[K] = BYTES  # type: ignore[assignment]
    value: Serde[V] = BYTES  # type: ignore[assignment]
    ttl_s: float | None = None

    def __post_init__(self) -> None:
        """Check the options."""
        name: object = self.name
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError(
                f"the name of a store has up to {LONGEST_NAME} letters, digits, '.', '_' and '-',"
                f" got {short_repr(name)}"
            )
        for option in ("key", "value"):
            serde: object = getattr(self, option)
            if not isinstance(serde, Serde):
                hint = "; call it" if callable(serde) else ""
                raise ConfigError(f"{option} of store {self.name} must be a Serde, got {short_repr(serde)}{hint}")
        ttl_s: object = self.ttl_s
        if ttl_s is not None and (
            isinstance(ttl_s, bool) or not isinstance(ttl_s, (int, float)) or not 0 < ttl_s <= _LONGEST_S
        ):
            raise ConfigError(
                f"ttl_s of store {self.name} must be a number of seconds, more than 0 and up to {_LONGEST_S},"
                f" got {short_repr(ttl_s)}"
            )

    def prefix(self) -> bytes:
        """Return the first bytes of its keys."""
        return store_prefix(self.name, expiring=self.ttl_s is not None)


AnyStore = Store[Any, Any]


def stores_by_name(stores: Iterable[AnyStore]) -> Mapping[str, AnyStore]:
    """Return declared stores by name.

    Raises:
        ConfigError: One is no store, or two have one name.
    """
    if isinstance(stores, (str, Store)) or not isinstance(stores, Iterable):
        raise ConfigError(f"stores must be a list of Store, got {short_repr(stores)}")
    found: dict[str, AnyStore] = {}
    for store in stores:
        if not isinstance(store, Store):
            raise ConfigError(f"stores must be a list of Store, got {short_repr(store)} in it")
        if store.name in found:
            raise ConfigError(f"two stores have the name {store.name}")
        found[store.name] = store
    return found


def unknown_store(asked: object, declared: Iterable[AnyStore]) -> ConfigError:
    """Return the error for a store that was not declared, or not with these options."""
    known = {store.name for store in declared}
    if isinstance(asked, Store) and asked.name in known:
        return ConfigError(f"store {asked.name} is declared in stores= with other options")
    name = asked.name if isinstance(asked, Store) else asked
    names = f"declared are {join_first(sorted(known), _NAMED)}" if known else "none is declared"
    return ConfigError(f"store {short_repr(name)} is not declared in stores=: {names}")
