"""The public models that `headrace plan` knows by name.

Every row of `models.csv` is that model's own `https://huggingface.co/<hub>/blob/main/config.json`.
"""

from __future__ import annotations

from headrace.plan.models import Model
from headrace.plan.names import PlanError, nearest, plain, untuned
from headrace.plan.tables import read_table

MODELS: dict[str, Model] = {model.name: model for model in read_table("models.csv", Model)}

# Other names of the same shape.
_ALIASES = {
    "deepseek-r1": "deepseek-v3",
    "deepseek-v3.1": "deepseek-v3",
    "qwq-32b": "qwen2.5-32b",
    "mistral-nemo": "mistral-nemo-12b",
    "mistral-small": "mistral-small-24b",
    "phi-3-mini-128k": "phi-3-mini",
}
_FINDABLE = {plain(name): model for name, model in MODELS.items()}
_FINDABLE |= {plain(model.hub): model for model in MODELS.values()}
_FINDABLE |= {plain(alias): MODELS[name] for alias, name in _ALIASES.items()}


def find_model(name: str) -> Model:
    """The built-in model of that name; organisation, case and `-instruct` do not matter.

    Raises PlanError with the nearest names when there is none.
    """
    found = _FINDABLE.get(plain(name)) or _FINDABLE.get(untuned(name))
    if found is None:
        near = nearest(name, MODELS)
        hint = f"did you mean {', '.join(near)}?" if near else f"known: {', '.join(MODELS)}"
        raise PlanError(f"unknown model {name!r}; {hint} (or give a config.json)", param="model")
    return found
