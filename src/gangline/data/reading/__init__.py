"""Read a data set for training: order, shuffle, mix, stream."""
