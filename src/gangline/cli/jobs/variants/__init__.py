"""Jobs that differ in some settings: clone one, and compare two."""
