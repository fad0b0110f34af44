"""What a data set is made from: folders of images, webdataset tars, MosaicML's MDS, tables with images, with their URLs or paths.

find_source(place, hints)     which of them lies there
source.shards(rows)           the work, cut into pieces that do not depend on who does them, or when
source.read(shard)            the samples of a piece, in an order that never changes
"""

from gangline.data.sources.find import CALLED, Hints, find_source
from gangline.data.sources.item import BUCKET, Item, Shard, Source

__all__ = ["BUCKET", "CALLED", "Hints", "Item", "Shard", "Source", "find_source"]
