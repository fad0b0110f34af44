"""Files of LoRAs, as any tool wrote them: described, renamed, added up, made smaller, and made of two checkpoints."""
