import pytest

from ramet.runtime.errors import InvalidArgument, UnsupportedFeature
from ramet.runtime.model import config_fields as fields


def test_family_is_returned():
    assert fields.check_fields({"model_type": "qwen3", "use_cache": True}) == "qwen3"
    with pytest.raises(UnsupportedFeature, match="llama, mistral, qwen2, qwen3"):
        fields.check_fields({})


def test_window_fields_belong_to_families():
    fields.check_fields({"model_type": "mistral", "sliding_window": 5})
    with pytest.raises(UnsupportedFeature, match="max_window_layers=3"):
        fields.check_fields({"model_type": "mistral", "max_window_layers": 3})


def test_require_keys():
    fields.require_keys("rope", {"a": 1, "b": None}, {"a"})
    with pytest.raises(UnsupportedFeature, match=r"rope\.b=2"):
        fields.require_keys("rope", {"b": 2}, {"a"})


def test_integer_and_number():
    assert fields.integer("n", 0, low=0) == 0
    assert fields.number("x", 2) == 2.0
    for call in (lambda: fields.integer("n", True), lambda: fields.number("n", float("inf"))):
        with pytest.raises(InvalidArgument, match="field n="):
            call()
