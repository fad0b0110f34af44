"""Photos as users have them: files, captions, masks, sizes, pixels."""
