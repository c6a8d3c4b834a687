"""Formatting of figures for people."""

from __future__ import annotations

from collections.abc import Callable

UNKNOWN = "?"

_NEXT_UNIT = 999.5
_UNITS = ("B", "kB", "MB", "GB", "TB")
_THOUSANDS = ("", "k", "M", "G")
_LEAST, _MOST = 0.1, 99.9
_WHOLE_FROM_USD = 100


def format_percent(part: float, total: float) -> str:
    """Format a share, never rounded up to 100 % nor down to 0 %; a dash if the total is 0."""
    if not total:
        return "-"
    share = 100 * part / total
    if 0 < share < _LEAST:
        return f"<{_LEAST} %"
    return f">{_MOST} %" if _MOST < share < 100 else f"{share:.1f} %"  # noqa: PLR2004 - a hundred per cent


def format_known(part: int, unknown: int, total: int) -> str:
    """Format a share, marked as a lower bound if `unknown` can be part of it; ? if all of the total is unknown."""
    if total and unknown == total:
        return UNKNOWN
    return mark_lower_bound(format_percent(part, total), unknown)


def format_range(least: float, most: float, form: Callable[[float], str]) -> str:
    """Format an amount that is between two, each formatted by `form`."""
    if most <= least:
        return form(least)
    return f"{form(least)} to {form(most)}" if least > 0 else f"≤{form(most)}"


def format_bytes(bytes_: float) -> str:
    """Format a number of bytes, in units of a thousand."""
    value, unit = abs(bytes_), 0
    while value >= _NEXT_UNIT and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{'-' if bytes_ < 0 else ''}{value:.3g} {_UNITS[unit]}"


def format_count(count: int) -> str:
    """Format a number of records, in thousands and millions if it is large."""
    value, unit = float(count), 0
    while value >= _NEXT_UNIT and unit < len(_THOUSANDS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.3g} {_THOUSANDS[unit]}".rstrip()


def mark_lower_bound(figure: str, unmeasured: int) -> str:
    """Mark a figure that excludes some partitions."""
    return f"≥{figure}" if unmeasured else figure


def format_usd(usd: float) -> str:
    """Format an amount of money, with cents if it is small."""
    return f"{usd:,.0f}" if abs(usd) >= _WHOLE_FROM_USD else f"{usd:.2f}"
