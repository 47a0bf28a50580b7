"""Conformance: published models under engines' layouts, and a suite for exporters.

See docs/conformance.md. Needs numpy.
"""

from .configurations import MODELS, ModelConfiguration, model_named
from .element_oracle import index_bytes, what_is_wrong_with_plan, what_is_wrong_with_regions
from .families import (
    CHECKPOINT,
    FUSED,
    Part,
    TensorFamily,
    parameter_count,
    tensor_families,
)
from .layouts import (
    LAYOUTS,
    EngineLayout,
    Fsdp2,
    Megatron,
    Sglang,
    UnsupportedLayout,
    Vllm,
    layout_named,
    unsupported,
)
from .placements import participant_name, reference_placement
from .suite import ConformanceSuite, Exporter, Finding, Report

__all__ = [
    "CHECKPOINT",
    "FUSED",
    "LAYOUTS",
    "MODELS",
    "ConformanceSuite",
    "EngineLayout",
    "Exporter",
    "Finding",
    "Fsdp2",
    "Megatron",
    "ModelConfiguration",
    "Part",
    "Report",
    "Sglang",
    "TensorFamily",
    "UnsupportedLayout",
    "Vllm",
    "index_bytes",
    "layout_named",
    "model_named",
    "parameter_count",
    "participant_name",
    "reference_placement",
    "tensor_families",
    "unsupported",
    "what_is_wrong_with_plan",
    "what_is_wrong_with_regions",
]
