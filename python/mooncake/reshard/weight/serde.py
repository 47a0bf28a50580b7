"""The wire JSON of placements."""

from __future__ import annotations

import json

from mooncake import _core
from mooncake.reshard.weight.placement import WeightPlacementManifest


def weight_placement_to_json(placement: WeightPlacementManifest) -> str:
    """Canonical JSON: `placement.digest` is the SHA-256 of its UTF-8."""
    if not isinstance(placement, WeightPlacementManifest):
        raise ValueError("placement must be a WeightPlacementManifest")
    text: str = vars(placement)["_handle"].to_json()
    return text


def weight_placement_from_json(value: str) -> WeightPlacementManifest:
    """The placement in `value` (bytes do too), fully checked again. Its ids are kept verbatim."""
    text = decoded_json(value, "placement manifest")
    return WeightPlacementManifest._of(_core.placement_from_json(text))


def decoded_json(value: object, label: str) -> str:
    """`value` as text, whatever Unicode encoding its bytes have; ValueError when it is neither."""
    if isinstance(value, (bytes, bytearray)):
        try:
            return bytes(value).decode(json.detect_encoding(value))
        except UnicodeDecodeError as error:
            raise ValueError(f"{label} is not valid JSON: {error}") from error
    if not isinstance(value, str):
        raise ValueError(f"{label} is not valid JSON: expected text, got {type(value).__name__}")
    return value
