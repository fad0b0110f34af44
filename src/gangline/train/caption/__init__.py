"""Write captions for photos with a tagger or a captioner."""
