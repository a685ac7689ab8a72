"""Kubernetes' quantities: `0.5`, `500m`, `1Gi`, `2e3`; read exactly and written in the canonical form."""

import re
from decimal import Decimal
from typing import Any

_FORM = re.compile(r"^([+-]?(?:\d+\.?\d*|\.\d+))(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|[eE][+-]?\d+)?$")
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def value(text: Any) -> Decimal:
    """Raises ValueError for what is no quantity."""
    found = _FORM.match(str(text))
    if found is None:
        raise ValueError(f"{text!r} is no quantity")
    number, suffix = Decimal(found[1]), found[2] or ""
    if suffix in _BINARY:
        return number * _BINARY[suffix]
    if suffix in _DECIMAL:
        return number.scaleb(_DECIMAL[suffix])
    return number.scaleb(int(suffix[1:]))


def canonical(text: Any) -> str:
    """As the API server writes it back: no fraction, the largest suffix, in the family it was written in."""
    number = value(text)
    suffix = _FORM.match(str(text))[2] or ""  # type: ignore[index]  # value() has matched it
    if suffix in _BINARY and number == number.to_integral_value():
        for name, factor in reversed(_BINARY.items()):
            if number and number % factor == 0:
                return f"{int(number / factor)}{name}"
        return str(int(number))
    if number and suffix[:1] in {"e", "E"} and suffix not in _DECIMAL:
        return _scaled(number, lambda power: f"e{power}" if power else "")
    names = {power: name for name, power in _DECIMAL.items()}
    return _scaled(number, lambda power: names[power])


def _scaled(number: Decimal, name: Any) -> str:
    for power in sorted(_DECIMAL.values(), reverse=True):
        scaled = number.scaleb(-power)
        if number and scaled == scaled.to_integral_value():
            return f"{int(scaled)}{name(power)}"
    return "0" if not number else str(number)
