"""What this server knows of the providers that pools name: addresses and programs, which no key of an operator changes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from annotated_types import MaxLen, MinLen

from gangline.core.policy import STRICT, Exact

ProviderText = Annotated[str, MaxLen(1000), Exact()]
ProgramWords = Annotated[tuple[Annotated[str, MaxLen(4096), Exact()], ...], MinLen(1), MaxLen(100)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSettings:
    """A provider of nodes, for the pools that name it. One without a section is reached as its driver does by default."""

    __pydantic_config__: ClassVar[Any] = STRICT
    driver: Annotated[
        ProviderText, "Pools of this driver may name the provider; without it, those of the driver of its name."
    ] = ""
    endpoint: Annotated[ProviderText, "The provider's API has this address; without it, the driver's own."] = ""
    programs: Annotated[
        Mapping[ProviderText, ProgramWords],
        'What the driver calls a program, and the command line that is run for it, e.g. list = ["/opt/cloud/list", "--json"].',
    ] = field(default_factory=dict)
    folder: Annotated[
        Path | None, "The driver's programs are in this folder; without it, they are looked for in PATH."
    ] = None
    environment: Annotated[
        tuple[ProviderText, ...], "The provider's programs are given these variables of the server's environment."
    ] = ()
