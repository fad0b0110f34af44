"""Options of `gangline train` go before the recipe, field by field."""

from gangline.cli.jobs.train import with_options
from gangline.core.parsing import to_json
from gangline.core.specs.spec import parse_spec
from tests.unit.specs.test_spec import SPEC


def test_what_is_not_given_comes_from_the_recipe() -> None:
    recipe = {"steps": 7, "priority": 1, "needs": {"gpu": "T4", "trust": 1}}
    assert with_options(recipe, {"steps": None}, {"gpu": None, "pool": None}) == recipe


def test_what_is_given_goes_before_the_recipe() -> None:
    recipe = {"steps": 7, "needs": {"gpu": "T4", "trust": 1}}
    settings = with_options(recipe, {"steps": 9, "exact": "required"}, {"gpu": "A10", "gpu_memory_gb": 20.0})
    assert settings == {"steps": 9, "exact": "required", "needs": {"gpu": "A10", "trust": 1, "gpu_memory_gb": 20.0}}
    spec = parse_spec(to_json(SPEC) | settings)
    assert (spec.needs.gpu, spec.needs.trust, spec.needs.pool, spec.exact) == ("A10", 1, "", "required")


def test_a_recipe_whose_needs_are_no_table_is_left_to_the_specs_own_check() -> None:
    assert with_options({"needs": 3}, {}, {"gpu": "A10"}) == {"needs": 3}
