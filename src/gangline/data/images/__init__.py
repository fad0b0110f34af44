"""Photos as people have them: files, captions, masks, sizes, pixels."""
