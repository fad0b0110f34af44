"""Sources that a data set is made from: folders of images, webdataset tars, MosaicML's MDS, and tables with images, URLs or paths.

find_source(place, hints)       returns which source is at a place
source.shards(entries, rows)    returns the work in pieces that do not depend on who does them, or when
source.read(shard)              yields the samples of a piece, always in the same order
"""

from gangline.data.sources.find import CALLED, Hints, find_source
from gangline.data.sources.item import BUCKET, Item, Shard, Source

__all__ = ["BUCKET", "CALLED", "Hints", "Item", "Shard", "Source", "find_source"]
