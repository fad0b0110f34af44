"""Remove rows of a data set that are equal in a column to an earlier row."""

import lance
import numpy as np
import pyarrow as pa

from gangline.data.dataset import FINISHED
from gangline.data.making.conversion import Conversion
from gangline.data.place import errors_of


def _of_any_length(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column that may hold more than 2 GB of text, which the usual string type cannot."""
    return column.cast(pa.large_string()) if pa.types.is_string(column.type) else column


def drop_doubles(conversion: Conversion) -> None:
    """Keep the first of the rows that are equal in a column, in the order of the source. A row without a value there is always kept."""
    with errors_of(conversion.target):
        table = lance.dataset(conversion.target.uri, storage_options=conversion.target.lance_options)
        if FINISHED in table.metadata:
            return
        found = table.scanner(columns=[conversion.unique], with_row_address=True, scan_in_order=True).to_table()
        codes = _of_any_length(found[conversion.unique]).combine_chunks().dictionary_encode().indices
        known = np.flatnonzero(codes.is_valid().to_numpy(zero_copy_only=False))
        _, firsts = np.unique(codes.drop_null().to_numpy(), return_index=True)
        later = np.delete(known, firsts)
        addresses = found["_rowaddr"].to_numpy()[later]
        if len(addresses):
            updated = []
            for fragment in table.get_fragments():
                own = addresses[addresses >> 32 == fragment.fragment_id] & 0xFFFFFFFF
                if len(own):
                    updated.append((fragment.fragment_id, fragment.delete_rows(own.tolist())))
            operation = lance.LanceOperation.Delete(
                [metadata for _, metadata in updated if metadata is not None],
                [number for number, metadata in updated if metadata is None],
                f"a later row of equal {conversion.unique}",
            )
            table = lance.LanceDataset.commit(
                table, operation, read_version=table.version, storage_options=conversion.target.lance_options
            )
        table.update_metadata({FINISHED: "yes"})
