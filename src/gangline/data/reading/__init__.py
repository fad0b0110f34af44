"""Reading a data set: order, shuffle, mix, stream."""
