"""Names, prompts, reasons and logs that would steer a terminal: at the door, and wherever they are shown."""
