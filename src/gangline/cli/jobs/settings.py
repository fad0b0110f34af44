"""An option of the command line for each setting of a spec, so that none is forgotten and each is explained once."""

import inspect
from collections.abc import Callable
from functools import cache, wraps
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer
from rich.markup import escape

from gangline.cli.jobs import subjects
from gangline.cli.jobs.prompts import NOTATION, PROMPTS, PROMPTS_FILE, PromptsFileOption, given_prompts
from gangline.core.specs.fields import Needs
from gangline.core.specs.form import offered_settings
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.settings import Setting, default_of

NOTATIONS = {PROMPTS: NOTATION, subjects.SUBJECTS: subjects.NOTATION}


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """As `with_settings_of`, for a LoRA."""
    return with_settings_of(LoraSpec)(command)


def with_settings_of(spec: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """`command` with these options besides its own; those that were given come as its `settings` and `needs`.

    Values are passed on as they were typed: the spec's own check knows what they must be. Sample prompts are read, and those of a file
    are among them.
    """
    return lambda command: _with_options(command, spec)


def _with_options(command: Callable[..., None], spec: type) -> Callable[..., None]:
    own = [parameter for name, parameter in _parameters(command).items() if name not in ("settings", "needs")]
    of_spec, of_needs = _options(spec), _options(Needs)
    of_files = [_of_prompts_file()] if any(option.name == PROMPTS for option in of_spec) else []

    @wraps(command)
    def run(**given: Any) -> None:
        settings, needs = (_given(options, given) for options in (of_spec, of_needs))
        settings |= given_prompts(settings.get(PROMPTS), given.get(PROMPTS_FILE))
        command(**{parameter.name: given[parameter.name] for parameter in own}, settings=settings, needs=needs)

    options = [*own, *of_spec, *of_files, *of_needs]
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in options}
    return run


def _parameters(command: Callable[..., None]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(command, eval_str=True).parameters)


def _given(options: list[inspect.Parameter], given: dict[str, Any]) -> dict[str, Any]:
    return {option.name: given[option.name] for option in options if given[option.name] not in (None, [])}


def _options(of: type) -> list[inspect.Parameter]:
    return [_option(of, name, one) for settings in offered_settings(of).values() for name, one in settings.items()]


def _option(of: type, name: str, setting: Setting) -> inspect.Parameter:
    hint = _types(of)[name]
    several = " Repeat it for several." if _is_list(hint) else ""
    several += f" {NOTATIONS[name]}" if name in NOTATIONS else ""
    option = typer.Option(
        option_name(of, name),
        help=escape(f"{setting.says}{several}{_default(of, name)}"),
        rich_help_panel=setting.group,
        show_default=False,
        metavar=_metavar(hint),
    )
    typed = bool if hint is bool else list[str] if _is_list(hint) else str
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[typed | None, option]
    )


def _of_prompts_file() -> inspect.Parameter:
    return inspect.Parameter(PROMPTS_FILE, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=PromptsFileOption)


def _default(of: type, name: str) -> str:
    default = default_of(of, name)
    return f"  [default: {default}]" if default else ""


def option_name(of: type, name: str) -> str:
    """Return the option of a setting: `--flip/--no-flip` for a switch; one that can be repeated is in the singular."""
    dashed = f"--{name.replace('_', '-')}"
    hint = _types(of)[name]
    if hint is bool:
        return f"{dashed}/--no-{dashed[2:]}"
    return dashed.removesuffix("s") if _is_list(hint) else dashed


@cache
def _types(of: type) -> dict[str, Any]:
    return get_type_hints(of)


def _is_list(hint: Any) -> bool:
    return get_origin(hint) is tuple


def _metavar(hint: Any) -> str | None:
    if get_origin(hint) is Literal:
        return "|".join(get_args(hint))
    plain = next((part for part in (get_args(hint) or (hint,)) if part in (int, float, bool)), str)
    return {int: "INTEGER", float: "NUMBER", bool: None, str: "TEXT"}[plain]
