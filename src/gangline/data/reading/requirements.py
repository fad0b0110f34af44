"""Check that data sets have what the phases of a job need: before the first step, not when the last phase starts."""

from collections.abc import Sequence

from gangline.core.specs.scratch import ScratchSpec, wanted_rows
from gangline.data.columns import latents_column
from gangline.data.dataset import DataSet
from gangline.data.reading.reader import check_columns
from gangline.data.where import check_condition


def check_data_sets(spec: ScratchSpec, sets: Sequence[DataSet], *, instead: str = "") -> None:
    """Raise `BadInput` if a condition is invalid or selects no row, or if required latents or embeddings are missing.

    `instead` tells the hint how to give another condition for a data set.
    """
    for data, ref in zip(sets, spec.data, strict=True):
        for text in dict.fromkeys((ref.where, spec.held_out, *(phase.where for phase in spec.phases))):
            if text:
                check_condition(text, data.table.schema, instead=instead if text == ref.where else "")
        if spec.text_embeddings == "required":
            data.texts()
        for phase in spec.phases:
            check_columns(data, (), wanted_rows(spec, ref, phase, held_out=False))
            if phase.latents == "required":
                data.latents(latents_column(phase.resolution, phase.crop))
        if spec.held_out:
            check_columns(data, (), wanted_rows(spec, ref, spec.phases[-1], held_out=True))
